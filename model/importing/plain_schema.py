"""JSON schemas without alternatives and references, for documents that fit any of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["plain_schema", "schema_kinds", "union_schema"]

Schema = Mapping[str, Any]

_PASSED_OVER: Schema = {}


def plain_schema(schema: Schema | bool, definitions: Schema = _PASSED_OVER) -> dict[str, Any]:
    """Return a schema with `bsonType`, `enum`, `properties`, `required` and `items` alone, and
    `variants` of objects that the texts in a `discriminator` tell apart.

    A schema that refers to itself has no type where it does so.

    Args:
        definitions: Schemas by the last word of the `$ref` that leads to them.
    """
    if not isinstance(schema, Mapping):
        # `true` is a schema, too.
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        name = reference.rpartition("/")[2]
        others = {key: each for key, each in definitions.items() if key != name}
        return plain_schema(definitions.get(name, {}), others)
    for word in ("anyOf", "oneOf", "allOf"):
        choices = schema.get(word)
        if isinstance(choices, list) and choices:
            members = [plain_schema(each, definitions) for each in choices]
            found = union_schema(members)
            discriminator = schema.get("discriminator")
            if isinstance(discriminator, Mapping):
                _tell_apart(found, members, discriminator["propertyName"])
            return found
    found = {}
    kinds = [*schema_kinds(schema)]
    if kinds:
        found["bsonType"] = kinds
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list):
        found["enum"] = values
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        found["properties"] = {
            name: plain_schema(each, definitions) for name, each in properties.items()
        }
        found["required"] = [*schema.get("required", ())]
    if isinstance(schema.get("items"), Mapping):
        found["items"] = plain_schema(schema["items"], definitions)
    return found


def _tell_apart(union: dict[str, Any], members: Sequence[Schema], name: str) -> None:
    """Add the members of a union by the text in a property, which all of them have."""
    variants: dict[str, Schema] = {}
    for each in members:
        texts = each.get("properties", {}).get(name, {}).get("enum", ())
        if len(texts) != 1 or not isinstance(texts[0], str):
            return
        variants[texts[0]] = each
    union["discriminator"], union["variants"] = name, variants
    union["required"] = [*dict.fromkeys([*union.get("required", ()), name])]


def union_schema(schemas: Sequence[Schema]) -> dict[str, Any]:
    """Return the schema of the values that fit at least one of plain schemas."""
    if len(schemas) == 1 or all(each == schemas[0] for each in schemas):
        return dict(schemas[0])
    kinds = [schema_kinds(each) for each in schemas]
    if not all(kinds):
        # One of them takes any value.
        return {}
    found: dict[str, Any] = {"bsonType": [*dict.fromkeys(name for each in kinds for name in each)]}
    texts = [each for each in schemas if "string" in schema_kinds(each)]
    if texts and all("enum" in each for each in texts):
        found["enum"] = [*dict.fromkeys(value for each in texts for value in each["enum"])]
    objects = [each for each in schemas if "object" in schema_kinds(each)]
    if objects and all("properties" in each for each in objects):
        names = dict.fromkeys(name for each in objects for name in each["properties"])
        found["properties"] = {
            name: union_schema(
                [each["properties"][name] for each in objects if name in each["properties"]]
            )
            for name in names
        }
        found["required"] = [
            name for name in names if all(name in each.get("required", ()) for each in objects)
        ]
    if len(objects) == 1 and "variants" in objects[0]:
        found |= {name: objects[0][name] for name in ("discriminator", "variants")}
    lists = [each for each in schemas if "array" in schema_kinds(each)]
    if lists and all("items" in each for each in lists):
        found["items"] = union_schema([each["items"] for each in lists])
    return found


def schema_kinds(schema: Schema) -> tuple[str, ...]:
    """Return the names of the types that a schema allows; empty for any."""
    given = schema.get("bsonType", schema.get("type"))
    names = given if isinstance(given, list) else [given]
    return tuple(each for each in names if isinstance(each, str))
