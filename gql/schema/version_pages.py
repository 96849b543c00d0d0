"""Pages of versions, compiled for one place of a query: see `gql.fields.Prepared`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from bson import Timestamp

from gql.context import Context, ResolveInfo
from gql.executor import Executor
from gql.generated import GIVEN_UP, Make, made_of
from gql.schema.connections import (
    PageRecord,
    VersionReading,
    connection_name,
    item_places,
    selected_versions,
    shown_page,
    version_page,
    version_reading,
)
from gql.selection import Nodes
from gql.shapes import Shape
from gql.version_rendering import VersionRendering, version_rendering_of
from resolvers.pages import Page
from streams.documents import Document

__all__ = [
    "FoundVersions",
    "VersionPage",
    "prepare_versions",
    "resolve_versions",
    "version_page_of",
]

FoundVersions: TypeAlias = "tuple[Page[Any], Timestamp | None]"
"""A page, and the moment of an as-of root."""
ReadVersions: TypeAlias = "Callable[..., Awaitable[FoundVersions]]"
"""(context, what of the page is read, the field's arguments by keyword) -> the page."""


class VersionPage:
    """Args:
    make: the connection, from a page whose items are as the response has them.
    """

    def __init__(self, rendering: VersionRendering, make: Make) -> None:
        self.shape = rendering.shape
        self._rendering = rendering
        self._make = make

    def made(self, page: Page[Document], context: Context, moment: Timestamp | None = None) -> Any:
        """What the response has of it, or GIVEN_UP."""
        rows = self._rendering.made(page, context, moment)
        return rows if rows is GIVEN_UP else self._make(shown_page(context, page, rows), context)


def version_page_of(executor: Executor, shape: Shape, details: Any) -> VersionPage | None:
    """None where something of it takes a closer look.

    Args:
        details: where the connection is selected, as graphql-core collects it.
    """
    places = item_places(executor, shape.version, details)
    if len(places) > 1:
        # Each place has another part of the same versions.
        return None
    types: Any = executor.schema.type_map
    rendering = version_rendering_of(executor, shape, places[0] if places else [])
    connection = types[connection_name(shape.version)]
    make = made_of(executor, connection, details, ready=types[shape.version])
    return None if rendering is None or make is None else VersionPage(rendering, make)


def resolve_versions(shape: Shape, read: ReadVersions) -> Callable[..., Awaitable[PageRecord]]:
    """What a root field does that gives a page of versions."""

    async def resolve(_root: None, info: ResolveInfo, **arguments: Any) -> PageRecord:
        selections = info.context.selections(info)
        selected = selected_versions(selections, info.field_nodes, shape)
        reading = version_reading(info.context, selections, selected, shape)
        page, moment = await read(info.context, reading, **arguments)
        return version_page(info, shape, page, selected.items, moment)

    return resolve


def prepare_versions(
    shape: Shape, read: ReadVersions
) -> Callable[[Executor, Any], _PreparedVersions | None]:
    """The same, compiled for one place of a query."""

    def prepare(executor: Executor, details: Any) -> _PreparedVersions | None:
        page, selections = version_page_of(executor, shape, details), executor.plan.selections
        if page is None or selections is None:
            return None
        selected = selected_versions(selections, [each.node for each in details], shape)
        reading = version_reading(None, selections, selected, shape)
        return _PreparedVersions(page, selected.items, read, reading)

    return prepare


class _PreparedVersions:
    """Args:
    items: where the versions' fields are selected.
    """

    def __init__(
        self, page: VersionPage, items: Nodes, read: ReadVersions, reading: VersionReading
    ) -> None:
        self._page = page
        self._items = items
        self._read = read
        self._reading = reading

    async def read(self, info: ResolveInfo, **arguments: Any) -> FoundVersions:
        return await self._read(info.context, self._reading, **arguments)

    def made(self, found: FoundVersions, context: Context) -> Any:
        page, moment = found
        return self._page.made(page, context, moment)

    def record(self, found: FoundVersions, info: ResolveInfo) -> PageRecord:
        page, moment = found
        return version_page(info, self._page.shape, page, self._items, moment)
