"""Filter and sort records of which the server cannot see the content: it is put together here and
given back to the server, so that filters and orders mean what they always mean.

Costs what it judges: each content is read, made and sent once more, of it only what the filter and
the order look at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import bson

from revstream.resolvers.pagination.keyset import Keys
from revstream.resolvers.pagination.page import SORT_KEY
from revstream.streams.archive.store import Archive
from revstream.streams.layouts.core.sort_key import sort_key_expressions
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED, Document

__all__ = ["ContentFilter"]

PipelineStages = list[Mapping[str, Any]]

# A command may have 16 MB.
_MOST_BYTES = 8 * 1024 * 1024


class ContentFilter:
    """Filter over versions whose contents lie outside of their records.

    Args:
        where: A query over records.
        names: The top-level fields of the content that the filter, and any order, needs.
    """

    def __init__(
        self, mongo: Mongo, archive: Archive, where: Mapping[str, Any], names: frozenset[str]
    ) -> None:
        self._mongo = mongo
        self._archive = archive
        self._where = where
        self._names = names

    async def matching(self, records: Sequence[Document]) -> list[Document]:
        """Return the matching versions with their contents, in their order."""
        whole = await self._archive.contents.fill(records)
        found: set[int] = set()
        for rows in self._portions(whole):
            stages: PipelineStages = [{"$match": self._where}, {"$project": {"n": 1}}]
            found.update(each["n"] for each in await self._asked(rows, stages))
        return [record for n, record in enumerate(whole) if n in found]

    async def first(
        self, records: Sequence[Document], place: Mapping[str, Any], order: Keys, limit: int
    ) -> list[Document]:
        """Return the first `limit` matching versions after a place in an order, each with its sort
        key.
        """
        whole = await self._archive.contents.fill(records)
        found: list[Document] = []
        portions = list(self._portions(whole))
        while portions:
            rows = portions.pop()
            stages: PipelineStages = [
                {"$match": {"$and": [self._where, place]}},
                {"$sort": dict(order)},
                {"$limit": limit},
                {"$project": {"n": 1, SORT_KEY: sort_key_expressions(order)}},
            ]
            found = await self._asked(rows, stages)
            if portions:
                # What may be among the first goes on with the next portion.
                kept = {each["n"] for each in found}
                portions[-1] += [row for row in rows if row["n"] in kept]
        return [{**whole[each["n"]], SORT_KEY: each[SORT_KEY]} for each in found]

    async def _asked(self, rows: Sequence[Document], stages: PipelineStages) -> list[Document]:
        # literal: values such as "$name" are no field paths
        return await self._mongo.aggregate(None, [{"$documents": {"$literal": rows}}, *stages])

    def _portions(self, records: Sequence[Document]) -> Iterator[list[Document]]:
        rows: list[Document] = []
        size = 0
        for n, record in enumerate(records):
            content = record.get("full") or {}
            seen = {name: content[name] for name in self._names if name in content}
            row = {"n": n, "_id": record["_id"], "doc": record["doc"], "v": record["v"]}
            row["full"] = seen
            size += len(bson.encode(row, codec_options=DECODED))
            if size > _MOST_BYTES and rows:
                yield rows
                rows, size = [], 0
            rows.append(row)
        if rows:
            yield rows
