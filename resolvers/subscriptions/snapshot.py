"""The matching documents as they were at one cluster time, with which a subscription begins.

They are read from their collection. Where the server no longer knows it as of that time, as one
with `minSnapshotHistoryWindowInSeconds: 0`, the rest is read from the archive as of the same time.
Source: docs/decisions/0009-hand-over.md.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from bson import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.access.row_filter import RowFilter
from revstream.resolvers.filters.expression import EVERYTHING, Condition, In, all_of
from revstream.resolvers.filters.mongo_query import to_query
from revstream.resolvers.filters.number_filters import asks_for_number, numbered_layout
from revstream.resolvers.history.collection_as_of import CollectionAsOf
from revstream.resolvers.pagination.page import PageRequest
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.subscriptions.event_enrichment import Change
from revstream.resolvers.subscriptions.start import ChangeRequest
from revstream.streams.archive.store import Archive
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind, DatabaseError
from revstream.streams.layouts.core.snapshot_scan import SNAPSHOT_REFUSALS
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version

__all__ = ["Snapshot"]


class Snapshot:
    """Reads of one collection at one cluster time.

    Args:
        size: documents per page.
    """

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        progress: ArchiveProgress,
        entity: Entity,
        request: ChangeRequest,
        rows: RowFilter,
        at: Timestamp,
        *,
        size: int,
    ) -> None:
        self._mongo = mongo
        self._archive = archive
        self._progress = progress
        self._entity = entity
        self._request = request
        only = [In("_id", request.ids)] if request.ids else []
        self._where = all_of([*only, rows.narrowed(request.where) or EVERYTHING])
        self._at = at
        self._size = size

    async def pages(self) -> AsyncGenerator[list[Change]]:
        """The documents in `_id` order, page by page.

        Raises:
            ArchiveBehind: numbers or documents are read from the archive, which has not come so far
                within the bound.
            HistoryLost: documents are read from the archive, which is not whole at that time.
        """
        last: tuple[Any] | None = None
        try:
            async with aclosing(self._current()) as opened:
                async for documents in opened:
                    numbers = await self._numbers(documents)
                    yield list(map(self._change, documents, numbers))
                    last = (documents[-1]["_id"],)
            return
        except DatabaseError as exc:
            if exc.number not in SNAPSHOT_REFUSALS:
                raise
        await self._archived()
        async with aclosing(self._standing(last)) as versions:
            async for page in versions:
                yield [
                    self._change({**(each.full or {}), "_id": each.document}, each.number)
                    for each in page
                ]

    async def _current(self) -> AsyncGenerator[list[Document]]:
        layout = self._archive.layout
        if asks_for_number(self._entity, self._where):
            layout = numbered_layout(self._mongo, self._archive, self._entity)
            # The numbers that it looks up are those of then.
            await self._progress.wait_complete(
                self._entity.collection, resume_tokens.token_from_time(self._at)
            )
        pages = layout.pages(to_query(self._where), size=self._size, at=self._at)
        async with aclosing(pages) as opened:
            async for documents in opened:
                yield documents

    async def _standing(self, last: tuple[Any] | None) -> AsyncGenerator[list[Version]]:
        """Return the versions that were current, of the documents after an `_id`."""
        first = PageRequest(first=self._size)
        query: PageQuery[Condition] = PageQuery(
            where=self._where,
            page=first,
            fields=frozenset(
                each.stored for each in (*self._entity.fields, *self._entity.member_fields)
            ),
            facts=frozenset(),
        )
        reading = CollectionAsOf(self._mongo, self._archive, self._entity, self._at, query)
        after = None if last is None else reading.cursor(last[0])
        while True:
            page = await reading.page(replace(first, after=after))
            if page.items:
                yield page.items
            if not page.has_next:
                return
            after = page.cursors[-1]

    async def _archived(self) -> None:
        await self._progress.wait_complete(
            self._entity.collection,
            resume_tokens.token_from_time(self._at),
            limit_s=self._progress.takeover_s,
        )

    async def _numbers(self, documents: Sequence[Document]) -> Sequence[int | None]:
        if not self._request.needs_version:
            return [None] * len(documents)
        await self._archived()
        found = await self._archive.newest(
            [{"key": each["_id"], "at": self._at} for each in documents],
            limit=1,
            projection={"v": 1},
        )
        by_index = {record["wanted"]: record["v"] for record in found}
        if len(by_index) < len(documents):
            raise ArchiveBehind(
                f"{self._entity.name}: documents of the snapshot are not recorded yet; subscribe "
                "again",
                collection=self._entity.collection,
            )
        return [by_index[n] for n in range(len(documents))]

    def _change(self, document: Document, number: int | None) -> Change:
        return Change(
            entity=self._entity,
            kind="SNAPSHOT",
            token=resume_tokens.snapshot_token(self._at),
            transition="ENTER",
            document_id=document["_id"],
            version=number,
            at=self._at.as_datetime(),
            document=document,
        )
