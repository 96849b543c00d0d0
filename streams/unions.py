"""Several pages of one collection in one command.

Guarantees: each page is the one that a read of its own finds at that time, and none has a document
of another.
Source: MongoDB's manual, "$unionWith (aggregation)".
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import bson

from streams.documents import DECODED, Document

__all__ = ["PageUnion"]

# Between two pages comes what no document is: one without an `_id`.
_BOUND: Document = {"$unionWith": {"pipeline": [{"$documents": [{}]}]}}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageUnion:
    """A page for each query.

    Attributes:
        projection: shows `_id`.
        limit: documents of each page.
    """

    queries: Sequence[Mapping[str, Any]]
    projection: Mapping[str, Any]
    sort: Sequence[tuple[str, int]]
    limit: int

    @property
    def names(self) -> list[Hashable]:
        """Of each page; equal where the same is asked for."""
        alike = {"projection": self.projection, "sort": dict(self.sort), "limit": self.limit}
        kind = bson.encode(alike, codec_options=DECODED)
        return [(kind, bson.encode(query, codec_options=DECODED)) for query in self.queries]

    def pipeline(self, collection: str) -> list[Document]:
        """That finds all of them."""
        stages: list[Document] = []
        for query in self.queries:
            page: list[Document] = [
                {"$match": query},
                {"$sort": dict(self.sort)},
                {"$limit": self.limit},
                {"$project": self.projection},
            ]
            if stages:
                stages += [_BOUND, {"$unionWith": {"coll": collection, "pipeline": page}}]
            else:
                stages = page
        return stages

    def parted(self, found: Sequence[Document]) -> list[list[Document]]:
        """What it finds, page by page.

        Raises:
            ValueError: that are not as many pages as queries.
        """
        pages: list[list[Document]] = [[]]
        page = pages[0]
        for document in found:
            if document:
                page.append(document)
            else:
                page = []
                pages.append(page)
        if len(pages) != len(self.queries):
            raise ValueError(f"{len(pages)} pages were found by {len(self.queries)} queries")
        return pages
