"""Choice of a field's type from its profile.

The choice fits all observed values. Where they have no common type, it is `JSON`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from revstream.model.compiler.validation.fields import stored_name_problem
from revstream.model.definition import Scalar
from revstream.model.inference.profile import MOST_DAYS, FieldProfile, Kind, ObjectProfile
from revstream.model.inference.union_type import UnionProfile, choose_union

__all__ = ["FieldType", "choose_id", "choose_type", "may_count", "shares"]

# An enum has at most so many values, and each was seen so often on average.
_MOST_VALUES = 12
_LEAST_SEEN = 10
# More different names than this: an object with keys of data, not of a program.
_MOST_FIELDS = 60
# Dates, times and ids in place of names.
_DATA_NAME = re.compile(r"\d[\dTWQZ:/_ -]+|[0-9a-f]{24}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# At least so many different names without a usual one are keys of data.
_LEAST_KEYS = 10
# As many documents with the same number above 1 show that it is not a count of changes.
_LEAST_SAME = 10

# The scalar of each set of kinds that has one; the first that holds all of them is chosen.
_SCALARS: tuple[tuple[Scalar, frozenset[Kind]], ...] = (
    (Scalar.STRING, frozenset({Kind.STRING})),
    (Scalar.INT, frozenset({Kind.INT})),
    (Scalar.LONG, frozenset({Kind.INT, Kind.LONG, Kind.HUGE})),
    (Scalar.FLOAT, frozenset({Kind.INT, Kind.LONG, Kind.FLOAT})),
    (
        Scalar.DECIMAL,
        frozenset({Kind.INT, Kind.LONG, Kind.HUGE, Kind.FLOAT, Kind.NOT_FINITE, Kind.DECIMAL}),
    ),
    (Scalar.BOOLEAN, frozenset({Kind.BOOLEAN})),
    (Scalar.DATE, frozenset({Kind.DAY})),
    (Scalar.DATETIME, frozenset({Kind.DAY, Kind.DATETIME})),
    (Scalar.OBJECTID, frozenset({Kind.OBJECTID})),
    (Scalar.UUID, frozenset({Kind.UUID})),
    (Scalar.BINARY, frozenset({Kind.BINARY})),
    (Scalar.TIMESTAMP, frozenset({Kind.TIMESTAMP})),
    (Scalar.POINT, frozenset({Kind.POINT})),
)


_ID_SCALARS = (Scalar.OBJECTID, Scalar.STRING, Scalar.INT, Scalar.LONG, Scalar.UUID)


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldType:
    """Type of a field.

    Attributes:
        scalar: The scalar, or None for an enum or an embedded type.
        values: Stored texts of an enum, sorted; empty for other types.
        fields: Profile of the embedded type.
        union: Profiles of the embedded types of a union, beside `fields`.
        required: Whether each object had a value.
    """

    scalar: Scalar | None = None
    values: tuple[str, ...] = ()
    fields: ObjectProfile | None = None
    union: UnionProfile | None = None
    required: bool = False
    is_list: bool = False
    item_required: bool = False


def choose_type(profile: FieldProfile, objects: int) -> FieldType | None:
    """Return the type; None if no value but null was observed.

    Args:
        objects: Number of objects that could have had the field.
    """
    kinds = profile.kinds_of_values()
    if not kinds:
        return None
    always = profile.count == objects and not profile.rarely_missing
    required = always and Kind.NULL not in profile.kinds
    if kinds == {Kind.LIST}:
        items = profile.items
        if items is None or not items.kinds_of_values():
            # Empty lists say nothing about their items.
            return FieldType(scalar=Scalar.JSON, required=required)
        one = _single(items)
        if one.scalar is Scalar.JSON:
            return FieldType(scalar=Scalar.JSON, required=required)
        if one.scalar is Scalar.POINT:
            # A model has no lists of points.
            one = FieldType(fields=items.fields)
        return FieldType(
            scalar=one.scalar,
            values=one.values,
            fields=one.fields,
            union=one.union,
            required=required,
            is_list=True,
            item_required=Kind.NULL not in items.kinds,
        )
    one = _single(profile)
    return replace(one, required=required)


def choose_id(profile: FieldProfile | None) -> Scalar:
    """Return the type of the ids of a collection; `ID`, which shows all kinds as text, if they have
    no common one.
    """
    kinds = profile.kinds if profile else {}
    holds = {scalar: kinds for scalar, kinds in _SCALARS if scalar in _ID_SCALARS}
    fits = (each for each in _ID_SCALARS if kinds and kinds.keys() <= holds[each])
    return next(fits, Scalar.ID)


def may_count(profile: FieldProfile, documents: int) -> bool:
    """Return whether the numbers in a field may count the changes of documents.

    All documents have one. Where it is the same in all, none has changed: it is 0 or 1.
    """
    same = documents >= _LEAST_SAME and len(profile.numbers) == 1
    return (
        profile.count == documents
        and not profile.rarely_missing
        and profile.kinds_of_values() <= {Kind.INT, Kind.LONG}
        and Kind.NULL not in profile.kinds
        and not (same and max(profile.numbers) > 1)
    )


def shares(profile: FieldProfile, objects: int) -> str | None:
    """Return the shares of kinds as text, such as `98 % string, 2 % missing`; None if all values
    are of one kind, or none was observed.
    """
    if not objects:
        return None
    counts = {kind.value: count for kind, count in profile.kinds.items()}
    if objects > profile.count or profile.rarely_missing:
        counts["missing"] = objects - profile.count
    if len(counts) < 2:
        return None
    ordered = sorted(counts.items(), key=lambda each: -each[1])
    return ", ".join(f"{_percent(count, objects)} {kind}" for kind, count in ordered)


def _percent(count: int, objects: int) -> str:
    share = 100 * count / objects
    return f"{share:.0f} %" if share >= 1 else "< 1 %"


def _single(profile: FieldProfile) -> FieldType:
    """Return the type of a single value, never of a list."""
    kinds = profile.kinds_of_values()
    if (
        Kind.OBJECT in kinds <= {Kind.OBJECT, Kind.POINT}
        and profile.fields is not None
        and _is_type(profile.fields)
    ):
        return FieldType(fields=profile.fields, union=choose_union(profile.fields))
    if kinds == {Kind.STRING} and _is_enum(profile):
        return FieldType(values=profile.declared or tuple(sorted(profile.texts or ())))
    if kinds == {Kind.DATETIME} and profile.days is not None and len(profile.days) >= MOST_DAYS:
        return FieldType(scalar=Scalar.DATE)
    for scalar, holds in _SCALARS:
        if kinds <= holds:
            return FieldType(scalar=scalar)
    return FieldType(scalar=Scalar.JSON)


def _is_type(fields: ObjectProfile) -> bool:
    """Return whether objects have the fields of a program, and at least one that can be queried."""
    if not 0 < len(fields.fields) <= _MOST_FIELDS:
        return False
    names = fields.fields
    if any(stored_name_problem(each) or _DATA_NAME.fullmatch(each) for each in names):
        return False
    if _is_map(fields):
        return False
    return any(choose_type(each, fields.count) for each in fields.fields.values())


def _is_map(fields: ObjectProfile) -> bool:
    """Return whether the names are data: many of them, none usual, and all with equal types."""
    if len(fields.fields) < _LEAST_KEYS:
        return False
    usual = any(2 * each.count > fields.count for each in fields.fields.values())
    kinds = {each.kinds_of_values() for each in fields.fields.values()}
    return not usual and len(kinds) == 1


def _is_enum(profile: FieldProfile) -> bool:
    texts = profile.texts
    if profile.declared:
        known = set(profile.declared)
        return texts is not None and texts.keys() <= known and all(map(_is_word, known))
    if not texts or len(texts) > _MOST_VALUES:
        return False
    values = sum(texts.values())
    return values >= _LEAST_SEEN * len(texts) and len(texts) > 1 and all(map(_is_word, texts))


def _is_word(text: str) -> bool:
    """Return whether a text can be an enum's value: a word of letters, not a number."""
    return text[:1].isalpha() and text.isascii() and any(each.isalnum() for each in text)
