"""Version of a document, built from a change event and the version before. Pure but for BSON.

The number is the document's version field, if that is an integer above the last archived number and
at most `HIGHEST_COUNTER`; otherwise last + 1. A delete and an insert take last + 1, whatever the
document contains: a clone has the counter of another document, a restored document that of its
former life. From there on the counter counts relative to its value at the insert (`offset`).
Numbers may be skipped and never decrease; the same events give the same numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.model.compiler.validation.fields import CHANGE_FIELD, COPIES_FIELD, KEPT_BESIDE
from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.mongo.driver.codecs import RAW, Document
from revstream.streams.raw_bson.diff import find_differing_paths
from revstream.streams.raw_bson.fields import remove_field
from revstream.streams.versioning.attribution import (
    claimed_change,
    declared_operation,
    read_attribution,
    whole_number,
)
from revstream.streams.versioning.truncation_mark import TruncationMark

__all__ = [
    "CHANGE_FIELD",
    "COPIES_FIELD",
    "HIGHEST_COUNTER",
    "RESERVED",
    "LastVersion",
    "Version",
    "archived_operation",
    "carried_number",
    "make_version",
    "next_number",
    "without_reserved",
]

# Stored outside a version's content, and not part of it.
RESERVED = tuple(KEPT_BESIDE)
_RESERVED = tuple(name.encode() + b"\0" for name in RESERVED)
# By the type byte of a BSON element: double, int32, int64.
_NUMBERS = {0x01: struct.Struct("<d"), 0x10: struct.Struct("<i"), 0x12: struct.Struct("<q")}
HIGHEST_COUNTER = 2**30
"""Highest number that is taken from a document.

GraphQL's Int is below 2^31, which leaves room for a thousand million later versions.
"""
_HIGHEST_KEPT = 2**31 - 1
# Maximum number of paths in a record: with all of its paths it could exceed MongoDB's maximum
# document size.
_MOST_PATHS = 10_000
_OPERATIONS = {
    "insert": "INSERT",
    "update": "UPDATE",
    "replace": "REPLACE",
    "delete": "DELETE",
}


# Not frozen: one is created for every record that is read, which would take twice as long.
@dataclass(slots=True, kw_only=True)
class Version:
    """A record of the archive, as readers see it.

    Attributes:
        token: The record's `_id`: the resume token of the write, without the deployment's tag.
        document: The document's `_id`.
        number: Number of the version; it grows from version to version of a document.
        operation: BASELINE, INSERT, UPDATE, REPLACE or DELETE.
        at: Cluster time of the write.
        wall: Time of the server's clock.
        previous: Token of the version before.
        by: Author, if the writer said so.
        why: Reason, if the writer said so.
        restored_from: Number of the version that was restored.
        draft: Number of the draft that was published.
        changed: Stored paths that differ from the version before.
        gap: Something may be missing before this version.
        cut: Mark of deleted versions before it.
        traceparent: Trace of the write (W3C Trace Context).
        copies: The document's `_copies`.
        full: Content; None for a deletion, or where it was not requested.
    """

    token: str
    document: Any
    number: int
    operation: str
    at: Timestamp
    wall: datetime
    previous: str | None = None
    by: str | None = None
    why: str | None = None
    restored_from: int | None = None
    draft: int | None = None
    traceparent: str | None = None
    changed: tuple[str, ...] = ()
    gap: bool = False
    cut: TruncationMark | None = None
    copies: Mapping[str, Any] | None = None
    full: Document | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Version:
        # An `__init__` with so many keywords takes three times as long.
        made, get = cls.__new__(cls), record.get
        made.token = record["_id"]
        made.document = record["doc"]
        made.number = record["v"]
        made.operation = record["op"]
        made.at = record["at"]
        made.wall = record["wall"]
        made.previous = get("prev")
        made.by = get("by")
        made.why = get("why")
        made.restored_from = get("restoredFrom")
        made.draft = get("draft")
        made.traceparent = get("traceparent")
        made.changed = tuple(get("changed", ()))
        made.gap = get("gap", False) or get("spanning", False)
        cut = get("cut")
        made.cut = None if cut is None else TruncationMark.from_record(cut)
        made.copies = get("copies")
        made.full = get("full")
        return made


# Not frozen either: one is created for every version that is recorded.
@dataclass(slots=True, kw_only=True)
class LastVersion:
    """Facts of a document's last version that the next one needs.

    Attributes:
        full: Content; None for a deletion. It has bytes of its own, and no decoded fields.
        change: The document's `_change`. A later write that leaves it unchanged is not attributed
            to
            it, and a delta may change a part of it.
        copies: The document's `_copies`, likewise.
        read_at: Cluster time at which `full` was read, if it is not from an event; it contains all
            events up to then.
        damaged: `full` cannot be read any more, and is empty.
        offset: Difference between the counter with which the document was inserted and its number.
        keyframe, depth, kept: See `streams.versioning.content_encoding`.
    """

    token: str
    number: int
    full: RawBSONDocument | None
    change: Any = None
    copies: Any = None
    read_at: Timestamp | None = None
    offset: int = 0
    keyframe: int | None = None
    depth: int = 0
    kept: int | None = None
    damaged: bool = False
    chain: bytes | None = None

    @classmethod
    def from_record(
        cls, record: Mapping[str, Any], *, damaged: RawBSONDocument | None = None
    ) -> LastVersion:
        """Read a record of the archive.

        Args:
            damaged: Replaces a content that cannot be read.
        """
        return cls(
            token=record["_id"],
            number=record["v"],
            full=record.get("full") if damaged is None else damaged,
            change=record.get("change"),
            copies=record.get("copies"),
            read_at=record.get("readAt"),
            offset=record.get("offset", 0),
            keyframe=record.get("keyframe"),
            depth=record.get("depth", 0),
            kept=record.get("kept"),
            damaged=damaged is not None,
            chain=record.get("chain"),
        )

    @property
    def size_bytes(self) -> int:
        return 300 + (0 if self.full is None else len(self.full.raw))


def carried_number(
    document: Mapping[str, Any] | None,
    version_field: str | None,
    highest: int = HIGHEST_COUNTER,
) -> int | None:
    """Return the number in a document's version field, if it is at most `highest`.

    Integral doubles count: JavaScript shells write them.
    """
    if document is None or version_field is None:
        return None
    value = document.get(version_field)
    if value.__class__ is int and 0 < value <= highest:
        return value
    number = whole_number(value)
    return number if number is not None and 0 < number <= highest else None


def next_number(
    last: int,
    document: Mapping[str, Any] | None,
    version_field: str | None,
    kept: int | None = None,
    *,
    offset: int = 0,
    inserted: bool = False,
) -> tuple[int, int]:
    """Return the number and the offset of the next version; the module describes the rules.

    Args:
        kept: For a collection that keeps versions itself, the version's number there.
        offset: Offset of the last version.
        inserted: The write is an insert.
    """
    if kept:
        return max(last + 1, carried_number({"": kept}, "", _HIGHEST_KEPT) or 0), 0
    carried = carried_number(document, version_field)
    if inserted:
        return last + 1, max(0, (carried or 0) - last - 1)
    if carried is None:
        return last + 1, offset
    number = max(last + 1, carried - offset)
    return number, offset if carried > number else 0


def make_version(
    *,
    token: str,
    at: Timestamp,
    wall: datetime,
    key: Any,
    operation: str,
    after: RawBSONDocument | None,
    last: LastVersion | None,
    version_field: str | None,
    event: ChangeEvent | None = None,
    deletion: Mapping[str, Any] | None = None,
    read_at: Timestamp | None = None,
    gap: bool = False,
    kept: int | None = None,
    disowned: bool = False,
    by_copier: bool = False,
    fence_field: str | None = None,
) -> tuple[Document, LastVersion]:
    """Build the record of a write, and the facts that the next version needs.

    Args:
        operation: BASELINE, INSERT, UPDATE, REPLACE, DELETE; an operation that the writer declares
            has
            precedence.
        after: The document after the write, raw; None for a deletion.
        event: The change event, if the version is made from one: it decides about attribution.
        deletion: For an attributed delete, the `_change` that the document would have.
        read_at: Cluster time at which `after` was read, if it is not from an event.
        kept: See `next_number`.
        disowned: The document's `_change` does not belong to this write.
        by_copier: See `read_attribution`.
        fence_field: Field of the fence value: a deletion keeps it.
    """
    number = 0 if last is None else last.number
    offset = 0 if last is None else last.offset
    fields: Mapping[str, Any] = {}
    plain = None if kept else version_field
    if after is not None and (offset or not _is_plain(after.raw, number, plain)):
        # A plain dict: each field access on a raw document costs several Python calls.
        fields = dict(after.items())
    carried = deletion if after is None else fields.get(CHANGE_FIELD)
    sent = None if after is None else fields
    earlier = last.change if last else None
    claimed = claimed_change(event, sent, earlier, deletion) if event else None
    said = {} if claimed is None or disowned else read_attribution(claimed, by_copier=by_copier)
    reserved = any(name in fields for name in RESERVED)
    full = without_reserved(after) if after is not None and reserved else after
    copies = fields.get(COPIES_FIELD)
    inserted = event is not None and event.operation == "insert"
    number, offset = next_number(
        number, fields, version_field, kept, offset=offset, inserted=inserted
    )
    record: Document = {
        "_id": token,
        "doc": key,
        "v": number,
        "op": (event and declared_operation(event, claimed)) or operation,
        "at": at,
        "wall": wall,
        "prev": None if last is None else last.token,
        "by": said.get("by"),
        "why": said.get("why"),
        "changed": changed_paths(last.full if last is not None else None, full, version_field),
    }
    for name in ("restoredFrom", "draft", "traceparent"):
        if said.get(name) is not None:
            record[name] = said[name]
    if last is None:
        record["first"] = True
    if carried is not None:
        record["change"] = carried
    if copies is not None:
        record["copies"] = copies
    if offset:
        record["offset"] = offset
    if after is None and fence_field and last is not None and last.full is not None:
        fence = last.full.get(fence_field)
        if fence is not None:
            record["fence"] = fence
    if read_at is not None:
        record["readAt"] = read_at
    if gap:
        record["gap"] = True
    record["full"] = full
    made = LastVersion(
        token=token,
        number=number,
        full=None if full is None else RawBSONDocument(bytes(full.raw), RAW),
        change=carried,
        copies=copies,
        read_at=read_at,
        offset=offset,
    )
    return record, made


def _is_plain(raw: bytes | memoryview, last: int, version_field: str | None) -> bool:
    """Return whether a document's bytes contain no reserved field and no number above the next one.

    Decoding a document of 2.5 KB to find out takes 7 µs. The search ignores structure; a match
    anywhere only leads to the exact check.
    """
    raw = bytes(raw)
    for name in _RESERVED:
        if name in raw:
            return False
    if version_field is None:
        return True
    name = version_field.encode() + b"\0"
    place = raw.find(name)
    if place < 0:
        return True
    value = place + len(name)
    if raw.find(name, value) >= 0:
        return False
    number = _NUMBERS.get(raw[place - 1])
    return number is None or (
        len(raw) - value >= number.size and number.unpack_from(raw, value)[0] <= last + 1
    )


def archived_operation(event: ChangeEvent) -> str:
    return _OPERATIONS[event.operation]


def without_reserved(document: RawBSONDocument) -> RawBSONDocument:
    for name in RESERVED:
        if name in document:
            document = RawBSONDocument(remove_field(bytes(document.raw), name), RAW)
    return document


def changed_paths(
    before: RawBSONDocument | None,
    after: RawBSONDocument | None,
    version_field: str | None,
) -> list[str]:
    """Return the changed paths, dotted, as stored; at most 10,000, else only their top-level
    fields.

    For a first state all top-level fields, for a deletion none.
    """
    if after is None:
        return []
    if before is None:
        return [name for name in after if name not in ("_id", version_field)]
    found = [
        path
        for path in find_differing_paths(before, after)
        if path[0] not in ("_id", version_field)
    ]
    if len(found) > _MOST_PATHS:
        return list(dict.fromkeys(path[0] for path in found))
    return [".".join(path) for path in found]
