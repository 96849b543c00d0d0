"""Reads of current documents that are stored as the API shows them.

No stage is put before the query, and every index can be used.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from bson import Timestamp

from revstream.streams.layouts.core.interface import Layout
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import NO_OPTIONS, FindOptions

__all__ = ["PlainCollectionLayout", "lookup_by_field"]


class PlainCollectionLayout(Layout):
    """Layout whose collection stores current documents as the API serves them."""

    async def find(
        self,
        query: Mapping[str, Any],
        options: FindOptions = NO_OPTIONS,
    ) -> list[Any]:
        return await self.mongo.find(self.collection, query, options)

    async def count(self, query: Mapping[str, Any], *, at: Timestamp | None = None) -> int:
        return await self.mongo.count(self.collection, query, at=at)

    async def aggregate(
        self,
        query: Mapping[str, Any],
        stages: Sequence[Mapping[str, Any]],
        *,
        at: Timestamp | None = None,
    ) -> list[Document]:
        pipeline = [{"$match": query}, *stages]
        return await self.mongo.aggregate(self.collection, pipeline, at=at, in_memory=True)

    def pages(
        self, query: Mapping[str, Any], *, size: int, at: Timestamp
    ) -> AsyncGenerator[list[Document]]:
        return self.mongo.pages(self.collection, query, sort=[("_id", 1)], size=size, at=at)

    def lookup_stages(self, field: str) -> tuple[Document, list[Document]]:
        return lookup_by_field(self.collection, field)


def lookup_by_field(collection: str, field: str) -> tuple[Document, list[Document]]:
    """Return `Layout.lookup_stages` for the documents of any collection."""
    # Uses localField: MongoDB puts it before the pipeline as a plain match, which can use any
    # index, where `$expr` cannot use those over lists.
    return {"from": collection, "localField": "key", "foreignField": field}, []
