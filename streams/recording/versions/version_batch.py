"""Batch of records that are inserted into the archive together."""

from __future__ import annotations

from bson.raw_bson import RawBSONDocument

from revstream.streams.live.pending_versions import NumberedEvent
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import LastVersion

__all__ = ["VersionBatch"]

# Size of a record without its content.
_RECORD_BYTES = 600


class VersionBatch:
    """Records of one insert, in stream order.

    Attributes:
        size_bytes: Approximate size of the records.
        numbered: By token, the versions whose number is all that their events lack.
        spanning: Tokens of archived versions from before a loss that are still current.
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
                record["v"],
                previous,
                record.get("by"),
                record.get("why"),
                record.get("traceparent"),
            )
        self.records.append(record)
        full = record.get("full")
        content = len(full.raw) if isinstance(full, RawBSONDocument) else 0
        self.size_bytes += _RECORD_BYTES + content

    def note_spanning(self, last: LastVersion | None, doubt: str) -> None:
        """Note a version from before a loss (`Baseline.doubt`) that is unchanged after it."""
        if doubt and last is not None and last.full is not None and last.token < doubt:
            self.spanning.append(last.token)

    def traces(self) -> list[str]:
        """Return the traces of these writes, each once."""
        found = (each.get("traceparent") for each in self.records)
        return list(dict.fromkeys(each for each in found if each is not None))

    def extend(self, later: VersionBatch) -> None:
        """Append the batch that directly follows."""
        self.records += later.records
        self.size_bytes += later.size_bytes
