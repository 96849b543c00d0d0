"""Pages of versions: of single documents, and of all documents of a collection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from revstream.model.definition import Entity
from revstream.resolvers.access.row_filter import RowFilter
from revstream.resolvers.history.row_filtered_pages import RowFilteredPages
from revstream.resolvers.history.version_filter import VersionFilter
from revstream.resolvers.pagination.keyset import Keyset
from revstream.resolvers.pagination.page import Page, Window
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.pagination.pages_by_parent import pages_by_key
from revstream.resolvers.pagination.projection import record_projection
from revstream.streams.archive.store import Archive
from revstream.streams.layouts.core.plain_collection import lookup_by_field
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.versioning.version import Version

__all__ = ["VersionPages"]


class VersionPages:
    """Reads of pages from all archives; `rows` are those that are there for the caller."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo

    async def of_documents(
        self,
        archive: Archive,
        entity: Entity,
        rows: RowFilter,
        ids: Sequence[Any],
        reading: PageQuery[VersionFilter],
    ) -> list[Page[Any]]:
        """N ids -> a page each of the document's versions, newest first, in one command."""
        make, where = _item_renderer(reading.for_output), reading.where
        keyset = Keyset(f"versions of one {entity.name}", (("v", -1),), uniform=True)
        window = Window(keyset, reading.page)
        sifting = RowFilteredPages(archive, entity, rows)
        if await sifting.is_needed(where):
            reads = (sifting.page({"doc": {"$eq": key}}, window, reading, make) for key in ids)
            return list(await asyncio.gather(*reads))
        query = sifting.query({} if where is None else where.query)
        projection = record_projection(reading.fields, reading.facts)
        if len(ids) == 1 and ids[0] is not None and not reading.total:
            own = {"doc": {"$eq": ids[0]}}
            # A third of what the lookup costs that many take.
            found = await archive.find(
                window.limited_to({"$and": [own, query]} if query else own),
                FindOptions(
                    projection=projection,
                    sort=window.keys,
                    limit=window.limit,
                    short=True,
                    naive=reading.for_output,
                ),
            )
            return [window.page(found, make)]
        return await pages_by_key(
            self._mongo,
            lookup_by_field(archive.name, "doc"),
            ids,
            query=query,
            window=window,
            projection=projection,
            make=make,
            total=reading.total,
            filled=archive.contents.fill,
        )

    async def of_all(
        self,
        archive: Archive,
        entity: Entity,
        rows: RowFilter,
        reading: PageQuery[VersionFilter],
    ) -> Page[Any]:
        """A page of the versions of all documents, newest first: in the order of the stream."""
        make, where = _item_renderer(reading.for_output), reading.where
        keyset = Keyset(f"versions of all {entity.name}", (("_id", -1),), uniform=True)
        window = Window(keyset, reading.page)
        sifting = RowFilteredPages(archive, entity, rows)
        if await sifting.is_needed(where):
            return await sifting.page({}, window, reading, make)
        query = sifting.query({} if where is None else where.query)
        finding = archive.find(
            window.limited_to(query),
            FindOptions(
                projection=window.projected(record_projection(reading.fields, reading.facts)),
                sort=window.keys,
                limit=window.limit,
                short=True,
                naive=reading.for_output,
            ),
        )
        if reading.total:
            found, count = await asyncio.gather(finding, self._mongo.count(archive.name, query))
        else:
            found, count = await finding, None
        return window.page(found, make, total=count)


def _item_renderer(for_output: bool) -> Callable[[Document], Any] | None:
    return None if for_output else Version.from_record
