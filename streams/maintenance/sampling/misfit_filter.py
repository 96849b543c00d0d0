"""Filter for documents that do not fit the types which a profile has led to.

Guarantees: a document that the filter does not find fits, except for binary data of other subtypes,
which MongoDB's queries do not tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from revstream.model.compiler.validation.fields import KEPT_BESIDE, stored_name_problem
from revstream.model.definition import Scalar
from revstream.model.inference.field_type import FieldType, choose_id, choose_type
from revstream.model.inference.profile import ObjectProfile
from revstream.model.inference.union_type import UnionProfile, choose_interface

__all__ = ["misfit_filter"]

Condition = dict[str, Any]

# MongoDB's types of the values that fit a scalar.
_TYPES: Mapping[Scalar, tuple[str, ...]] = {
    Scalar.STRING: ("string",),
    Scalar.INT: ("int",),
    Scalar.LONG: ("int", "long"),
    Scalar.FLOAT: ("int", "long", "double"),
    Scalar.DECIMAL: ("int", "long", "double", "decimal"),
    Scalar.BOOLEAN: ("bool",),
    Scalar.DATETIME: ("date",),
    Scalar.DATE: ("date",),
    Scalar.OBJECTID: ("objectId",),
    Scalar.UUID: ("binData",),
    Scalar.BINARY: ("binData",),
    Scalar.TIMESTAMP: ("timestamp",),
}
_EXACT = 2**53
_DAY_MS = 86_400_000


def misfit_filter(profile: ObjectProfile) -> Condition | None:
    """Return the filter; None if all documents fit."""
    interface = choose_interface(profile)
    of_fields = _of_object(profile) if interface is None else _of_interface(interface)
    conditions = [*_of_id(profile), *of_fields]
    return {"$or": conditions} if conditions else None


def _of_id(profile: ObjectProfile) -> Iterator[Condition]:
    scalar = choose_id(profile.fields.get("_id"))
    if scalar is not Scalar.ID:
        yield {"_id": {"$not": {"$type": [*_TYPES[scalar]]}}}


def _of_object(profile: ObjectProfile) -> Iterator[Condition]:
    for name, each in profile.fields.items():
        if name in KEPT_BESIDE or name == "_id" or stored_name_problem(name):
            continue
        chosen = choose_type(each, profile.count)
        if chosen is None:
            continue
        if chosen.is_list:
            yield from _of_list(name, chosen)
        else:
            yield from _of_value(name, chosen)


def _of_value(name: str, chosen: FieldType) -> Iterator[Condition]:
    if chosen.scalar is Scalar.JSON:
        if chosen.required:
            # Equality with null would also find lists that hold one.
            yield {name: {"$exists": False}}
            yield {"$and": [{name: None}, {name: {"$not": {"$type": "array"}}}]}
        return
    if chosen.scalar is Scalar.POINT:
        yield {"$nor": [_point(name)], **({} if chosen.required else {name: {"$ne": None}})}
        return
    for each in _not_of(chosen, nullable=not chosen.required):
        # `$exists`: comparisons find missing fields, too.
        yield {name: each if chosen.required else {"$exists": True, **each}}
    if chosen.scalar is Scalar.DATE:
        yield {"$expr": _has_time(f"${name}")}
    # Comparisons look into lists.
    yield {name: {"$type": "array"}}
    if chosen.fields is not None:
        inner = [*_prefixed(name, _of_type(chosen))]
        if inner:
            yield {"$and": [{name: {"$type": "object"}}, {"$or": inner}]}


def _point(name: str) -> Condition:
    return {
        name: {"$geoWithin": {"$centerSphere": [[0, 0], math.tau]}},
        f"{name}.type": "Point",
        f"{name}.crs": {"$exists": False},
        f"{name}.coordinates": {
            "$size": 2,
            "$not": {"$elemMatch": {"$not": {"$type": ["int", "long", "double"]}}},
        },
    }


def _of_list(name: str, chosen: FieldType) -> Iterator[Condition]:
    other: Condition = {"$not": {"$type": "array"}}
    yield {name: other if chosen.required else {"$exists": True, **other, "$ne": None}}
    for each in _not_of(chosen, nullable=not chosen.item_required):
        yield {name: {"$elemMatch": each}}
    yield {name: {"$elemMatch": {"$type": "array"}}}
    if chosen.fields is not None:
        inner = [*_of_type(chosen)]
        if inner:
            yield {name: {"$elemMatch": {"$or": inner}}}


def _of_type(chosen: FieldType) -> Iterator[Condition]:
    """Yield conditions for an embedded document that does not fit its type, or its union."""
    if chosen.union is None:
        yield from _of_object(chosen.fields or ObjectProfile())
        return
    yield from _of_members(chosen.union)


def _of_interface(interface: UnionProfile) -> Iterator[Condition]:
    """Yield conditions for a document that fits no type of an interface.

    It does not fit its type either if it has a field that only other types have.
    """
    yield from _of_object(interface.shared)
    yield from _of_members(interface)
    names = set().union(*(each.fields for each in interface.members.values()))
    for text, member in interface.members.items():
        other = [{name: {"$exists": True}} for name in sorted(names - member.fields.keys())]
        if other:
            yield {"$and": [{interface.discriminator: text}, {"$or": other}]}


def _of_members(union: UnionProfile) -> Iterator[Condition]:
    name = union.discriminator
    yield {name: {"$nin": [*union.members]}}
    # Equality looks into lists.
    yield {name: {"$type": "array"}}
    for text, member in union.members.items():
        inner = [*_of_object(member)]
        if inner:
            yield {"$and": [{name: text}, {"$or": inner}]}


def _not_of(chosen: FieldType, *, nullable: bool) -> Iterator[Condition]:
    """Yield conditions for a value that is not of the type."""
    if chosen.values:
        yield {"$nin": [*chosen.values, *([None] if nullable else [])]}
        return
    types = ("object",) if chosen.scalar is None else _TYPES[chosen.scalar]
    yield {"$not": {"$type": [*types, *(["null"] if nullable else [])]}}
    if chosen.scalar is Scalar.FLOAT:
        yield {"$in": [float("nan"), float("inf"), float("-inf")]}
        yield {"$type": "long", "$gt": _EXACT}
        yield {"$type": "long", "$lt": -_EXACT}


def _prefixed(name: str, conditions: Iterator[Condition]) -> Iterator[Condition]:
    for each in conditions:
        yield _with_prefix(name, each)


def _with_prefix(prefix: str, condition: Condition) -> Condition:
    return {
        key if key.startswith("$") else f"{prefix}.{key}": (
            [_with_prefix(prefix, each) for each in value]
            if key in ("$or", "$and", "$nor")
            else _path_with_prefix(prefix, value)
            if key == "$expr"
            else value
        )
        for key, value in condition.items()
    }


def _path_with_prefix(prefix: str, expression: Any) -> Any:
    """Return an expression whose paths begin in the object at a prefix."""
    if isinstance(expression, str):
        path = expression.removeprefix("$")
        return expression if path == expression else f"${prefix}.{path}"
    if isinstance(expression, dict):
        return {key: _path_with_prefix(prefix, each) for key, each in expression.items()}
    if isinstance(expression, list):
        return [_path_with_prefix(prefix, each) for each in expression]
    return expression


def _has_time(path: str) -> Condition:
    """Return an expression: the value is a date, and not midnight in UTC."""
    time = {"$mod": [{"$toLong": path}, _DAY_MS]}
    return {"$cond": [{"$eq": [{"$type": path}, "date"]}, {"$ne": [time, 0]}, False]}
