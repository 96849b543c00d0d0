"""Patches between two states of a document, stored in place of the later state.

A patch is `{set, unset, inside, splice}`: changed or new fields, names of removed fields, changed
objects (a patch each), and lists whose start and end stayed (`[length of the start, length of the
end, items between]`). An empty kind is left out.

Guarantees: values with equal bytes keep their bytes.
Does not guarantee: that a patch recreates the state, since it has no field order. Code that stores
a patch applies it first and compares (`streams.versioning.content_encoding`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from revstream.streams.mongo.driver.codecs import DECODED, RAW, Document

__all__ = ["apply_patch", "create_patch"]


def create_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> Document:
    """Create the patch from one raw state to another."""
    old, new = dict(before.items()), dict(after.items())
    patch: dict[str, dict[str, Any]] = {"set": {}, "inside": {}, "splice": {}}
    for name, value in new.items():
        earlier = old.get(name)
        if name not in old:
            patch["set"][name] = value
        elif isinstance(value, RawBSONDocument) and isinstance(earlier, RawBSONDocument):
            if value.raw != earlier.raw:
                patch["inside"][name] = create_patch(earlier, value)
        elif not _equal(earlier, value):
            if isinstance(value, list) and isinstance(earlier, list):
                patch["splice"][name] = _splice(earlier, value)
            else:
                patch["set"][name] = value
    made: Document = {kind: changes for kind, changes in patch.items() if changes}
    gone = [name for name in old if name not in new]
    if gone:
        made["unset"] = gone
    return made


def apply_patch(before: RawBSONDocument, patch: Mapping[str, Any]) -> RawBSONDocument:
    """Return the next state.

    Raises:
        KeyError, TypeError: The patch belongs to another state.
    """
    return RawBSONDocument(bson.encode(_apply(before, patch), codec_options=DECODED), RAW)


def _apply(before: Mapping[str, Any], patch: Mapping[str, Any]) -> Document:
    made = dict(before.items())
    for name in patch.get("unset", ()):
        del made[name]
    for name, inner in patch.get("inside", {}).items():
        made[name] = _apply(made[name], inner)
    for name, (beginning, end, items) in patch.get("splice", {}).items():
        old = made[name]
        made[name] = [*old[:beginning], *items, *old[len(old) - end :]]
    made.update(patch.get("set", {}))
    return made


def _splice(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    shorter = min(len(before), len(after))
    beginning = 0
    while beginning < shorter and _equal(before[beginning], after[beginning]):
        beginning += 1
    end = 0
    while end < shorter - beginning and _equal(before[-1 - end], after[-1 - end]):
        end += 1
    return [beginning, end, list(after[beginning : len(after) - end])]


def _equal(one: Any, other: Any) -> bool:
    """Compare byte for byte: neither width nor sign of a number may change unnoticed."""
    if isinstance(one, RawBSONDocument) and isinstance(other, RawBSONDocument):
        return bool(one.raw == other.raw)
    if type(one) is not type(other):
        return False
    if isinstance(one, str | bool | bytes):
        return bool(one == other)
    if isinstance(one, list) and len(one) != len(other):
        return False
    return _encoded(one) == _encoded(other)


def _encoded(value: Any) -> bytes:
    return bson.encode({"": value}, codec_options=DECODED)
