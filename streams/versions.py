"""One version of one document: what a change event makes of the version before. Pure but for BSON.

The number: the document's version field, if it is an integer above the last archived number, else
last + 1. A delete takes last + 1; a document inserted again goes on counting. Gaps are allowed,
going back is not; the same events give the same numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from model.fields import CHANGE_FIELD, COPIES_FIELD, KEPT_BESIDE
from streams.cuts import Cut
from streams.differences import differing_paths, same
from streams.documents import RAW, Document
from streams.elements import without_field
from streams.events import ChangeEvent

__all__ = [
    "CHANGE_FIELD",
    "COPIES_FIELD",
    "RESERVED",
    "Last",
    "Version",
    "archived_operation",
    "attribution",
    "carried_number",
    "make_bare_version",
    "make_version",
    "next_number",
    "without_reserved",
]

# They are kept beside a version's content, and are no part of it.
RESERVED = tuple(KEPT_BESIDE)
_RESERVED = tuple(name.encode() + b"\0" for name in RESERVED)
# By the type that an element begins with: double, int32, int64.
_NUMBERS = {0x01: struct.Struct("<d"), 0x10: struct.Struct("<i"), 0x12: struct.Struct("<q")}
# Version numbers are GraphQL's Int.
_HIGHEST = 2**31 - 1
# Of a record: with all of its paths it could exceed what MongoDB stores as one document.
_MOST_PATHS = 10_000
_OPERATIONS = {
    "insert": "INSERT",
    "update": "UPDATE",
    "replace": "REPLACE",
    "delete": "DELETE",
}
_CHANGED = frozenset({"update", "replace"})


# Not frozen, as it might be: one is made of every record that is read, and that would take it twice
# as long.
@dataclass(slots=True, kw_only=True)
class Version:
    """A record of the archive, as readers see it. `full` is None for a deletion, or where it was
    not asked for.

    `token` is the record's `_id`; `previous` the token of the version before. `cut`: versions
    before it were dropped. `copies`: the `_copies` that the
    document carried.
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
    changed: tuple[str, ...] = ()
    gap: bool = False
    cut: Cut | None = None
    copies: Mapping[str, Any] | None = None
    full: Document | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Version:
        # An `__init__` of so many keywords takes three times as long.
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
        made.changed = tuple(get("changed", ()))
        made.gap = get("gap", False)
        cut = get("cut")
        made.cut = None if cut is None else Cut.from_record(cut)
        made.copies = get("copies")
        made.full = get("full")
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Last:
    """What the next version needs of the last one.

    `full` is None where that was a deletion; else of bytes of its own, which nobody has looked
    into. `change` is the `_change` that the document carries: a
    later write that leaves it as it is was not made by whom it names, and deltas may change it in
    part; `copies` is its `_copies`, likewise. `read_at`: the cluster time at which `full` was read,
    where it was not taken from an event; events up to it are in it. `damaged`: `full` cannot be
    read any more, and is empty. `keyframe`, `depth`, `kept`: see `streams.storage`.
    """

    token: str
    number: int
    full: RawBSONDocument | None
    change: Any = None
    copies: Any = None
    read_at: Timestamp | None = None
    keyframe: int | None = None
    depth: int = 0
    kept: int | None = None
    damaged: bool = False

    @property
    def size_bytes(self) -> int:
        return 300 + (0 if self.full is None else len(self.full.raw))


def carried_number(document: Mapping[str, Any] | None, version_field: str | None) -> int | None:
    """The number that a document carries, if it is one. Integral doubles count: JavaScript shells
    write them."""
    if document is None or version_field is None:
        return None
    value = document.get(version_field)
    if value.__class__ is int and 0 < value <= _HIGHEST:
        return value
    number = _number(value)
    return number if number is not None and 0 < number <= _HIGHEST else None


def next_number(
    last: int,
    document: Mapping[str, Any] | None,
    version_field: str | None,
    kept: int | None = None,
) -> int:
    """See the module.

    Args:
        kept: of a collection that keeps versions itself, the number that this one has there.
    """
    carried = carried_number({"": kept}, "") if kept else carried_number(document, version_field)
    return max(last + 1, carried or 0)


def make_version(
    *,
    token: str,
    at: Timestamp,
    wall: datetime,
    key: Any,
    operation: str,
    after: RawBSONDocument | None,
    last: Last | None,
    version_field: str | None,
    event: ChangeEvent | None = None,
    deletion: Mapping[str, Any] | None = None,
    read_at: Timestamp | None = None,
    gap: bool = False,
    kept: int | None = None,
) -> tuple[Document, Last]:
    """The record of a write, and what the next one needs of it.

    Args:
        operation: as the archive names it: BASELINE, INSERT, UPDATE, REPLACE, DELETE; what the
            writer says of itself comes before it.
        after: the document after the write, raw; None for a deletion.
        event: the change event, where the version comes from one: it decides about attribution.
        deletion: of an attributed delete, what the document would carry under `_change`.
        read_at: where `after` was read rather than sent: when.
        kept: see `next_number`.
    """
    number = 0 if last is None else last.number
    fields: Mapping[str, Any] = {}
    if after is not None and not _is_plain(after.raw, number, None if kept else version_field):
        # A plain dict: each look into a raw document costs several Python calls.
        fields = dict(after.items())
    carried = deletion if after is None else fields.get(CHANGE_FIELD)
    sent = None if after is None else fields
    change = attribution(event, sent, last.change if last else None, deletion) if event else {}
    reserved = any(name in fields for name in RESERVED)
    full = without_reserved(after) if after is not None and reserved else after
    copies = fields.get(COPIES_FIELD)
    number = next_number(number, fields, version_field, kept)
    record: Document = {
        "_id": token,
        "doc": key,
        "v": number,
        "op": change.get("op", operation),
        "at": at,
        "wall": wall,
        "prev": None if last is None else last.token,
        "by": change.get("by"),
        "why": change.get("why"),
        "changed": changed_paths(last.full if last is not None else None, full, version_field),
    }
    for name in ("restoredFrom", "draft"):
        if change.get(name) is not None:
            record[name] = change[name]
    if last is None:
        record["first"] = True
    if carried is not None:
        record["change"] = carried
    if copies is not None:
        record["copies"] = copies
    if read_at is not None:
        record["readAt"] = read_at
    if gap:
        record["gap"] = True
    record["full"] = full
    made = Last(
        token=token,
        number=number,
        full=None if full is None else RawBSONDocument(bytes(full.raw), RAW),
        change=carried,
        copies=copies,
        read_at=read_at,
    )
    return record, made


def make_bare_version(
    event: ChangeEvent,
    after: RawBSONDocument | None,
    last: Last | None,
    *,
    read_at: Timestamp | None,
) -> tuple[Document, Last]:
    """The record of a write of which no version could be made: a gap, with what is stored and
    without anything that is concluded from it; and what the next one needs of it."""
    number = (0 if last is None else last.number) + 1
    full = None if after is None else without_reserved(after)
    record: Document = {
        "_id": event.token,
        "doc": event.key,
        "v": number,
        "op": archived_operation(event),
        "at": event.at,
        "wall": event.wall,
        "prev": None if last is None else last.token,
        "by": None,
        "why": None,
        "changed": [],
        "gap": True,
        "setAside": True,
        "full": full,
    }
    if last is None:
        record["first"] = True
    if read_at is not None:
        record["readAt"] = read_at
    kept = event.kept if event.kept is not None or last is None else last.kept
    made = Last(token=event.token, number=number, full=full, kept=kept, read_at=read_at)
    return record, made


def _is_plain(raw: bytes | memoryview, last: int, version_field: str | None) -> bool:
    """Whether the bytes of a document show that it has nothing that is kept beside its content, nor
    a number above the next one: decoding a document of 2.5 KB, to look for that, takes 7 µs.

    Wherever in it a name stands: what looks like one is looked at closer.
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


def attribution(
    event: ChangeEvent,
    after: Mapping[str, Any] | None,
    earlier: Any,
    deletion: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    """What the `_change` says that this very write set: by, why, restoredFrom, draft, op; empty
    where it set none, or only carried along what an earlier one left.

    Args:
        after: the document after the write.
        earlier: the `_change` that the document carried before.
        deletion: of an attributed delete, what the document would carry.
    """
    carried = deletion if after is None else after.get(CHANGE_FIELD)
    if not isinstance(carried, Mapping):
        return {}
    if event.operation == "delete":
        set_now = True
    elif event.update is not None:
        updated = event.update.get("updatedFields") or {}
        set_now = any(n == CHANGE_FIELD or n.startswith(CHANGE_FIELD + ".") for n in updated)
    else:
        set_now = event.operation == "insert" or not _carried_along(earlier, carried)
    if not set_now:
        return {}
    # Any program may write it: what is not text or a number is not let through to those who expect
    # that.
    texts = {name: _text(carried.get(name)) for name in ("by", "why")}
    numbers = {name: _number(carried.get(name)) for name in ("restoredFrom", "draft")}
    said = {name: value for name, value in (texts | numbers).items() if value is not None}
    # The server logs an update that leaves little of a document as its replacement, and the other
    # way round, where it saves bytes: what was meant, only the writer knows.
    if event.operation in _CHANGED and carried.get("op") in ("UPDATE", "REPLACE"):
        said["op"] = carried["op"]
    return said


def _carried_along(earlier: Any, carried: Mapping[str, Any]) -> bool:
    if not isinstance(earlier, Mapping):
        return False
    one, other = earlier.get("id"), carried.get("id")
    return same(earlier, carried) if one is None or other is None else same(one, other)


def _text(value: Any) -> str | None:
    return None if value is None or isinstance(value, Mapping | list) else str(value)


def _number(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def without_reserved(document: RawBSONDocument) -> RawBSONDocument:
    for name in RESERVED:
        if name in document:
            document = RawBSONDocument(without_field(bytes(document.raw), name), RAW)
    return document


def changed_paths(
    before: RawBSONDocument | None,
    after: RawBSONDocument | None,
    version_field: str | None,
) -> list[str]:
    """Dotted stored paths; for a first state its top-level fields, for a deletion none. Where there
    are very many, only the top-level fields that they are in."""
    if after is None:
        return []
    if before is None:
        return [name for name in after if name not in ("_id", version_field)]
    found = [
        path for path in differing_paths(before, after) if path[0] not in ("_id", version_field)
    ]
    if len(found) > _MOST_PATHS:
        return list(dict.fromkeys(path[0] for path in found))
    return [".".join(path) for path in found]
