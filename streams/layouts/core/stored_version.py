"""Versions as a layout stores them, and the document write that a change event means."""

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
"""Number above that of any version."""


class ConcurrentWrite(Exception):
    """Another write was faster than the compared one; nothing was written that counts."""


class VersionTooLarge(Exception):
    """The version does not fit beside the earlier ones; the message has the sizes."""


@dataclass(frozen=True, slots=True)
class LayoutFieldNames:
    """Names of a layout's fields; `number` is the field with a version's number."""

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

    Attributes:
        number: Its number; None for a removal that left no version of its own.
        content: The document at that version, with its number and `_change`, without the layout's
            own
            fields; None for a deletion.
        change: The `_change` of a deletion.
        wall: When it was written, where the layout stores it.
    """

    key: Any
    number: int | None
    content: RawBSONDocument | None
    change: Any = None
    wall: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalWrite:
    """The write of a document that a change event means.

    Attributes:
        version: None where the event does not contain it: look up the one with `number`.
        before: The previous version, as far as the event contains it.
        asks_before: Whether the previous version has to be looked up.
        existed: Whether the document existed before; None where the event does not reveal it.
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
    """Return a document as the API shows it: `_id`, its number, and the document's own fields.

    Args:
        body: The stored fields.
        key: Element whose value is its `_id`.
        own: Names of the layout's own fields, which are left out.
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
    """Return a version's number as applications write it; integral doubles count."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def encode_element(name: str, value: Any) -> bytes:
    """Return a field as a BSON element."""
    return bson.encode({name: value}, codec_options=DECODED)[4:-1]


def decode_element(field: bytes) -> Any:
    """Return the decoded value of an element."""
    (value,) = decode(document_from_elements([field])).values()
    return value


def version_number(value: Any, field: bytes) -> int | None:
    """Return a version's number; None if it is no valid version.

    Invalid are numbers below 0, and documents with an invalid or inexact id (see `valid_id_query`).

    Args:
        field: Element with the document's id.
    """
    number = whole_number(value)
    return number if number is not None and number >= 0 and is_exact_id(field) else None


def is_exact_id(field: bytes) -> bool:
    """Return whether the value of an element is a valid, exact id (see `valid_id_query`)."""
    if field[0] in _NO_ID:
        return False
    key = decode_element(field)
    if isinstance(key, Mapping) and any(name.startswith("$") for name in key):
        return False
    return holds_exactly(field, key)


def valid_id_query(path: str) -> Document:
    """Return a query for documents in which `path` holds a valid `_id`.

    Other values would act as operators in queries by id.
    """
    value = f"${path}"
    odd_name = {"$eq": [{"$indexOfBytes": ["$$name.k", {"$literal": "$"}, 0, 1]}, 0]}
    names = {"$filter": {"input": {"$objectToArray": value}, "as": "name", "cond": odd_name}}
    odd = {"$and": [{"$eq": [{"$type": value}, "object"]}, {"$ne": [names, []]}]}
    of_odd_type = {"$in": [{"$type": value}, ["array", "regex", "undefined"]]}
    return {"$expr": {"$not": [{"$or": [of_odd_type, odd]}]}}


def written_time(content: Mapping[str, Any], at: str | None) -> datetime | None:
    """Return when a version was written, where one of its fields holds that."""
    value = None if at is None else content.get(at)
    return value if isinstance(value, datetime) else None
