"""Reconstruction of a document after an update for which the server has no image.

First, the delta is applied to the archived state. If its paths are ambiguous, the oplog's own
entry, which nests, is applied. If that fails, the document is read at the event's cluster time. If
that is too long ago, the current document is read, and marked as a gap. Never a guess.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import bson
from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import ChangeEvent, identity
from revstream.streams.core.errors import DatabaseError, GatewayError
from revstream.streams.core.log_throttle import LogThrottle
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED, RAW, Document, plain_value
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.raw_bson.update_description import Ambiguous, apply_delta, apply_oplog_diff
from revstream.streams.versioning.version import CHANGE_FIELD, COPIES_FIELD, LastVersion

__all__ = ["RebuiltDocument", "Reconstruction"]

log = logging.getLogger(__name__)

_NEVER = Timestamp(0, 0)


@dataclass(frozen=True, slots=True)
class RebuiltDocument:
    """A reconstructed document.

    Attributes:
        read_at: Cluster time of a read; the document may contain later writes too. None otherwise.
    """

    document: RawBSONDocument
    read_at: Timestamp | None = None


class Reconstruction:
    """Reconstruction of the documents of one collection."""

    def __init__(self, mongo: Mongo, collection: str) -> None:
        self._mongo = mongo
        self._collection = collection
        self._gaps = LogThrottle(
            log, "version cannot be rebuilt exactly: read again, marked as a gap"
        )

    async def rebuild(self, event: ChangeEvent, last: LastVersion | None) -> RebuiltDocument | None:
        """Return the document after `event`; None where it can only be read again and is deleted.

        Args:
            last: The version before. Fields stored outside its content are restored.
        """
        reason = "the previous state is unknown"
        if last is not None and last.full is not None and event.update is not None:
            state, update = plain_value(last.full), plain_value(event.update)
            if not (_is_lossless(state, last.full) and _is_lossless(update, event.update)):
                return await self._read(event, "the document has values without a Python type")
            for name, beside in ((CHANGE_FIELD, last.change), (COPIES_FIELD, last.copies)):
                if beside is not None:
                    state[name] = plain_value(beside)
            try:
                return RebuiltDocument(_raw(apply_delta(state, update)))
            except Ambiguous as exc:
                reason = str(exc)
            try:
                diff = await self._oplog_diff(event)
                if diff is not None:
                    return RebuiltDocument(_raw(apply_oplog_diff(state, diff)))
            except (Ambiguous, GatewayError) as exc:
                reason = f"{reason}; {exc}"
        return await self._read(event, reason)

    async def _oplog_diff(self, event: ChangeEvent) -> Document | None:
        """Return the `diff` of the oplog entry of an event.

        None where the entry is gone, has another form, or is of a transaction that wrote the
        document more than once: the entry does not show which of the writes the event is.
        """
        entry = await self._mongo.oldest("oplog.rs", {"ts": event.at}, database="local")
        if entry is None:
            return None
        operations = [entry]
        if entry["op"] == "c":
            if (entry.get("prevOpTime") or {}).get(
                "ts", _NEVER
            ) != _NEVER:  # the end of a longer transaction
                return None
            operations = entry["o"].get("applyOps") or []
        namespace, key = f"{self._mongo.name}.{self._collection}", identity(event.key)
        writes = [
            each for each in operations if each["ns"] == namespace and identity(_id_of(each)) == key
        ]
        if len(writes) != 1 or writes[0]["op"] != "u" or writes[0]["o"].get("$v") != 2:
            return None
        diff = writes[0]["o"].get("diff")
        return None if diff is None else plain_value(diff)

    async def _read(self, event: ChangeEvent, reason: str) -> RebuiltDocument | None:
        try:
            found = await self._find(event, event.at)
        except DatabaseError as exc:  # the server keeps only the last few minutes
            reason = f"{reason}; {exc}"
        else:
            # Several writes to one document share a cluster time only within a transaction.
            read_at = event.at if event.in_transaction else None
            if found is not None and read_at is not None:
                self._log_gap(event, reason)
            return None if found is None else RebuiltDocument(found, read_at)
        self._log_gap(event, reason)
        now = await self._mongo.operation_time()
        found = await self._find(event, now)
        return None if found is None else RebuiltDocument(found, now)

    async def _find(self, event: ChangeEvent, at: Timestamp) -> RawBSONDocument | None:
        query = {"_id": event.key}
        found = await self._mongo.find(
            self._collection, query, FindOptions(limit=1, at=at, raw=True)
        )
        return found[0] if found else None

    def _log_gap(self, event: ChangeEvent, reason: str) -> None:
        self._gaps.note(collection=self._collection, key=str(event.key), reason=reason)


def _id_of(operation: Mapping[str, Any]) -> Any:
    """Return the `_id` of the document that an oplog entry writes; inserts have it in `o`."""
    return (operation.get("o2") or operation["o"]).get("_id")


def _is_lossless(values: Document, document: RawBSONDocument) -> bool:
    """Return whether Python's values lose nothing: no symbol, for example, and only valid UTF-8."""
    return bson.encode(values, codec_options=DECODED) == document.raw


def _raw(document: Document) -> RawBSONDocument:
    return RawBSONDocument(bson.encode(document, codec_options=DECODED), RAW)
