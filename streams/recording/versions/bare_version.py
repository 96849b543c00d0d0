"""Version of an event that cannot be read: a gap, with the stored content."""

from __future__ import annotations

from typing import Any

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.recording.versions.snapshot_chunk import SnapshotChunk
from revstream.streams.versioning.version import LastVersion, archived_operation, without_reserved

__all__ = ["event_from_chunk", "make_bare_version"]


def make_bare_version(
    event: ChangeEvent,
    after: RawBSONDocument | None,
    last: LastVersion | None,
    *,
    read_at: Timestamp | None,
) -> tuple[Document, LastVersion]:
    """Build the record of an unreadable write, and the facts that the next version needs.

    It is a gap with the stored content, and has no attribution and no changed fields.
    """
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
    offset = 0 if last is None else last.offset
    if offset:
        record["offset"] = offset
    made = LastVersion(
        token=event.token, number=number, full=full, kept=kept, read_at=read_at, offset=offset
    )
    return record, made


def event_from_chunk(
    chunk: SnapshotChunk, token: str, key: Any, content: RawBSONDocument | None, kept: int | None
) -> ChangeEvent:
    """Return an event for a document of a snapshot."""
    return ChangeEvent(
        token=token,
        at=chunk.at,
        wall=chunk.wall,
        operation="delete" if content is None else "insert",
        collection="",
        key=key,
        after=content,
        before=None,
        update=None,
        kept=kept,
    )
