"""Facts of a collection's `$jsonSchema` validator, added to its profile.

It names fields that no document of a sample has, and all values of an enum.
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
    "timestamp": Kind.TIMESTAMP,
    "objectId": Kind.OBJECTID,
    "object": Kind.OBJECT,
    "array": Kind.LIST,
}


def add_json_schema(profile: ObjectProfile, schema: Mapping[str, Any]) -> None:
    """Add the properties of a schema for objects; what is not understood is passed over."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return
    for name, each in properties.items():
        if isinstance(each, Mapping) and name != "_id":
            _add(profile.field_profile(name), each)


def _add(profile: FieldProfile, schema: Mapping[str, Any]) -> None:
    values = schema.get("enum")
    if isinstance(values, list) and values and all(isinstance(each, str) for each in values):
        profile.declared = tuple(dict.fromkeys(values))
        profile.kinds.setdefault(Kind.STRING, 0)
    given = schema.get("bsonType", schema.get("type", ()))
    names = [given] if isinstance(given, str) else given
    for name in names if isinstance(names, list) else ():
        kind = _KINDS.get(name) if isinstance(name, str) else None
        if kind is not None:
            profile.kinds.setdefault(kind, 0)
    if Kind.OBJECT in profile.kinds:
        add_json_schema(profile.object_fields(), schema)
    items = schema.get("items")
    if Kind.LIST in profile.kinds and isinstance(items, Mapping):
        _add(profile.list_items(), items)
