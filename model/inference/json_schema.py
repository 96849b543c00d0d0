"""Facts of a JSON schema, added to the profile of a collection.

A `$jsonSchema` validator names fields that no document of a sample has, and all values of an enum.
A schema alone, without documents, also says what is required.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from revstream.model.inference.profile import FieldProfile, Kind, ObjectProfile

__all__ = ["add_json_schema"]

_KINDS = {
    "null": Kind.NULL,
    "string": Kind.STRING,
    "int": Kind.INT,
    "integer": Kind.LONG,
    "long": Kind.LONG,
    "double": Kind.FLOAT,
    "number": Kind.FLOAT,
    "decimal": Kind.DECIMAL,
    "bool": Kind.BOOLEAN,
    "boolean": Kind.BOOLEAN,
    "date": Kind.DATETIME,
    "day": Kind.DAY,
    "timestamp": Kind.TIMESTAMP,
    "objectId": Kind.OBJECTID,
    "uuid": Kind.UUID,
    "object": Kind.OBJECT,
    "array": Kind.LIST,
}


def add_json_schema(
    profile: ObjectProfile, schema: Mapping[str, Any], *, alone: bool = False
) -> None:
    """Add the properties of a schema for objects; what is not understood is passed over.

    Args:
        alone: No documents were read: the schema decides about `_id`, about what is required, and
            what it does not describe is of any kind.
    """
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    required = schema.get("required", ())
    for name, each in properties.items():
        if isinstance(each, Mapping) and (alone or name != "_id"):
            field = profile.field_profile(name)
            _add(field, each, alone=alone)
            if alone and name not in required:
                field.rarely_missing = True
    for members in () if alone else profile.variants.values():
        for member in members.values():
            there = {name: each for name, each in properties.items() if name in member.fields}
            add_json_schema(member, {"properties": there})


def _add(profile: FieldProfile, schema: Mapping[str, Any], *, alone: bool) -> None:
    values = schema.get("enum")
    texts = [each for each in values if each is not None] if isinstance(values, list) else []
    if texts and all(isinstance(each, str) for each in texts):
        profile.declared = tuple(dict.fromkeys(texts))
        profile.kinds.setdefault(Kind.STRING, 0)
        if None in (values or ()):
            profile.kinds.setdefault(Kind.NULL, 0)
    given = schema.get("bsonType", schema.get("type", ()))
    names = [given] if isinstance(given, str) else given
    for name in names if isinstance(names, list) else ():
        kind = _KINDS.get(name) if isinstance(name, str) else None
        if kind is Kind.OBJECT and Kind.POINT in profile.kinds:
            # All values are points, which are objects.
            continue
        if kind is not None:
            profile.kinds.setdefault(kind, 0)
        elif alone:
            profile.kinds.setdefault(Kind.BINARY if name == "binData" else Kind.OTHER, 0)
    if alone and not profile.kinds:
        profile.kinds.setdefault(Kind.OTHER, 0)
    if Kind.OBJECT in profile.kinds:
        add_json_schema(profile.object_fields(), schema, alone=alone)
        variants = schema.get("variants", {}) if alone else {}
        for text, each in variants.items():
            variant = profile.object_fields().variant(schema["discriminator"], text)
            add_json_schema(variant, each, alone=True)
    items = schema.get("items")
    if Kind.LIST in profile.kinds and isinstance(items, Mapping):
        _add(profile.list_items(), items, alone=alone)
