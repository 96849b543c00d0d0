"""What is to be written to the archive at once."""

from __future__ import annotations

from bson.raw_bson import RawBSONDocument

from revstream.streams.live.pending_versions import NumberedEvent
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import LastVersion

__all__ = ["VersionBatch"]

# What a record takes beside its content.
_RECORD_BYTES = 600


class VersionBatch:
    """Records to be inserted together, in stream order.

    Attributes:
        size_bytes: about as many as the records have.
        numbered: by token, the versions of which a number is all that their events lack.
        spanning: tokens of archived versions that were there before a loss and are still current.
    """

    def __init__(self) -> None:
        self.records: list[Document] = []
        self.size_bytes = 0
        self.numbered: dict[str, NumberedEvent] = {}
        self.spanning: list[str] = []

    def add(self, record: Document, last: LastVersion | None) -> None:
        if "gap" not in record:
            previous = None if last is None else last.number
            self.numbered[record["_id"]] = NumberedEvent(
                record["v"], previous, record.get("by"), record.get("why")
            )
        self.records.append(record)
        full = record.get("full")
        content = len(full.raw) if isinstance(full, RawBSONDocument) else 0
        self.size_bytes += _RECORD_BYTES + content

    def note_spanning(self, last: LastVersion | None, doubt: str) -> None:
        """Note a version that was there before a loss (`Baseline.doubt`) and is unchanged after
        it."""
        if doubt and last is not None and last.full is not None and last.token < doubt:
            self.spanning.append(last.token)

    def extend(self, later: VersionBatch) -> None:
        """Go on with what was drafted right behind it."""
        self.records += later.records
        self.size_bytes += later.size_bytes
