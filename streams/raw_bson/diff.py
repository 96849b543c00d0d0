"""Strict differences between two states of a document: 1, 1.0 and true are three values.

Works on decoded documents and on raw BSON alike; equal raw subdocuments are not decoded. Objects
are compared field by field in any order, all other values (lists included) as one value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from math import isnan
from typing import Any

from bson import Code, ObjectId
from bson.raw_bson import RawBSONDocument

from revstream.streams.mongo.driver.codecs import RAW
from revstream.streams.raw_bson.fields import document_from_elements, find_changed_elements

__all__ = [
    "OBJECTS",
    "PLAIN",
    "Difference",
    "DifferenceKind",
    "find_differences",
    "find_differing_paths",
    "is_same",
]

Path = tuple[str, ...]


class DifferenceKind(Enum):
    """Kind of a difference."""

    ADDED = "ADDED"
    REMOVED = "REMOVED"
    CHANGED = "CHANGED"


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs between two states.

    Attributes:
        path: Stored field names from the top level; a name may contain dots.
    """

    path: Path
    kind: DifferenceKind
    before: Any
    after: Any

    @property
    def dotted(self) -> str:
        """Return the path as dotted text."""
        return ".".join(self.path)


def find_differences(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Iterator[Difference]:
    """Yield differences in the order of `after`, then removed fields; a subtree counts as one."""
    for each in _between(before or {}, after or {}, ()):
        yield Difference(*each)


def find_differing_paths(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the paths of the differences without decoding equal fields: the recorder calls it per
    version.
    """
    fields = None
    if isinstance(before, RawBSONDocument) and isinstance(after, RawBSONDocument):
        # An update leaves most fields unchanged and in place: none of those is decoded.
        fields = find_changed_elements(bytes(before.raw), bytes(after.raw))
    if fields is None:
        for path, _, _, _ in _between(before, after, ()):
            yield path
        return
    for (name, was), (_, is_) in fields:
        kind = is_[0]
        if was[0] != kind or kind not in _COMPARED:
            for path, _, _, _ in _between(_only(was), _only(is_), ()):
                yield path
        elif kind in _BYTEWISE or not _same_plain(_read(name, was), _read(name, is_)):
            yield (name.decode(errors="replace"),)


def _read(name: bytes, element: bytes) -> float | str:
    """Return the value of a double or a string."""
    value = element[len(name) + 2 :]
    if element[0] == _DOUBLE:
        number: float = _NUMBER.unpack(value)[0]
        return number
    return value[4:-1].decode(errors="replace")


def _only(element: bytes) -> RawBSONDocument:
    return RawBSONDocument(document_from_elements([element]), RAW)


def _between(
    before: Mapping[str, Any], after: Mapping[str, Any], path: Path
) -> Iterator[tuple[Path, DifferenceKind, Any, Any]]:
    # Plain dicts: each access to a raw document costs several Python calls.
    old_fields = dict(before.items())
    new_fields = dict(after.items())
    for name, new in new_fields.items():
        if name not in old_fields:
            yield (*path, name), DifferenceKind.ADDED, None, new
            continue
        old = old_fields[name]
        # The usual case. Lists and dicts treat 1 and true as equal.
        kind = type(new)
        if kind is type(old) and kind is not list and kind is not dict and new == old:
            continue
        if kind not in PLAIN and isinstance(old, OBJECTS) and isinstance(new, OBJECTS):
            if not _same_bytes(old, new):
                yield from _between(old, new, (*path, name))
        elif not is_same(old, new):
            yield (*path, name), DifferenceKind.CHANGED, old, new
    if not old_fields.keys() <= new_fields.keys():
        for name, old in old_fields.items():
            if name not in new_fields:
                yield (*path, name), DifferenceKind.REMOVED, old, None


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values have equal type and content; integer width and field order are
    ignored.
    """
    if one.__class__ in PLAIN:
        return _same_plain(one, other)
    if isinstance(one, OBJECTS) and isinstance(other, OBJECTS):
        return _same_bytes(one, other) or (
            len(one) == len(other)
            and all(name in other and is_same(value, other[name]) for name, value in one.items())
        )
    if isinstance(one, list) and isinstance(other, list):
        kinds = list(map(type, one))
        if one == other and PLAIN.issuperset(kinds) and kinds == list(map(type, other)):
            # The usual case, in half the time.
            return True
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, Code) and isinstance(other, Code):
        # The scope is a document, decoded or raw like its parent.
        return str(one) == str(other) and is_same(one.scope, other.scope)
    return _same_plain(one, other)


def _same_plain(one: Any, other: Any) -> bool:
    if type(one) is not type(other) and not (_is_integer(one) and _is_integer(other)):
        return False
    # NaN equals NaN here: nothing has changed. 0.0 and -0.0 count as equal.
    return bool(one == other) or (isinstance(one, float) and isnan(one) and isnan(other))


# Concrete types: checking for a Mapping costs more than the comparison.
OBJECTS = (dict, RawBSONDocument)
# BSON types whose equal values have equal bytes: ObjectId, boolean, date, integers, timestamp.
_BYTEWISE = frozenset({0x07, 0x08, 0x09, 0x10, 0x11, 0x12})
_DOUBLE, _STRING = 0x01, 0x02
_COMPARED = _BYTEWISE | {_DOUBLE, _STRING}
_NUMBER = struct.Struct("<d")
PLAIN = frozenset({str, int, float, bool, datetime, ObjectId, type(None)})
"""Types that are neither object nor list: an isinstance check takes longer than the comparison."""


def _is_integer(value: Any) -> bool:
    # Int64 is an int with a width.
    return isinstance(value, int) and not isinstance(value, bool)


def _same_bytes(one: Any, other: Any) -> bool:
    return (
        isinstance(one, RawBSONDocument)
        and isinstance(other, RawBSONDocument)
        and one.raw == other.raw
    )
