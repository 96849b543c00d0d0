"""Reads of whole collections as of a moment: pages, referring documents.

They must wait for the moment first: `resolvers.history.time_point`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bson.timestamp import Timestamp

from revstream.model.definition import Entity, Field
from revstream.resolvers.access.permissions import OPEN
from revstream.resolvers.access.row_filter import RowFilter
from revstream.resolvers.current.stored_ids import counts_by_id, ids_shown_in
from revstream.resolvers.filters.expression import EVERYTHING, Condition, In
from revstream.resolvers.filters.reference_filters import held_count_stages, held_id_stages
from revstream.resolvers.history.as_of.past_documents import CONTENT, PastDocuments
from revstream.resolvers.history.as_of.referring_documents import (
    ReferringDocuments,
    WantedReferrers,
)
from revstream.resolvers.history.collection_as_of import CollectionAsOf, to_record_condition
from revstream.resolvers.history.document_states import DocumentState
from revstream.resolvers.history.hidden_predecessor import conceal_changes
from revstream.resolvers.history.replaced_at import add_replacement_times
from revstream.resolvers.history.time_point import TimePoint
from revstream.resolvers.pagination.order_by import related_keys
from revstream.resolvers.pagination.page import Page, PageRequest
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.pagination.projection import ENDED, Fields
from revstream.resolvers.pagination.related_order import RelatedOrder, Row, page_of_items
from revstream.streams.archive.coverage import CoverageStore
from revstream.streams.archive.horizon import checked_results
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.core.errors import ArchiveBehind, HistoryLost
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version

__all__ = ["PastCollections"]


class PastCollections(ABC):
    """Reads of the archives of all entities, one moment at a time.

    Args:
        archives: by collection.
    """

    def __init__(self, mongo: Mongo, archives: Mapping[str, Archive]) -> None:
        self.mongo = self._mongo = mongo
        self._archives = archives
        self._coverages = CoverageStore(mongo)
        self._scope = OPEN

    def readable(self, entity: Entity) -> tuple[Archive, RowFilter]:
        """Return the archive of an entity, and the rows of it that the caller may read.

        Raises:
            Forbidden: the caller may not read the entity.
        """
        return self._archive(entity), self._scope.read_rows(entity)

    @abstractmethod
    async def as_of(
        self, entity: Entity, wanted: Sequence[tuple[Any, Timestamp]], fields: Fields | None
    ) -> list[DocumentState]:
        """Read versions: n (id, cluster time) -> the versions that were current, in that order."""

    async def collection_as_of(
        self, entity: Entity, moment: TimePoint, query: PageQuery[Condition]
    ) -> Page[Any]:
        """A page of the versions that stood at a moment, of the documents that matched then.

        Raises:
            BadUserInput: an order that cannot be, a cursor of another list.
            HistoryLost: versions of then were dropped.
            TimeLimit: the read took longer than it may.
        """
        if related_keys(query.order):
            return await self._related_page(entity, moment, query)
        rows = self._scope.read_rows(entity)
        reading = replace(query, where=rows.narrowed(query.where), facts=rows.facts(query.facts))
        states = CollectionAsOf(self._mongo, self._archive(entity), entity, moment.at, reading)
        page = await states.page()
        return (await self._ended(entity, [page], query.facts))[0]

    async def referenced(
        self, target: Entity, wanted: Sequence[tuple[Any, Timestamp | None]], fields: Fields
    ) -> Sequence[Document | None]:
        """Read documents at their moments; see `RelatedReads`.

        Raises:
            HistoryLost, ArchiveBehind: it is unknown whether one existed.
        """
        asked = [(id_, at) for id_, at in wanted if at is not None]
        versions = _known(await self.as_of(target, asked, fields))
        return [None if each is None else each.full for each in versions]

    async def referring(
        self, target: Entity, by: Field, wanted: Sequence[tuple[Any, Timestamp | None]]
    ) -> Sequence[int]:
        """Count the documents that referred to others at their moments; see `RelatedReads`."""
        counts: dict[int, int] = {}
        rows, archive = self._scope.read_rows(target), self._archive(target)
        for at in dict.fromkeys(at for _, at in wanted):
            assert at is not None
            places = [n for n, each in enumerate(wanted) if each[1] == at]
            alike = [ids_shown_in(by, wanted[n][0]) for n in places]
            ids = [id_ for each in alike for id_ in each]
            where = rows.narrowed(In(by.stored, tuple(ids))) or EVERYTHING
            stages = held_count_stages(by, ids, prefix=CONTENT)
            documents = PastDocuments(self._mongo, archive, target, at, where, {by.stored})
            found = await documents.run(stages)
            await documents.check_known()
            counts.update(zip(places, counts_by_id(found, alike), strict=True))
        return [counts[n] for n in range(len(wanted))]

    async def _related_page(
        self, entity: Entity, moment: TimePoint, query: PageQuery[Condition]
    ) -> Page[Any]:
        """Read a page in an order by related values."""
        order = RelatedOrder(entity, query.order or (), query.page, f"as of {entity.name}")
        found = await self.collection_as_of(entity, moment, order.rows_query(query.where))
        rows = [_row(entity, each, moment.at) for each in found.items]
        (page,) = await order.pages(self._mongo, self, [rows])
        if not page.items:
            return page_of_items(page, {}, total=query.total)
        of_rows = In("_id", tuple(row.id for row in page.items))
        reading = replace(
            query, where=of_rows, order=None, page=PageRequest(first=len(page.items)), total=False
        )
        versions = await self.collection_as_of(entity, moment, reading)
        items = {identity(_document_id(each)): each for each in versions.items}
        return replace(page_of_items(page, items, total=query.total), ends=versions.ends)

    async def _related_referrers(
        self,
        entity: Entity,
        stored: str,
        wanted: Sequence[WantedReferrers],
        query: PageQuery[Condition],
    ) -> list[Page[Version] | HistoryLost | ArchiveBehind]:
        """Read pages of referring documents in an order by related values."""
        kind = f"as of {entity.name} by {stored}"
        order = RelatedOrder(entity, query.order or (), query.page, kind)
        rows_query: PageQuery[Condition] = order.rows_query(query.where)
        asked = replace(rows_query, for_output=False)
        found = await self.referring_as_of(entity, stored, wanted, asked)
        known = [(n, each) for n, each in enumerate(found) if isinstance(each, Page)]
        groups = [[_row(entity, item, wanted[n].at) for item in page.items] for n, page in known]
        pages = await order.pages(self._mongo, self, groups)
        places = [(row.id, row.at) for page in pages for row in page.items if row.at is not None]
        versions = iter(_known(await self.as_of(entity, places, query.fields)))
        for (n, _), page in zip(known, pages, strict=True):
            read = {identity(row.id): next(versions) for row in page.items}
            items = {name: each for name, each in read.items() if each is not None}
            found[n] = page_of_items(page, items, total=query.total)
        return found

    async def held_ids_as_of(
        self, entity: Entity, field: Field, where: Condition, moment: TimePoint, *, limit: int
    ) -> list[Any]:
        """Return the ids that the documents that matched at a moment held in a field, each once.

        Args:
            limit: maximum number of ids.

        Raises:
            HistoryLost, TimeLimit: see `collection_as_of`.
        """
        matching = self._scope.read_rows(entity).narrowed(where) or EVERYTHING
        stages = held_id_stages(field, limit=limit, prefix=CONTENT)
        documents = PastDocuments(
            self._mongo, self._archive(entity), entity, moment.at, matching, {field.stored}
        )
        found = await documents.run(stages)
        await documents.check_known()
        return [each["_id"] for each in found]

    async def referring_as_of(
        self,
        entity: Entity,
        stored: str,
        wanted: Sequence[WantedReferrers],
        query: PageQuery[Condition],
    ) -> list[Page[Version] | HistoryLost | ArchiveBehind]:
        """N pages of the versions of documents that referred to others at moments, in that order.

        A moment at which not all of them are known has an error in place of its page.

        Args:
            stored: the stored field that holds the id.

        Raises:
            BadUserInput: an order that cannot be, a cursor of another list.
            TimeLimit: the read took longer than it may.
        """
        if related_keys(query.order):
            return await self._related_referrers(entity, stored, wanted, query)
        rows, archive = self._scope.read_rows(entity), self._archive(entity)
        where = to_record_condition(rows.narrowed(query.where) or EVERYTHING, entity)
        reading = ReferringDocuments(self._mongo, archive, entity, stored, where, query)
        pages = await reading.pages(wanted)
        # After the read: see `streams.archive.horizon`.
        coverage = await self._coverages.load(entity.collection)
        moments = [each.at for each in wanted]
        return checked_results(entity.collection, zip(moments, pages, strict=True), coverage)

    async def _ended(
        self, entity: Entity, pages: Sequence[Page[Any]], facts: Fields
    ) -> list[Page[Any]]:
        if "changed" in facts:
            await self._conceal(entity, [item for page in pages for item in page.items])
        if ENDED not in facts:
            return list(pages)
        return await add_replacement_times(self._archive(entity), pages)

    async def _conceal(self, entity: Entity, found: Iterable[Any]) -> None:
        """See `conceal_changes`; what is no version is passed over."""
        rows = self._scope.read_rows(entity)
        if rows.limits:
            versions = [each for each in found if isinstance(each, Version | dict)]
            await conceal_changes(self._archive(entity), entity, rows, versions)

    def _archive(self, entity: Entity) -> Archive:
        return self._archives[entity.collection]


def _row(entity: Entity, found: Version | Document, at: Timestamp) -> Row:
    """Return a version, or a record of one, as a document to order."""
    if isinstance(found, Version):
        content, number = found.full or {}, found.number
    else:
        content, number = found.get("full") or {}, found["v"]
    if entity.version is not None:
        content = {**content, entity.version: number}
    return Row(_document_id(found), at, content)


def _document_id(found: Version | Document) -> Any:
    return found.document if isinstance(found, Version) else found["doc"]


def _known(states: Sequence[DocumentState]) -> list[Version | None]:
    """Return states of which all are known.

    Raises:
        HistoryLost, ArchiveBehind: one of them is not.
    """
    known: list[Version | None] = []
    for each in states:
        if isinstance(each, HistoryLost | ArchiveBehind):
            raise each
        known.append(each)
    return known
