"""What is read for a page of current documents: all that its arguments decide, so that one that is
asked for again is only read again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any

from bson import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.pagination.page import Page, Window, and_queries
from revstream.streams.core import resume_tokens
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["PageQuery", "resume_token_from_time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery:
    """For one caller.

    Attributes:
        query: of all pages. windowed: of this one. numbered: it asks for the version number.
    """

    entity: Entity
    window: Window
    query: Mapping[str, Any]
    windowed: Mapping[str, Any]
    projection: Mapping[str, Any]
    total: bool
    token: bool
    numbered: bool = False

    async def read(self, layout: Layout, shown: bool, at: Timestamp | None) -> Page[Document]:
        """Args:
        layout: how the collection keeps its documents. shown: see `Current.by_ids`.
        """

        def find(beside: Mapping[str, Any]) -> Awaitable[list[Document]]:
            return layout.find(
                and_queries(self.windowed, beside),
                projection=self.projection,
                sort=self.window.keys,
                limit=self.window.limit,
                at=at,
                naive=shown,
            )

        reading = self.window.read(find)
        if self.total:
            counting = layout.count(self.query, at=at)
            (rows, unordered), count = await asyncio.gather(reading, counting)
        else:
            (rows, unordered), count = await reading, None
        return self.window.page(
            rows, total=count, token=resume_token_from_time(at), unordered=unordered
        )


def resume_token_from_time(at: Timestamp | None) -> str | None:
    """A page's resume token, of the cluster time that it was read at."""
    return None if at is None else resume_tokens.token_from_time(at)
