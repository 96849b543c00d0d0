"""Validator and indexes of a migrated collection, applied to the new one.

Documents of the new collection have no fields of the old layout.

Guarantees: rules that are not applied are reported, with the reason; no rule is set that current
documents violate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bson import json_util

from revstream.streams.core.errors import GatewayError
from revstream.streams.layouts.self_versioned.engine import SelfVersionedLayout
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["CarriedRules", "CollectionRules", "carry_over", "read_rules"]

_VALIDATION = ("validator", "validationLevel", "validationAction")
# Fields of `listIndexes` that are no options.
_NOT_OPTIONS = ("key", "v", "ns", "background")
_LOGICAL = ("$and", "$or", "$nor")
# Options that name fields.
_WITH_FIELDS_INSIDE = ("weights", "wildcardProjection")


@dataclass(frozen=True, slots=True)
class CollectionRules:
    """Rules of one collection.

    Attributes:
        validation: Validator, level and action as in `collMod`; empty if it has none.
        indexes: As in `listIndexes`, without the `_id` index.
    """

    validation: Document = field(default_factory=dict)
    indexes: Sequence[Document] = ()


@dataclass
class CarriedRules:
    """Report of the rules that were applied, and of the others with the reason of each."""

    carried: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


async def read_rules(mongo: Mongo, collection: str) -> CollectionRules:
    """Read the rules of a collection."""
    listed = await mongo.command(
        {"listCollections": 1, "filter": {"name": collection}, "cursor": {}}
    )
    found = listed["cursor"]["firstBatch"]
    if not found:
        return CollectionRules()
    options = found[0].get("options", {})
    indexes = await mongo.indexes(collection)
    return CollectionRules(
        {name: options[name] for name in _VALIDATION if name in options},
        [dict(each) for each in indexes if each["key"] != {"_id": 1}],
    )


async def carry_over(
    mongo: Mongo, rules: CollectionRules, layout: SelfVersionedLayout, to: str
) -> CarriedRules:
    """Apply the rules of the old collection to a new one.

    Args:
        rules: Rules of the old collection, before it was sealed.
        layout: Layout of the old collection.
        to: Name of the new collection.
    """
    done = CarriedRules()
    for index in rules.indexes:
        await _carry_index(mongo, index, layout, to, done)
    if rules.validation.get("validator"):
        await _carry_validator(mongo, rules.validation, layout, to, done)
    return done


async def _carry_index(
    mongo: Mongo, index: Document, layout: SelfVersionedLayout, to: str, done: CarriedRules
) -> None:
    name = f"index {index['name']}"
    if "expireAfterSeconds" in index:
        # There it deleted old versions; here it would delete documents.
        done.left.append(f"{name}: would delete documents (expireAfterSeconds)")
        return
    own = _own_fields(layout)
    keys = [(_shown(path, layout), kind) for path, kind in index["key"].items() if path not in own]
    if not keys or [path for path, _ in keys] == ["_id"] or _is_the_layouts(index, layout):
        done.left.append(f"{name}: belongs to the old layout")
        return
    options = {name: value for name, value in index.items() if name not in _NOT_OPTIONS}
    if any(each in options for each in _WITH_FIELDS_INSIDE):
        done.left.append(f"{name}: a text or wildcard index; create it on {to} by hand")
        return
    if len(keys) < len(index["key"]) and options.pop("unique", False):
        done.carried.append(f"{name}: no longer unique, since it was unique with {sorted(own)}")
    if options["name"] == _usual_name(index["key"]):
        # Otherwise it would conflict with an index of that name from the model.
        options["name"] = _usual_name(dict(keys))
    partial = _renamed(options.pop("partialFilterExpression", {}), layout)
    if partial:
        options["partialFilterExpression"] = partial
    try:
        await mongo.create_index(to, keys, **options)
    except GatewayError as exc:
        done.left.append(f"{name}: {exc.message}")
    else:
        done.carried.append(f"{name}: {json_util.dumps(dict(keys))}")


async def _carry_validator(
    mongo: Mongo, validation: Document, layout: SelfVersionedLayout, to: str, done: CarriedRules
) -> None:
    validator = _renamed(validation["validator"], layout)
    if not validator:
        done.left.append("validator: it has only fields of the old layout")
        return
    try:
        refused = await mongo.count(to, {"$nor": [validator]})
        if refused:
            done.left.append(
                f"validator: it refuses {refused:,} current documents: {json_util.dumps(validator)}"
            )
            return
        await mongo.command({"collMod": to, **validation, "validator": validator})
    except GatewayError as exc:
        done.left.append(f"validator: {exc.message}")
    else:
        done.carried.append(f"validator: {json_util.dumps(validator)}")


def _usual_name(keys: Mapping[str, Any]) -> str:
    """Return the name that MongoDB gives to an index."""
    return "_".join(f"{path}_{kind}" for path, kind in keys.items())


def _own_fields(layout: SelfVersionedLayout) -> set[str]:
    """Return the layout's own top-level fields of stored documents."""
    names = layout.names
    return {names.current, names.previous, names.unset, names.whole, names.deleted}


def _shown(path: str, layout: SelfVersionedLayout) -> str:
    """Translate a path in stored documents into one in current documents."""
    first, dot, rest = path.partition(".")
    if first == layout.names.document:
        return f"_id{dot}{rest}"
    return layout.document_path(path)


def _lie_within(layout: SelfVersionedLayout) -> bool:
    """Return whether current documents are stored within a field."""
    return layout.document_path(f"{layout.names.current}.x") == "x"


def _is_the_layouts(index: Document, layout: SelfVersionedLayout) -> bool:
    """Return whether an index is over ids and numbers alone."""
    names = layout.names
    shown = {_shown(path, layout) for path in index["key"]}
    return shown <= {"_id", names.number, *_own_fields(layout)}


def _renamed(query: Mapping[str, Any], layout: SelfVersionedLayout) -> Document:
    """Translate a query over stored documents, without the layout's own fields."""
    own = _own_fields(layout)
    made: Document = {}
    for name, value in query.items():
        if name in _LOGICAL:
            parts = [each for one in value if (each := _renamed(one, layout))]
            if parts:
                made[name] = parts
        elif name == "$jsonSchema":
            schema = _schema(value, layout)
            if schema:
                made[name] = schema
        elif name.startswith("$"):
            made[name] = value
        elif name.partition(".")[0] not in own or layout.document_path(name) != name:
            made[_shown(name, layout)] = value
    return made


def _schema(schema: Mapping[str, Any], layout: SelfVersionedLayout) -> Document:
    """Translate a JSON schema of stored documents."""
    own = _own_fields(layout)
    properties: Document = dict(schema.get("properties") or {})
    inner = properties.get(layout.names.current)
    if _lie_within(layout):
        # The schema of that field is that of the documents.
        return dict(inner) if isinstance(inner, Mapping) else {}
    made = dict(schema)
    if properties:
        made["properties"] = {
            _shown(name, layout): value for name, value in properties.items() if name not in own
        }
    if "required" in schema:
        made["required"] = [_shown(each, layout) for each in schema["required"] if each not in own]
        if not made["required"]:
            del made["required"]
    return made
