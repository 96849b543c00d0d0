"""A version as a layout keeps it, and what a change event means to a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import holds_exactly
from revstream.streams.mongo.driver.codecs import DECODED, RAW, Document, decode
from revstream.streams.raw_bson.fields import (
    document_from_elements,
    iterate_elements,
    rename_element,
)

__all__ = [
    "ABOVE_ALL",
    "ConcurrentWrite",
    "LayoutFieldNames",
    "LogicalWrite",
    "StoredVersion",
    "VersionTooLarge",
    "decode_element",
    "encode_element",
    "is_exact_id",
    "logical_document",
    "valid_id_query",
    "version_number",
    "whole_number",
    "written_time",
]

# Array, undefined, regular expression.
_NO_ID = frozenset({0x04, 0x06, 0x0B})
ABOVE_ALL = 2**63 - 1
"""Above the number of any version."""


class ConcurrentWrite(Exception):
    """Another write was faster than the one that compared; nothing was written that counts."""


class VersionTooLarge(Exception):
    """The version does not fit beside those before it; the message says by how much."""


@dataclass(frozen=True, slots=True)
class LayoutFieldNames:
    """What the fields of a layout are called; `number`: the one with a version's number."""

    document: str
    number: str
    current: str
    previous: str
    unset: str
    whole: str
    deleted: str
    at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVersion:
    """A version of the document `key`.

    `number`: its own; None for the removal of a document that left no version which says so.
    `content`: the document as it was then, with its number and its `_change` and without what is
    the layout's own; None for a deletion, of which `change` is the `_change`. `wall`: when it was
    written, where the layout says so.
    """

    key: Any
    number: int | None
    content: RawBSONDocument | None
    change: Any = None
    wall: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalWrite:
    """The write of a document that a change event means.

    `version`: None where the event does not carry it: the one with `number` is to be looked up.
    `before`: the one before it, as far as the event tells; `asks_before` where it does not.
    `existed`: whether there was a document before, where the event says so; None else.
    """

    key: Any
    number: int | None
    version: StoredVersion | None
    before: StoredVersion | None = None
    asks_before: bool = True
    existed: bool | None = None


def logical_document(
    body: RawBSONDocument, key: bytes, number: str, own: frozenset[bytes]
) -> RawBSONDocument:
    """A document as it is shown: `_id`, its number, and the fields that are the document's own.

    Args:
        body: where its fields stand.
        key: the element whose value is its `_id`.
        own: names of the layout's own fields, to be left out.
    """
    first, rest = [rename_element(key, "_id")], []
    wanted = number.encode()
    for name, element in iterate_elements(bytes(body.raw)):
        if name == wanted:
            first.append(element)
        elif name != b"_id" and name not in own:
            rest.append(element)
    return RawBSONDocument(document_from_elements([*first, *rest]), RAW)


def whole_number(value: Any) -> int | None:
    """A version's number as programs write it: integral doubles count."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def encode_element(name: str, value: Any) -> bytes:
    """A field, as BSON has it."""
    return bson.encode({name: value}, codec_options=DECODED)[4:-1]


def decode_element(field: bytes) -> Any:
    """The value of a field, decoded."""
    (value,) = decode(document_from_elements([field])).values()
    return value


def version_number(value: Any, field: bytes) -> int | None:
    """A version's number, None of what is no version: below 0, or of a document whose id is none
    (see `valid_id_query`), or not exact.

    Args:
        field: the element with the document's id.
    """
    number = whole_number(value)
    return number if number is not None and number >= 0 and is_exact_id(field) else None


def is_exact_id(field: bytes) -> bool:
    """Return whether the value of an element is an id that is exact (see `valid_id_query`)."""
    if field[0] in _NO_ID:
        return False
    key = decode_element(field)
    if isinstance(key, Mapping) and any(name.startswith("$") for name in key):
        return False
    return holds_exactly(field, key)


def valid_id_query(path: str) -> Document:
    """A query for documents in which `path` is an id that could be an `_id`; others are
    operators where documents are looked for by them."""
    value = f"${path}"
    odd_name = {"$eq": [{"$indexOfBytes": ["$$name.k", {"$literal": "$"}, 0, 1]}, 0]}
    names = {"$filter": {"input": {"$objectToArray": value}, "as": "name", "cond": odd_name}}
    odd = {"$and": [{"$eq": [{"$type": value}, "object"]}, {"$ne": [names, []]}]}
    of_odd_type = {"$in": [{"$type": value}, ["array", "regex", "undefined"]]}
    return {"$expr": {"$not": [{"$or": [of_odd_type, odd]}]}}


def written_time(content: Mapping[str, Any], at: str | None) -> datetime | None:
    """When it was written, where a field of it says so."""
    value = None if at is None else content.get(at)
    return value if isinstance(value, datetime) else None
