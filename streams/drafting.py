"""From change events, chunks of the first reading and dropped collections to the records of their
versions.

Holds what the last version of each document was; writes nothing. Deterministic: the same events
over the same archive make the same records, so a second process that drafts them too collides with
the first instead of telling another story.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from bson.raw_bson import RawBSONDocument

from streams import tokens
from streams.archive import Archive
from streams.bootstrap import Chunk, behind
from streams.checkpoints import Baseline
from streams.deletions import Deletions
from streams.differences import same
from streams.draft import Draft
from streams.events import ChangeEvent, identity
from streams.layouts.kept import Kept
from streams.layouts.recording import Passed, found_there, write_of
from streams.memory import LastVersions
from streams.mongo import Mongo
from streams.partitions import Partition
from streams.reconstruction import Reconstruction
from streams.storage import as_kept, as_patch
from streams.versions import Last, archived_operation, make_version, without_reserved

__all__ = ["Drafting"]

log = logging.getLogger(__name__)

# Events drafted before others have their turn of the event loop: a few milliseconds' worth.
_TURN = 64


class Drafting:
    """Of one collection, or of one partition of it.

    Args:
        partition: its documents alone are drafted; of writes, it is given no others.
        deltas: whether versions are kept as patches: see `streams.storage`.
        settled: waits until everything drafted before is in the archive; called before what it
            says of these documents is read.
    """

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        partition: Partition,
        *,
        version_field: str | None,
        deltas: bool,
        cache_bytes: int,
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        self.gaps = 0
        self.duplicates = 0
        self.skipped = 0
        self._mongo = mongo
        self._archive = archive
        self._partition = partition
        self._version_field = version_field
        self._deltas = deltas
        self._settled = settled
        self._lasts = LastVersions(archive, capacity_bytes=cache_bytes)
        self._reconstruction = Reconstruction(mongo, archive.collection)
        self._deletions = Deletions(mongo)

    def forget(self) -> None:
        self._lasts.clear()

    async def writes(self, events: Sequence[ChangeEvent], baseline: Baseline) -> Draft:
        """The versions of writes.

        Args:
            baseline: what it has not come to yet, it may have to tell of: an update that has no
                image, of a document that has no version or one in doubt, is left to it.
        """
        draft = Draft()
        await self._load(each.key for each in events)
        doubtful = await self._doubtful(events, baseline)
        deletions = await self._deletions.of(self._archive.collection, events)
        for count, event in enumerate(events, 1):
            deletion = deletions.get(event.token, event.deletion)
            if self._archive.layout.keeps:
                self._write_kept(event, draft, baseline.done, deletion)
            else:
                doubt = baseline.doubt if identity(event.key) in doubtful else ""
                await self._write(event, draft, baseline.done, deletion, doubt=doubt)
            if count % _TURN == 0:
                await asyncio.sleep(0)
        return draft

    async def _doubtful(self, events: Sequence[ChangeEvent], baseline: Baseline) -> set[Any]:
        """The documents, by identity, that may have changed unseen since their last version."""
        if baseline.done or not baseline.doubt:
            return set()
        keys = [each.key for each in events if self._in_doubt(each.key, baseline.doubt)]
        if keys and baseline.started:
            keys = await behind(self._mongo, self._archive.collection, baseline.after, keys)
        return {identity(each) for each in keys}

    def _in_doubt(self, key: Any, doubt: str) -> bool:
        last = self._lasts.get(key)
        return last is not None and last.full is not None and last.token < doubt

    async def chunk(self, chunk: Chunk, baseline: Baseline) -> Draft:
        """Documents that the archive does not know become BASELINE; those it knows otherwise, a
        version with a gap.

        Args:
            baseline: how far the reading has come before.
        """
        if chunk.versions is not None:
            return await self._chunk_of_versions(chunk, chunk.versions, baseline)
        draft = Draft()
        number = baseline.documents
        place = tokens.moment(chunk.at)
        documents = [each for each in chunk.documents if self._partition.holds(each["_id"])]
        await self._load(each["_id"] for each in documents)
        for count, document in enumerate(documents, 1):
            if count % _TURN == 0:
                await asyncio.sleep(0)
            last = self._lasts.get(document["_id"])
            full = None if last is None else last.full
            if full is not None and same(full, without_reserved(document)):
                continue
            if last is not None and _read_after(last, chunk):
                continue
            self._add(
                draft,
                last,
                token=self._numbered(place, number + len(draft.records)),
                at=chunk.at,
                wall=chunk.wall,
                key=document["_id"],
                operation="BASELINE" if full is None else "REPLACE",
                after=document,
                read_at=chunk.at,
                gap=last is not None or bool(baseline.doubt),
            )
        return draft

    async def _chunk_of_versions(
        self, chunk: Chunk, versions: Sequence[Kept], baseline: Baseline
    ) -> Draft:
        """Of a collection that keeps them itself, all that the archive does not know: BASELINE for
        the first of a document, and for others what they were."""
        draft = Draft()
        number = baseline.documents
        place = tokens.moment(chunk.at)
        mine = [each for each in versions if self._partition.holds(each.key)]
        await self._load(each.key for each in mine)
        for count, version in enumerate(mine, 1):
            if count % _TURN == 0:
                await asyncio.sleep(0)
            last = self._lasts.get(version.key)
            token = self._numbered(place, number + len(draft.records))
            found = found_there(version, last, token=token, at=chunk.at, wall=chunk.wall)
            if found is not None:
                self._add(draft, last, **found)
        return draft

    async def vanished(
        self, chunk: Chunk, number: int, *, page: int = 5000
    ) -> AsyncIterator[Draft]:
        """Documents within the chunk's bounds that the archive takes for present and that are not
        there: nobody saw them deleted. Page by page.

        Args:
            number: how many records stand at the chunk's moment already.
        """
        await self._settled()
        place = tokens.moment(chunk.at)
        present = set(map(identity, chunk.keys))
        first = chunk.after
        end = None if chunk.end else (chunk.keys[-1],)
        while True:
            keys = await self._archive.documents(first, end, limit=page)
            # Each once: while its history is cut, a document may be listed twice.
            listed = {identity(each): each for each in keys}
            suspects = [
                key
                for name, key in listed.items()
                if name not in present and self._partition.holds(key)
            ]
            await self._load(suspects)
            live = [each for each in suspects if self._stands(each, chunk)]
            if live:
                # Asked by id: where the collection has a collation, its order is another one.
                found = await self._archive.layout.find(
                    {"_id": {"$in": live}}, projection={"_id": 1}, at=chunk.at
                )
                there = {identity(each["_id"]) for each in found}
                draft = Draft()
                for key in live:
                    if identity(key) not in there:
                        self._add(
                            draft,
                            self._lasts.get(key),
                            token=self._numbered(place, number),
                            at=chunk.at,
                            wall=chunk.wall,
                            key=key,
                            operation="DELETE",
                            after=None,
                            gap=True,
                        )
                        number += 1
                yield draft
            if len(keys) < page:
                return
            first = (keys[-1],)

    def _stands(self, key: Any, chunk: Chunk) -> bool:
        last = self._lasts.get(key)
        return last is not None and last.full is not None and not _read_after(last, chunk)

    async def end(self, event: ChangeEvent, *, page: int = 1000) -> AsyncIterator[Draft]:
        """The collection was dropped, or renamed away: every document that was there is deleted by
        it, page by page."""
        await self._settled()
        place = event.token
        # A crash in the middle: those already deleted are passed over, and numbering goes on behind
        # them.
        number = await self._last_number(place)
        first: tuple[Any] | None = None
        while True:
            # Where the database goes, the archive has gone with its indexes.
            keys = await self._archive.documents(first, None, limit=page, hint=None)
            # Each once: while its history is cut, a document may be listed twice.
            mine = {identity(each): each for each in keys if self._partition.holds(each)}
            lasts = await self._archive.newest(
                [{"key": key} for key in mine.values()], limit=1, projection={"doc": 1, "op": 1}
            )
            live = [each["doc"] for each in lasts if each["op"] != "DELETE" and each["_id"] < place]
            await self._load(live)
            draft = Draft()
            for key in live:
                number += 1
                self._add(
                    draft,
                    self._lasts.get(key),
                    token=self._numbered(place, number),
                    at=event.at,
                    wall=event.wall,
                    key=key,
                    operation="DELETE",
                    after=None,
                )
            yield draft
            if len(keys) < page:
                return
            first = (keys[-1],)

    def _numbered(self, place: str, number: int) -> str:
        """Other partitions have records at the same place."""
        return tokens.numbered(place, self._partition.numbered(number))

    async def _last_number(self, place: str) -> int:
        """Of the records at one event that have numbers of this partition, however the collection
        was divided when they were written; 0 where there are none."""
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

    async def _load(self, keys: Iterable[Any]) -> None:
        if self._lasts.crowded:
            await self._settled()
        # Otherwise what is being written meanwhile is remembered, and not among what is read.
        await self._lasts.load(keys)

    async def _write(
        self,
        event: ChangeEvent,
        draft: Draft,
        all_known: bool,
        deletion: Mapping[str, Any] | None,
        *,
        doubt: str,
    ) -> None:
        last = self._lasts.get(event.key)
        if last is not None and (
            last.token >= event.token or (last.read_at is not None and event.at <= last.read_at)
        ):
            self.duplicates += 1
            return
        existed = last is not None and last.full is not None
        doubtful = existed and last is not None and last.token < doubt
        gap = doubtful or (existed if event.operation == "insert" else not existed)
        after: RawBSONDocument | None = event.after
        read_at = None
        if event.operation != "delete" and after is None:
            if doubtful or (not existed and not all_known):
                self.skipped += 1
                return
            rebuilt = await self._reconstruction.after(event, last)
            if rebuilt is None:  # gone again; its delete follows
                self.skipped += 1
                return
            after, read_at = rebuilt.document, rebuilt.read_at
            gap = gap or read_at is not None or event.bare
        self._add(
            draft,
            last,
            token=event.token,
            at=event.at,
            wall=event.wall,
            key=event.key,
            operation=archived_operation(event),
            after=None if event.operation == "delete" else after,
            event=event,
            deletion=deletion,
            read_at=read_at,
            gap=gap,
        )

    def _write_kept(
        self,
        event: ChangeEvent,
        draft: Draft,
        all_known: bool,
        deletion: Mapping[str, Any] | None,
    ) -> None:
        """Of a collection that keeps its versions itself."""
        last = self._lasts.get(event.key)
        found = write_of(event, last, all_known=all_known)
        if isinstance(found, Passed):
            self.duplicates += found is Passed.KNOWN
            self.skipped += found is Passed.SKIPPED
        else:
            self._add(draft, last, deletion=deletion, **found)

    def _add(
        self,
        draft: Draft,
        last: Last | None,
        *,
        gap: bool = False,
        kept: int | None = None,
        **write: Any,
    ) -> None:
        record, made = make_version(
            last=last, version_field=self._version_field, gap=gap, kept=kept, **write
        )
        if self._archive.layout.keeps:
            # A removal leaves no number: those up to the last one are known all the same.
            known = last.kept if kept is None and last is not None else kept
            made = as_kept(record, made, known)
        elif self._deltas:
            made = as_patch(record, last, made)
        self.gaps += gap
        draft.add(record, last)
        self._lasts.put(record["doc"], made)


def _read_after(last: Last, chunk: Chunk) -> bool:
    """The version was read again, later than the chunk: what differs has come since."""
    return last.read_at is not None and last.read_at > chunk.at
