"""Reads of whole collections as of a moment: pages, referring documents.

They must wait for the moment first: `resolvers.history.time_point`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from revstream.model.definition import Entity, Field
from revstream.resolvers.access.permissions import OPEN
from revstream.resolvers.access.row_filter import RowFilter
from revstream.resolvers.filters.expression import EVERYTHING, Condition
from revstream.resolvers.filters.reference_filters import held_id_stages
from revstream.resolvers.history.as_of.past_documents import CONTENT, PastDocuments
from revstream.resolvers.history.as_of.referring_documents import (
    ReferringDocuments,
    WantedReferrers,
)
from revstream.resolvers.history.collection_as_of import CollectionAsOf, to_record_condition
from revstream.resolvers.history.hidden_predecessor import conceal_changes
from revstream.resolvers.history.replaced_at import add_replacement_times
from revstream.resolvers.history.time_point import TimePoint
from revstream.resolvers.pagination.page import Page
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.pagination.projection import ENDED, Fields
from revstream.streams.archive.coverage import CoverageStore
from revstream.streams.archive.horizon import check_horizon
from revstream.streams.archive.store import Archive
from revstream.streams.core.errors import ArchiveBehind, HistoryLost
from revstream.streams.mongo.database import Mongo
from revstream.streams.versioning.version import Version

__all__ = ["PastCollections"]


class PastCollections:
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

    async def collection_as_of(
        self, entity: Entity, moment: TimePoint, query: PageQuery[Condition]
    ) -> Page[Any]:
        """A page of the versions that stood at a moment, of the documents that matched then.

        Raises:
            BadUserInput: an order that cannot be, a cursor of another list.
            HistoryLost: versions of then were dropped.
            TimeLimit: the read took longer than it may.
        """
        rows = self._scope.read_rows(entity)
        reading = replace(query, where=rows.narrowed(query.where), facts=rows.facts(query.facts))
        states = CollectionAsOf(self._mongo, self._archive(entity), entity, moment.at, reading)
        page = await states.page()
        return (await self._ended(entity, [page], query.facts))[0]

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
        rows, archive = self._scope.read_rows(entity), self._archive(entity)
        where = to_record_condition(rows.narrowed(query.where) or EVERYTHING, entity)
        reading = ReferringDocuments(self._mongo, archive, entity, stored, where, query)
        pages = await reading.pages(wanted)
        # After the read: see `streams.archive.horizon`.
        coverage = await self._coverages.load(entity.collection)
        found: list[Page[Version] | HistoryLost | ArchiveBehind] = []
        for each, page in zip(wanted, pages, strict=True):
            try:
                check_horizon(entity.collection, each.at, coverage)
                found.append(page)
            except (HistoryLost, ArchiveBehind) as exc:
                found.append(exc)
        return found

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
