"""Detection of change events that a document's last version already contains."""

from __future__ import annotations

from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.core import resume_tokens
from revstream.streams.raw_bson.diff import is_same
from revstream.streams.versioning.version import LastVersion, without_reserved

__all__ = ["is_archived"]


def is_archived(event: ChangeEvent, last: LastVersion) -> bool:
    """Return whether the last version contains the event, or the document that it inserts."""
    if resume_tokens.canonical_token(last.token) >= event.token:
        return True
    if last.read_at is not None and event.at <= last.read_at:
        return True
    # A restore writes documents that the archive has already.
    return (
        event.operation == "insert"
        and event.after is not None
        and last.full is not None
        and is_same(last.full, without_reserved(event.after))
    )
