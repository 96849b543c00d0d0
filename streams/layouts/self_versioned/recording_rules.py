"""Rules that decide which versions of a self-versioned collection become records. Pure.

Records follow the numbers there: a version whose number is not above the last recorded one is
recorded already, or was written after a higher one and never was current.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from enum import Enum
from typing import Any

from bson import Timestamp

from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.core import resume_tokens
from revstream.streams.layouts.core.stored_version import StoredVersion
from revstream.streams.versioning.version import LastVersion, archived_operation

__all__ = ["NotRecorded", "version_from_scan", "version_from_write"]


class NotRecorded(Enum):
    """Why no record is created: the version is known, or does not matter (yet)."""

    KNOWN = "KNOWN"
    SKIPPED = "SKIPPED"


def version_from_write(
    event: ChangeEvent, last: LastVersion | None, *, all_known: bool
) -> dict[str, Any] | NotRecorded:
    """Return the arguments of `make_version` for a write.

    Args:
        event: A translated event.
        all_known: The initial snapshot is complete. Before, a document without a record is left to
            the
            snapshot, which also records its earlier versions.
    """
    existed = last is not None and last.full is not None
    begins_anew = event.operation == "insert" and last is not None and not existed
    if last is not None and resume_tokens.canonical_token(last.token) >= event.token:
        return NotRecorded.KNOWN
    if _is_known(event.kept, last) and not begins_anew:
        return NotRecorded.KNOWN
    if event.operation == "delete":
        if not existed:
            return NotRecorded.SKIPPED
    elif last is None and not all_known and event.operation != "insert":
        return NotRecorded.SKIPPED
    else:
        event = replace(event, operation="update" if existed else "insert")
    return {
        "token": event.token,
        "at": event.at,
        "wall": event.wall,
        "key": event.key,
        "operation": archived_operation(event),
        "after": event.after,
        "event": event,
        "kept": event.kept,
    }


def version_from_scan(
    version: StoredVersion, last: LastVersion | None, *, token: str, at: Timestamp, wall: datetime
) -> dict[str, Any] | None:
    """Return the arguments of `make_version` for a version that the scan found; None if known.

    If the layout has no time for the version, it gets the time of the scan.
    """
    present = last is not None and last.full is not None
    if _is_known(version.number, last) or (version.content is None and not present):
        return None
    operation = "delete" if version.content is None else "update" if present else "insert"
    event = ChangeEvent(
        token=token,
        at=at,
        wall=version.wall or wall,
        operation=operation,
        collection="",
        key=version.key,
        after=version.content,
        before=None,
        update=None,
    )
    return {
        "token": token,
        "at": at,
        "wall": event.wall,
        "key": version.key,
        "operation": "BASELINE" if last is None else archived_operation(event),
        "after": version.content,
        # Its own attribution.
        "event": event,
        "deletion": version.change,
        "kept": version.number,
    }


def _is_known(number: int | None, last: LastVersion | None) -> bool:
    known = None if last is None else last.kept
    return number is not None and known is not None and number <= known
