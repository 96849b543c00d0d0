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
from streams.archive import Archive, Until, closing
from streams.bootstrap import Chunk
from streams.deletions import Deletions
from streams.differences import same
from streams.documents import Document
from streams.events import ChangeEvent, identity
from streams.memory import LastVersions
from streams.mongo import Mongo
from streams.reconstruction import Reconstruction
from streams.versions import CHANGE_FIELD, Last, archived_operation, make_version

__all__ = ["Draft", "Drafting"]

log = logging.getLogger(__name__)

# Events drafted before others have their turn of the event loop: a few milliseconds' worth.
_TURN = 64


class Draft:
    """Records to be inserted together, in stream order, and the stored versions that they close."""

    def __init__(self) -> None:
        self.records: list[Document] = []
        self.untils: list[Until] = []
        self._open: dict[Any, Document] = {}

    def add(self, record: Document, last: Last | None) -> None:
        key = identity(record["doc"])
        earlier = self._open.get(key)
        if earlier is not None:
            earlier |= closing(earlier["at"], record["at"], record["wall"])
        elif last is not None:
            self.untils.append((last.token, record["at"], record["wall"]))
        self._open[key] = record
        self.records.append(record)


class Drafting:
    """Of one collection.

    Args:
        settled: waits until everything drafted before is in the archive; called before what it
            says of these documents is read.
    """

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        *,
        version_field: str | None,
        cache_bytes: int,
        settled: Callable[[], Awaitable[None]],
    ) -> None:
        self.gaps = 0
        self.skipped = 0
        self._mongo = mongo
        self._archive = archive
        self._version_field = version_field
        self._settled = settled
        self._lasts = LastVersions(archive, capacity_bytes=cache_bytes)
        self._reconstruction = Reconstruction(mongo, archive.collection)
        self._deletions = Deletions(mongo)

    def forget(self) -> None:
        self._lasts.clear()

    async def writes(self, events: Sequence[ChangeEvent], *, all_known: bool) -> Draft:
        """The versions of writes.

        Args:
            all_known: every document that was there has a version. Until then an update of one that
                has none, and no image, is left to the first reading.
        """
        draft = Draft()
        await self._load(each.key for each in events)
        deletions = await self._deletions.of(self._archive.collection, events)
        for count, event in enumerate(events, 1):
            await self._write(event, draft, all_known, deletions.get(event.token))
            if count % _TURN == 0:
                await asyncio.sleep(0)
        return draft

    async def chunk(self, chunk: Chunk, number: int) -> Draft:
        """Documents that the archive does not know become BASELINE; those it knows otherwise, a
        version with a gap.

        Args:
            number: how many baselines were written before.
        """
        draft = Draft()
        place = tokens.moment(chunk.at)
        await self._load(each["_id"] for each in chunk.documents)
        for document in chunk.documents:
            last = self._lasts.get(document["_id"])
            present = last is not None and last.full is not None
            if last is not None and last.full is not None and _same_content(last.full, document):
                continue
            if last is not None and _read_after(last, chunk):
                continue
            self._add(
                draft,
                last,
                token=tokens.numbered(place, number + len(draft.records)),
                at=chunk.at,
                wall=chunk.wall,
                key=document["_id"],
                operation="REPLACE" if present else "BASELINE",
                after=document,
                read_at=chunk.at,
                gap=last is not None,
            )
        return draft

    async def vanished(
        self, chunk: Chunk, number: int, *, page: int = 1000
    ) -> AsyncIterator[Draft]:
        """Documents within the chunk's bounds that the archive takes for present and that are not
        there: nobody saw them deleted. Page by page.

        Args:
            number: how many records stand at the chunk's moment already.
        """
        await self._settled()
        place = tokens.moment(chunk.at)
        present = {identity(each["_id"]) for each in chunk.documents}
        first = chunk.after
        end = None if chunk.end else (chunk.documents[-1]["_id"],)
        while True:
            keys = await self._archive.documents(first, end, limit=page)
            suspects = [each for each in keys if identity(each) not in present]
            await self._load(suspects)
            live = [each for each in suspects if self._stands(each, chunk)]
            if live:
                # Asked by id: where the collection has a collation, its order is another one.
                found = await self._mongo.find(
                    self._archive.collection,
                    {"_id": {"$in": live}},
                    projection={"_id": 1},
                    at=chunk.at,
                )
                there = {identity(each["_id"]) for each in found}
                draft = Draft()
                for key in live:
                    if identity(key) not in there:
                        self._add(
                            draft,
                            self._lasts.get(key),
                            token=tokens.numbered(place, number),
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
        number = await self._mongo.count(
            self._archive.name, {"_id": {"$gt": f"{place}-", "$lt": f"{place}."}}
        )
        after = ""
        while True:
            live = await self._mongo.find(
                self._archive.name,
                {
                    "_id": {"$gt": after, "$lt": place},
                    "span": None,
                    "until": None,
                    "op": {"$ne": "DELETE"},
                },
                sort=[("_id", 1)],
                limit=page,
                projection={"doc": 1},
            )
            if not live:
                return
            draft = Draft()
            await self._load(each["doc"] for each in live)
            for each in live:
                number += 1
                self._add(
                    draft,
                    self._lasts.get(each["doc"]),
                    token=tokens.numbered(place, number),
                    at=event.at,
                    wall=event.wall,
                    key=each["doc"],
                    operation="DELETE",
                    after=None,
                )
            after = live[-1]["_id"]
            yield draft

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
    ) -> None:
        last = self._lasts.get(event.key)
        if last is not None and (
            last.token >= event.token or (last.read_at is not None and event.at <= last.read_at)
        ):
            self.skipped += 1
            return
        existed = last is not None and last.full is not None
        gap = existed if event.operation == "insert" else not existed
        after: RawBSONDocument | None = event.after
        read_at = None
        if event.operation != "delete" and after is None:
            if not existed and not all_known:
                self.skipped += 1
                return
            rebuilt = await self._reconstruction.after(event, last)
            if rebuilt is None:  # gone again; its delete follows
                self.skipped += 1
                return
            after, read_at = rebuilt.document, rebuilt.read_at
            gap = gap or read_at is not None
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

    def _add(self, draft: Draft, last: Last | None, *, gap: bool = False, **write: Any) -> None:
        record, made = make_version(last=last, version_field=self._version_field, gap=gap, **write)
        self.gaps += gap
        draft.add(record, last)
        self._lasts.put(record["doc"], made)


def _read_after(last: Last, chunk: Chunk) -> bool:
    """The version was read again, later than the chunk: what differs has come since."""
    return last.read_at is not None and last.read_at > chunk.at


def _same_content(archived: RawBSONDocument, present: RawBSONDocument) -> bool:
    """Equal but for who made the last change, which the archive keeps beside the document."""
    if CHANGE_FIELD not in present:
        return same(archived, present)
    return same(archived, {k: v for k, v in present.items() if k != CHANGE_FIELD})
