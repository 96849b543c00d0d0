"""Reads of current documents.

Every read is one round trip (two with a resume token, one more for a total), for any number of ids
or parents, and reads only the fields of the selection.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from bson import Timestamp

from revstream.model.definition import Entity, Field
from revstream.resolvers.access.cluster_time import at_one_time
from revstream.resolvers.access.permissions import OPEN, Scope
from revstream.resolvers.current.document_lookup import find_by_id
from revstream.resolvers.current.document_numbers import DocumentNumbers
from revstream.resolvers.current.page_read import (
    SCORE,
    PageRead,
    RelatedPageRead,
    resume_token_from_time,
)
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.current.stored_ids import (
    RecordKind,
    counts_by_id,
    find_other_id,
    first_shown_as,
    ids_shown_in,
    other_ids,
)
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.expression import In, all_of, searched_text, searches
from revstream.resolvers.filters.mongo_query import to_query
from revstream.resolvers.filters.number_filters import asks_for_number, numbered_layout
from revstream.resolvers.filters.parser import Condition
from revstream.resolvers.filters.reference_filters import held_count_stages, held_id_stages
from revstream.resolvers.pagination.keyset import Keyset
from revstream.resolvers.pagination.order_by import order_keys, related_keys
from revstream.resolvers.pagination.page import Page, PageRequest, Window, and_queries
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.pagination.pages_by_parent import pages_by_key
from revstream.resolvers.pagination.projection import Fields, document_projection
from revstream.resolvers.pagination.related_order import RelatedOrder, Row, page_of_items
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.layouts.factory import create_layout
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.recording.bootstrap.text_index import check_text_index

__all__ = ["Current"]

T = TypeVar("T")

_MOST_WINDOWS = 500


class Current(DocumentNumbers):
    """Reads of the current documents of all entities."""

    def __init__(
        self, mongo: Mongo, archives: Mapping[str, Archive], own_writes: OwnWrites
    ) -> None:
        super().__init__(mongo, archives, own_writes)
        self._scope = OPEN
        self._windows: dict[Hashable, tuple[Window, Mapping[str, Any]]] = {}

    def within(self, scope: Scope) -> Current:
        """Return a copy that is limited to the rows of one caller.

        Reads of entities that the caller may not read raise `Forbidden`.
        """
        limited = copy.copy(self)
        limited._scope = scope
        return limited

    async def by_ids(
        self, entity: Entity, ids: Sequence[Any], fields: Fields, *, for_output: bool = False
    ) -> list[Document | None]:
        """Read documents by id.

        If an id has no document, documents with an id of another type and the same text are looked
        up.

        Args:
            ids: n stored ids.
            fields: stored names of the fields to read.
            for_output: True if the values are only serialized: dates may lack their time zone, UTC.

        Returns:
            n documents in the order of the ids; None for each that does not exist.
        """
        rows = self._scope.read_rows(entity)
        if not ids:
            return []
        wanted = rows.widened(fields) or fields

        async def read(ids: Sequence[Any]) -> Sequence[Document | None]:
            found, names = await self._found(entity, ids, wanted, for_output=for_output)
            return list(map(found.get, names))

        kind = entity.collection, wanted, for_output
        found = await self.lookups.ask(kind, ids, read)
        if None in found:
            others = {n: other_ids(entity, ids[n]) for n, each in enumerate(found) if each is None}
            asked = [each for some in others.values() for each in some]
            if asked:
                read_then = iter(await self.lookups.ask(kind, asked, read))
                found = list(found)
                for n, some in others.items():
                    there = [each for _ in some if (each := next(read_then)) is not None]
                    found[n] = first_shown_as(ids[n], [(each["_id"], each) for each in there])
        # Checked after the read, which callers with different rows share. Predicates take dates
        # without time zone as UTC.
        return rows.allowed(found)

    async def other_id(self, entity: Entity, key: Any, kinds: Sequence[RecordKind]) -> Any:
        """Return the stored id of another type that an unknown id means; see `find_other_id`."""
        archive = self._archives.get(entity.collection)
        if archive is None:
            return None
        return await find_other_id(self._mongo, archive, entity, key, kinds)

    async def page(self, entity: Entity, query: PageQuery[Condition]) -> Page[Document]:
        """Read a page of the documents that match a filter.

        Raises:
            BadUserInput: an invalid order, or a cursor of another list.
            ArchiveBehind: the filter or the order needs version numbers that are not recorded yet.
            TimeLimit: the read took longer than allowed.
        """
        return await self.read(self.prepare_read(entity, query))

    def prepare_read(
        self, entity: Entity, query: PageQuery[Condition]
    ) -> PageRead | RelatedPageRead:
        """Prepare the read of a page, for one or many calls of `read`.

        Raises: see `page`.
        """
        if related_keys(query.order):
            return RelatedPageRead(entity, query)
        scored = searches(query.where) and not query.order
        window, projection = (
            self._scored_window(entity, query) if scored else self._window(entity, query)
        )
        where = {} if query.where is None else to_query(query.where)
        matching = self._scope.read_rows(entity).limited(where)
        return PageRead(
            entity=entity,
            window=window,
            query=matching,
            windowed=window.limited_to(matching),
            options=FindOptions(
                projection=projection, sort=window.keys, limit=window.limit, naive=query.for_output
            ),
            total=query.total,
            token=query.token,
            numbered=asks_for_number(entity, query.where, query.order),
            searches=searches(query.where),
            scored=scored,
        )

    async def read(self, page_read: PageRead | RelatedPageRead) -> Page[Document]:
        """Read a prepared page; see `page`."""
        if isinstance(page_read, RelatedPageRead):
            return await self._related_page(page_read.entity, page_read.query)
        layout = self._layout(page_read.entity, numbered=page_read.numbered)
        if page_read.searches:
            await self._check_search(page_read.entity, numbered=page_read.numbered)
        if page_read.numbered:
            await self._numbers_settled(page_read.entity)
        if page_read.token:
            return await at_one_time(self._mongo, partial(page_read.read, layout))
        return await page_read.read(layout, None)

    async def pages_by_parent(
        self,
        entity: Entity,
        stored_field: str,
        parents: Sequence[Any],
        query: PageQuery[Condition],
    ) -> list[Page[Document]]:
        """Read a page of child documents for each of many parents, with one command.

        Args:
            stored_field: the field that holds the parent's id.
            parents: n parent ids; an item may be a list of ids, any of which matches.
            query: the page of each parent.

        Errors: see `page`. Costs: see `pages_by_key`.

        Returns:
            n pages in the order of the parents.
        """
        rows = self._scope.read_rows(entity)
        if not parents:
            return []
        if related_keys(query.order):
            return await self._related_pages(entity, stored_field, parents, query)
        # The keyset's kind excludes the parent: one cursor applies to all parents.
        keyset = Keyset(f"current {entity.name} by {stored_field}", order_keys(entity, query.order))
        window = Window(keyset, query.page)
        numbered = asks_for_number(entity, query.where, query.order)
        layout = self._layout(entity, numbered=numbered)
        joined = layout.lookup_stages(stored_field)
        if numbered:
            await self._numbers_settled(entity)
        where = {} if query.where is None else to_query(query.where)

        async def read(at: Timestamp | None = None) -> list[Page[Document]]:
            def pages(beside: Mapping[str, Any]) -> Awaitable[list[Page[Document]]]:
                return pages_by_key(
                    self._mongo,
                    joined,
                    parents,
                    query=and_queries(rows.limited(where), beside),
                    window=window,
                    projection=document_projection(query.fields),
                    total=query.total,
                    at=at,
                    snapshot=layout.snapshot,
                    token=resume_token_from_time(at),
                    most=query.most,
                )

            found, unordered = await window.read(pages)
            return [replace(each, unordered=unordered) for each in found] if unordered else found

        return await (at_one_time(self._mongo, read) if query.token else read())

    async def referenced(
        self, target: Entity, wanted: Sequence[tuple[Any, Timestamp | None]], fields: Fields
    ) -> Sequence[Document | None]:
        """Read documents by id; see `RelatedReads`."""
        return await self.by_ids(target, [id_ for id_, _ in wanted], fields, for_output=True)

    async def referring(
        self, target: Entity, by: Field, wanted: Sequence[tuple[Any, Timestamp | None]]
    ) -> Sequence[int]:
        """Count the documents that refer to others; see `RelatedReads`."""
        alike = [ids_shown_in(by, id_) for id_, _ in wanted]
        ids = [id_ for each in alike for id_ in each]
        layout, matching = await self.select(target, In(by.stored, tuple(ids)))
        found = await layout.aggregate(matching, held_count_stages(by, ids))
        return counts_by_id(found, alike)

    async def _related_page(self, entity: Entity, query: PageQuery[Condition]) -> Page[Document]:
        """Read a page in an order by related values; its token is of the time before all reads."""
        at = await self._mongo.operation_time() if query.token else None
        order = RelatedOrder(entity, query.order or (), query.page, f"current {entity.name}")
        found = await self.page(entity, order.rows_query(query.where))
        rows = [Row(each["_id"], None, each) for each in found.items]
        (page,) = await order.pages(self._mongo, self, [rows])
        documents = await self._documents_of(entity, query, order, page.items)
        token = resume_token_from_time(at)
        return page_of_items(page, documents, total=query.total, token=token)

    async def _related_pages(
        self,
        entity: Entity,
        stored_field: str,
        parents: Sequence[Any],
        query: PageQuery[Condition],
    ) -> list[Page[Document]]:
        at = await self._mongo.operation_time() if query.token else None
        kind = f"current {entity.name} by {stored_field}"
        order = RelatedOrder(entity, query.order or (), query.page, kind)
        asked: PageQuery[Condition] = order.rows_query(query.where)
        found = await self.pages_by_parent(entity, stored_field, parents, asked)
        groups = [[Row(each["_id"], None, each) for each in page.items] for page in found]
        pages = await order.pages(self._mongo, self, groups)
        rows = {identity(row.id): row for page in pages for row in page.items}
        documents = await self._documents_of(entity, query, order, [*rows.values()])
        token = resume_token_from_time(at)
        return [page_of_items(each, documents, total=query.total, token=token) for each in pages]

    async def _documents_of(
        self,
        entity: Entity,
        query: PageQuery[Condition],
        order: RelatedOrder,
        rows: Sequence[Row],
    ) -> Mapping[Any, Document]:
        """Read the documents of rows that still match, by identity."""
        if not rows:
            return {}
        of_rows = In("_id", tuple(row.id for row in rows))
        reading = replace(
            query,
            where=of_rows if query.where is None else all_of([query.where, of_rows]),
            order=order.numbering,
            page=PageRequest(first=len(rows)),
            total=False,
            token=False,
        )
        found = await self.page(entity, reading)
        return {identity(each["_id"]): each for each in found.items}

    async def held_ids(
        self, entity: Entity, field: Field, where: Condition, *, limit: int
    ) -> list[Any]:
        """Return the ids that the matching documents hold in a field, each once; at most `limit`.

        Raises: see `page`.
        """
        layout, matching = await self.select(entity, where)
        found = await layout.aggregate(matching, held_id_stages(field, limit=limit))
        return [each["_id"] for each in found]

    async def select(
        self, entity: Entity, where: Condition | None
    ) -> tuple[Layout, Mapping[str, Any]]:
        """Return the layout and the query of the matching documents, row rules included."""
        matching = self._scope.read_rows(entity).limited({} if where is None else to_query(where))
        numbered = asks_for_number(entity, where)
        if searches(where):
            await self._check_search(entity, numbered=numbered)
        if numbered:
            await self._numbers_settled(entity)
        return self._layout(entity, numbered=numbered), matching

    async def _check_search(self, entity: Entity, *, numbered: bool) -> None:
        """Check that MongoDB can search the words, in the fields that the model names.

        Raises:
            BadUserInput: the version number is looked at too, which needs another read first.
            Unsuitable: the text index is not that of the model.
        """
        assert entity.search is not None
        if numbered:
            raise BadUserInput(
                "search: with a condition or an order by version, expected other ones; remove it",
                argument="search",
            )
        await check_text_index(self._mongo, entity.collection, entity.search)

    async def _numbers_settled(self, entity: Entity) -> None:
        """Wait until the archive has the version numbers of all current documents.

        A document without a number would match no filter on it.

        Raises:
            ArchiveBehind: the archive did not reach the present in time.
        """
        archive = self._archives.get(entity.collection)
        if archive is not None and not archive.layout.keeps:
            now = await self._mongo.operation_time()
            await self._own_writes.settled(entity.collection, now)

    def _scored_window(
        self, entity: Entity, query: PageQuery[Condition]
    ) -> tuple[Window, Mapping[str, Any]]:
        # Another text has other scores: its cursors are of another order.
        kind = f"search {entity.name} {searched_text(query.where)}"
        keyset = Keyset(kind, ((SCORE, -1), ("_id", 1)))
        window = Window(keyset, query.page)
        return window, window.projected(document_projection(query.fields))

    def _window(
        self, entity: Entity, query: PageQuery[Condition]
    ) -> tuple[Window, Mapping[str, Any]]:
        """Return the window of a page and its projection; first pages are cached."""
        page, fields = query.page, query.fields
        key = entity.name, fields, page
        usual = not query.order and page.after is None and page.before is None
        found = self._windows.get(key) if usual else None
        if found is None:
            keyset = Keyset(f"current {entity.name}", order_keys(entity, query.order))
            window = Window(keyset, page)
            found = window, window.projected(document_projection(fields)) | window.placing
            if usual and len(self._windows) < _MOST_WINDOWS:
                # First pages recur most often.
                self._windows[key] = found
        return found

    async def _found(
        self, entity: Entity, ids: Sequence[Any], fields: Fields, *, for_output: bool
    ) -> tuple[dict[Any, Document], Sequence[Any]]:
        return await find_by_id(self._layout(entity), ids, fields, for_output=for_output)

    def _layout(self, entity: Entity, *, numbered: bool = False) -> Layout:
        archive = self._archives.get(entity.collection)
        if archive is None:
            return create_layout(self._mongo, entity)
        return numbered_layout(self._mongo, archive, entity) if numbered else archive.layout
