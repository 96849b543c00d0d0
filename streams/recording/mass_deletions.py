"""Deletions of many documents at once: by a dropped collection, or missing in a snapshot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import ChangeEvent, identity
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DatabaseError
from revstream.streams.layouts.core.snapshot_scan import SNAPSHOT_TOO_OLD
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.recording.versions.last_version_cache import LastVersionCache
from revstream.streams.recording.versions.snapshot_chunk import SnapshotChunk
from revstream.streams.recording.versions.version_batch import VersionBatch
from revstream.streams.versioning.version import LastVersion

__all__ = ["MassDeletions", "is_read_later"]


class MassDeletions:
    """Mass deletions of one partition of a collection.

    Args:
        lasts, load, add: Of `streams.recording.version_builder`: the cache of last versions,
            loading
            of some, and adding a record to a batch.
        drain: Waits until all earlier batches are archived.
    """

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        partition: Partition,
        *,
        lasts: LastVersionCache,
        load: Callable[[Iterable[Any]], Awaitable[None]],
        add: Callable[..., None],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        self._mongo = mongo
        self._archive = archive
        self._partition = partition
        self._lasts = lasts
        self._load = load
        self._add = add
        self._drain = drain

    async def missing_in_chunk(
        self, chunk: SnapshotChunk, number: int, *, page: int = 5000
    ) -> AsyncIterator[VersionBatch]:
        """Yield deletions of documents that the archive has in the chunk's range and the chunk
        lacks.

        Their deletions were never observed. Page by page.

        Args:
            number: Number of records that exist at the chunk's time.
        """
        if not (chunk.end or chunk.keys):
            # No document of the archive is in this range.
            return
        await self._drain()
        place = resume_tokens.token_from_time(chunk.at)
        present = set(map(identity, chunk.keys))
        first = chunk.after
        end = None if chunk.end else (chunk.keys[-1],)
        while True:
            keys = await self._archive.document_ids(first, end, limit=page)
            # Each once: while its history is cut, a document may be listed twice.
            listed = {identity(each): each for each in keys}
            suspects = [
                key
                for name, key in listed.items()
                if name not in present and self._partition.contains(key)
            ]
            await self._load(suspects)
            present_keys = [each for each in suspects if self._is_present(each, chunk)]
            if present_keys:
                # By id: a collection with a collation has another order.
                existing = await self._existing(present_keys, chunk)
                batch = VersionBatch()
                for key in present_keys:
                    if identity(key) not in existing:
                        self._add(
                            batch,
                            self._lasts.get(key),
                            token=resume_tokens.numbered_token(
                                place, self._partition.own_number(number)
                            ),
                            at=chunk.at,
                            wall=chunk.wall,
                            key=key,
                            operation="DELETE",
                            after=None,
                            gap=True,
                        )
                        number += 1
                yield batch
            if len(keys) < page:
                return
            first = (keys[-1],)

    async def _existing(self, keys: Sequence[Any], chunk: SnapshotChunk) -> set[Any]:
        """Return, by identity, the documents that existed at the chunk's time.

        If the server keeps no past, those that exist now.
        """
        query = {"_id": {"$in": keys}}
        try:
            found = await self._archive.layout.find(
                query, FindOptions(projection={"_id": 1}, at=chunk.at)
            )
        except DatabaseError as exc:
            if exc.number != SNAPSHOT_TOO_OLD:
                raise
            found = await self._archive.layout.find(query, FindOptions(projection={"_id": 1}))
        return {identity(each["_id"]) for each in found}

    def _is_present(self, key: Any, chunk: SnapshotChunk) -> bool:
        last = self._lasts.get(key)
        return last is not None and last.full is not None and not is_read_later(last, chunk)

    async def all_documents(
        self, event: ChangeEvent, *, page: int = 1000
    ) -> AsyncIterator[VersionBatch]:
        """Yield deletions of all documents after a drop or a rename away, page by page."""
        await self._drain()
        place = event.token
        # After a crash in the middle, deleted documents are skipped, and the numbers continue.
        number = await self.last_number(place)
        first: tuple[Any] | None = None
        while True:
            # If the database was dropped, so were the archive and its indexes.
            keys = await self._archive.document_ids(first, None, limit=page, hint=None)
            # Each once: while its history is cut, a document may be listed twice.
            mine = {identity(each): each for each in keys if self._partition.contains(each)}
            lasts = await self._archive.newest(
                [{"key": key} for key in mine.values()], limit=1, projection={"doc": 1, "op": 1}
            )
            present_keys = [
                each["doc"] for each in lasts if each["op"] != "DELETE" and each["_id"] < place
            ]
            await self._load(present_keys)
            batch = VersionBatch()
            for key in present_keys:
                number += 1
                self._add(
                    batch,
                    self._lasts.get(key),
                    token=resume_tokens.numbered_token(place, self._partition.own_number(number)),
                    at=event.at,
                    wall=event.wall,
                    key=key,
                    operation="DELETE",
                    after=None,
                )
            yield batch
            if len(keys) < page:
                return
            first = (keys[-1],)

    async def last_number(self, place: str) -> int:
        """Return the last number among an event's records of this partition; 0 where none exist.

        The collection may have had another partition count when they were written.
        """
        count, index = self._partition.count, self._partition.index
        number = {"$toInt": {"$substrBytes": ["$_id", len(place) + 1, 8]}}
        found = await self._mongo.aggregate(
            self._archive.name,
            [
                {"$match": {"_id": {"$gt": f"{place}-", "$lt": f"{place}."}}},
                {"$project": {"number": number}},
                {"$match": {"$expr": {"$eq": [{"$mod": ["$number", count]}, index]}}},
                {"$group": {"_id": None, "last": {"$max": "$number"}}},
            ],
        )
        return int(found[0]["last"]) // count if found else 0


def is_read_later(last: LastVersion, chunk: SnapshotChunk) -> bool:
    """Return whether the last version is newer than the chunk, so that the chunk's state is older.

    It was read later; or, for a collection that arrived as a whole, it was recorded after the
    arrival, as before a crash.
    """
    if chunk.arrival is not None and last.full is not None and last.token > chunk.token:
        return True
    return last.read_at is not None and last.read_at > chunk.at
