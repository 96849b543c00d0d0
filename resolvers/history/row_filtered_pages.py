"""Pages of versions with those left out that are not there for a caller, each judged by its own
content.

Where records have their contents, MongoDB does it. Where contents lie elsewhere
(`streams.versioning.content_encoding`), it cannot: then records are read on until a page is full,
and a total counts what it has read.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from revstream.model.definition import Entity
from revstream.resolvers.access.row_filter import RowFilter
from revstream.resolvers.filters.mongo_query import to_query
from revstream.resolvers.history.collection_as_of import to_record_condition
from revstream.resolvers.history.hidden_predecessor import changes_path, conceal_changes
from revstream.resolvers.history.version_filter import CHANGED, VersionFilter
from revstream.resolvers.pagination.keyset import Keyset
from revstream.resolvers.pagination.page import Page, PageRequest, Window
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.pagination.projection import record_projection
from revstream.streams.archive.store import Archive
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.versioning.version import Version

__all__ = ["RowFilteredPages", "visible_by_index"]

_PORTION = 500
_FEWEST = 20
_CHANGES = frozenset({"prev", "changed"})


class RowFilteredPages:
    """Pages of versions of one archive for one caller."""

    def __init__(self, archive: Archive, entity: Entity, rows: RowFilter) -> None:
        self._archive = archive
        self._entity = entity
        self._rows = rows
        self._query: Mapping[str, Any] = {}
        if rows.limits:
            here = to_query(to_record_condition(rows.condition, entity))
            # A content that is not in the record is none that could be judged here.
            whole = {"op": {"$ne": "DELETE"}, "packed": {"$ne": True}}
            self._query = {"$and": [whole, here]}

    async def is_needed(self, where: VersionFilter | None) -> bool:
        """Return whether MongoDB cannot evaluate which versions match."""
        if not self._rows.limits:
            return False
        return (where is not None and where.changed is not None) or await self._archive.has_packed()

    def query(self, query: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a query over records that have their contents."""
        if not self._query:
            return query
        return {"$and": [query, self._query]} if query else self._query

    async def page(
        self,
        of: Mapping[str, Any],
        window: Window,
        query: PageQuery[VersionFilter],
        make: Callable[[Document], Any] | None,
    ) -> Page[Any]:
        """Read a page, wherever the contents lie.

        Args:
            of: A query over records, which selects the documents.
            make: See `Window.page`.
        """
        where = query.where
        matching = {"$and": [of, {} if where is None else where.query, {"op": {"$ne": "DELETE"}}]}
        projection = window.projected(record_projection(self._rows.widened(query.fields)))
        rows: list[Document] = []
        size = max(window.limit, _FEWEST)
        changed = None if where is None else where.changed
        async with aclosing(
            self._visible_rows(matching, window, projection, size, changed)
        ) as portions:
            async for portion in portions:
                rows += portion
                if len(rows) >= window.limit:
                    break
        count = None
        if query.total:
            count = await self._count(matching, window.unbounded(), changed)
        return window.page(rows[: window.limit], make, total=count)

    async def rows(
        self, where: VersionFilter | None, keyset: Keyset, fields: Sequence[str]
    ) -> AsyncGenerator[list[Document]]:
        """Yield all visible versions in portions, wherever the contents lie.

        Args:
            keyset: the order.
            fields: fields of the records.
        """
        matching = {"$and": [{} if where is None else where.query, {"op": {"$ne": "DELETE"}}]}
        window = Window(keyset, PageRequest(first=_PORTION))
        read = record_projection(self._rows.fields, _CHANGES)
        projection = window.projected({**read, **dict.fromkeys(fields, 1)})
        changed = None if where is None else where.changed
        conceals = CHANGED in fields
        seen = self._visible_rows(matching, window, projection, _PORTION, changed, conceals)
        async with aclosing(seen) as portions:
            async for portion in portions:
                yield portion

    async def _count(self, query: Mapping[str, Any], window: Window, changed: str | None) -> int:
        """Without keeping what was looked at."""
        projection = window.projected(record_projection(self._rows.fields))
        count = 0
        seen = self._visible_rows(query, window, projection, _PORTION, changed)
        async with aclosing(seen) as portions:
            async for portion in portions:
                count += len(portion)
        return count

    async def _visible_rows(
        self,
        query: Mapping[str, Any],
        window: Window,
        projection: Mapping[str, Any],
        size: int,
        changed: str | None,
        conceals: bool = False,
    ) -> AsyncGenerator[list[Document]]:
        """Yield the visible rows of a window, read by read.

        Args:
            size: Rows of the first read.
            changed: See `VersionFilter`.
            conceals: Whether the changed paths are shown.
        """
        place = window.query
        while True:
            found = await self._archive.find(
                {"$and": [query, place]},
                FindOptions(projection=projection, sort=window.keys, limit=size),
            )
            seen = [each for each in found if self._rows.allow_version(each)]
            if changed is not None or conceals:
                await conceal_changes(self._archive, self._entity, self._rows, seen)
            if changed is not None:
                seen = [each for each in seen if changes_path(each["changed"], changed)]
            yield seen
            if len(found) < size:
                return
            place = window.query_after(found[-1])
            size = _PORTION


def visible_by_index(found: Sequence[Document], rows: RowFilter, count: int) -> list[Any]:
    """Return the visible versions in the order of the request."""
    versions = {
        record["wanted"]: Version.from_record(record)
        for record in found
        if rows.allow_version(record)
    }
    return [versions.get(n) for n in range(count)]
