"""Read of a page of current documents, prepared once and executed any number of times."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bson import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.filters.expression import Condition
from revstream.resolvers.pagination.page import Page, Window, and_queries
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.streams.core import resume_tokens
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions

__all__ = ["SCORE", "PageRead", "RelatedPageRead", "resume_token_from_time"]

SCORE = "__score"
"""Field into which the server's score of a search is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRead:
    """Read of a page for one caller, made from a `PageQuery`.

    Attributes:
        query: the filter of all pages.
        windowed: the filter of this page: `query` within the cursors.
        options: of the read in the present.
        total, token: see `PageQuery`.
        numbered: True if the filter or the order uses the version number.
        searches: True if the filter searches words.
        scored: True if the documents are ordered by how well they match a search.
    """

    entity: Entity
    window: Window
    query: Mapping[str, Any]
    windowed: Mapping[str, Any]
    options: FindOptions
    total: bool
    token: bool
    numbered: bool = False
    searches: bool = False
    scored: bool = False

    async def read(self, layout: Layout, at: Timestamp | None) -> Page[Document]:
        """Read the page.

        Args:
            layout: the layout of the collection.
            at: the cluster time to read at; None for the present.
        """
        options = self.options if at is None else replace(self.options, at=at)

        def find(beside: Mapping[str, Any]) -> Awaitable[list[Document]]:
            if self.scored:
                return layout.aggregate(and_queries(self.query, beside), self._scored(), at=at)
            return layout.find(and_queries(self.windowed, beside), options)

        reading = self.window.read(find)
        if self.total:
            counting = layout.count(self.query, at=at)
            (rows, unordered), count = await asyncio.gather(reading, counting)
        else:
            (rows, unordered), count = await reading, None
        return self.window.page(
            rows, total=count, token=resume_token_from_time(at), unordered=unordered
        )

    def _scored(self) -> list[Document]:
        """Return the stages of a page in the order of scores, which no document holds."""
        assert self.options.projection is not None
        return [
            {"$set": {SCORE: {"$meta": "textScore"}}},
            *([{"$match": self.window.query}] if self.window.query else []),
            {"$project": dict(self.options.projection)},
            {"$sort": self.window.sort},
            {"$limit": self.window.limit},
        ]


@dataclass(frozen=True, slots=True)
class RelatedPageRead:
    """Read of a page that is ordered by related values."""

    entity: Entity
    query: PageQuery[Condition]


def resume_token_from_time(at: Timestamp | None) -> str | None:
    """Return the resume token of the cluster time at which a page was read."""
    return None if at is None else resume_tokens.token_from_time(at)
