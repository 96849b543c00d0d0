"""Documents and their history, written as the recorder does, at times that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
from bson import Timestamp
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from revstream.model.definition import Entity, Storage
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.current.version_number_cache import VersionNumberCache
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.core import resume_tokens
from revstream.streams.live.hub import Hub
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED, RAW, Document
from revstream.streams.versioning.content_encoding import encode_as_patch
from revstream.streams.versioning.version import LastVersion, make_version

__all__ = ["Scribe", "at", "last_of_each"]

# The second of 2024 from which tests count.
_BEGINNING = 1_704_110_400


def at(second: int, count: int = 1) -> Timestamp:
    """Return the cluster time `second` seconds after the fixed start time of 2024."""
    return Timestamp(_BEGINNING + second, count)


def nothing_written(known: str = "") -> OwnWrites:
    """Return the write progress of a process that has written nothing: no read has to wait.

    Args:
        known: the position up to which all archives are known to be complete.
    """
    return OwnWrites(_Unknown(known), VersionNumberCache(_Silent([], position="")))  # type: ignore[arg-type]


class _Silent(Hub):
    """Hub without events."""

    def add_observer(self, *_: object) -> None:
        pass


class _Unknown:
    """Archive progress: unknown, or known up to a position."""

    def __init__(self, known: str) -> None:
        self._known = known

    async def position(self, collection: str) -> str:
        return self._known

    def known_position(self, collection: str) -> str:
        return self._known

    def known_positions(self) -> tuple[str, Mapping[str, str]]:
        return "", {}

    def has_begun(self, collection: str) -> bool:
        return True

    def is_complete(self, collection: str) -> bool:
        return True

    async def wait_complete(self, collection: str, token: str) -> None:
        pass


def last_of_each(archive: Collection[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the last version of each document, deletions included."""
    first = {"_id": "$doc", "last": {"$first": "$$ROOT"}}
    stages = [{"$sort": {"doc": 1, "v": -1}}, {"$group": first}, {"$replaceWith": "$last"}]
    return list(archive.aggregate(stages))


class Scribe:
    """Writer of one collection and its archive, in the storage kind of the entity.

    `records` are all versions written, in stream order; `present` are the current documents by the
    `identity` of their ids.
    """

    def __init__(self, mongo: Mongo, entity: Entity) -> None:
        self.entity = entity
        self.archive = Archive(mongo, entity.collection)
        self.records: list[Document] = []
        self.present: dict[Any, Document] = {}
        self._mongo = mongo
        self._lasts: dict[Any, LastVersion] = {}
        self._pending: list[Document] = []

    def write(
        self,
        key: Any,
        document: Mapping[str, Any] | None,
        time: Timestamp,
        *,
        operation: str | None = None,
        by: str | None = None,
        why: str | None = None,
        wall: datetime | None = None,
    ) -> Document:
        """Add a write (None deletes) and return its version record; `save` stores it."""
        name = identity(key)
        last = self._lasts.get(name)
        place = sum(record["at"] == time for record in self.records)
        after = None if document is None else _raw({"_id": key, **document})
        if operation is None:
            known = last is not None and last.full is not None
            operation = "DELETE" if document is None else "UPDATE" if known else "INSERT"
        record, made = make_version(
            token=f"{resume_tokens.time_prefix(time)}2B04{place:04X}",
            at=time,
            wall=wall or datetime.fromtimestamp(time.time, UTC) + timedelta(milliseconds=time.inc),
            key=key,
            operation=operation,
            after=after,
            last=last,
            version_field=self.entity.version,
        )
        record |= {"by": by, "why": why}
        whole = dict(record)
        if self.entity.storage is Storage.DELTA:
            made = encode_as_patch(record, last, made)
        self._lasts[name] = made
        self._pending.append(record)
        self.records.append(whole)
        if after is None:
            self.present.pop(name, None)
        else:
            self.present[name] = {"_id": key, **(document or {})}
        return whole

    async def save(self) -> None:
        """Store the current documents and the archive of all writes."""
        await self.archive.prepare()
        assert await self.archive.insert(self._pending)
        self._pending = []
        database = self._mongo._database
        await database[self.entity.collection].delete_many({})
        if self.present:
            await database[self.entity.collection].insert_many(list(self.present.values()))


def _raw(document: Mapping[str, Any]) -> RawBSONDocument:
    return RawBSONDocument(bson.encode(document, codec_options=DECODED), RAW)
