"""Pages of versions: their read options, their sources, and compiled root fields.

A compiled root field implements `gql.engine.definitions.field.CompiledRootField`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias, TypedDict

from bson import Timestamp

from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.definitions.value_tests import FALLBACK
from revstream.gql.engine.execution.compiled_object import Make, compile_object
from revstream.gql.engine.execution.compiled_snapshots import CompiledRecords, RelatedStates
from revstream.gql.engine.execution.compiled_versions import compile_records
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.invalid_documents import report_invalid_versions, report_unordered
from revstream.gql.engine.request.selection import ConnectionSelection, Nodes, Selections
from revstream.gql.engine.request.source import VersionRecord
from revstream.gql.schema.common.orders import parse_order
from revstream.gql.schema.entities.connections import (
    PageRecord,
    connection_name,
    edge_name,
    item_selections,
    rendered_page_record,
)
from revstream.model.definition import Model
from revstream.resolvers.filters.expression import Condition
from revstream.resolvers.pagination.page import Page, page_request
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.pagination.projection import Fields
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version

__all__ = [
    "VersionPage",
    "VersionPageReader",
    "VersionReadOptions",
    "as_of_reader",
    "compiled_versions",
    "decode_page",
    "version_field_compiler",
    "version_field_resolver",
    "version_page_record",
    "version_read_options",
    "version_records",
    "version_selection",
]

VersionPage: TypeAlias = "tuple[Page[Any], Timestamp | None]"
"""Page of versions, and the time point of an as-of read."""
VersionPageReader: TypeAlias = "Callable[..., Awaitable[VersionPage]]"
"""Reader of a page of versions: (context, read options, arguments by keyword) -> page."""


class VersionReadOptions(TypedDict):
    """Options of a read of versions, for `resolvers.history.versions`."""

    fields: Fields | None
    facts: frozenset[str]
    total: bool
    for_output: bool


def version_selection(
    selections: Selections, nodes: Nodes, shape: ObjectTypeInfo
) -> ConnectionSelection:
    """Return the selection of a connection of versions."""
    return selections.connection(nodes, connection_name(shape.version), edge_name(shape.version))


def version_read_options(
    context: RequestContext | None,
    selections: Selections,
    selected: ConnectionSelection,
    shape: ObjectTypeInfo,
) -> VersionReadOptions:
    """Return options that read only what the operation selects.

    Args:
        context: the context of the operation; None in a compiled query.
        selections: all selections of the operation.
        selected: the selection of the connection.
        shape: the object type of the documents.
    """
    versions = selections.version(selected.items, shape)
    return {
        "fields": versions.fields,
        "facts": versions.facts,
        "total": selected.total,
        "for_output": context is None or context.assumes_valid,
    }


def version_page_record(
    info: ResolveInfo,
    shape: ObjectTypeInfo,
    page: Page[Any],
    nodes: Nodes,
    moment: Timestamp | None = None,
) -> PageRecord:
    """Return the source of a page of versions, without those whose document id is invalid.

    A compiled query detects an invalid id when it renders it, so its page is not checked here.

    Args:
        info: graphql-core's info of the connection's field.
        shape: the object type of the documents.
        page: the page that was read.
        nodes: the field nodes that select the versions' fields.
        moment: the time point of an as-of read; None: references are read at each version's time.
    """
    versions = version_records(shape, page, moment)

    def known() -> PageRecord:
        report_unordered(info, page)
        return PageRecord(versions, report_invalid_versions(info, versions, shape, nodes), page)

    async def checked() -> PageRecord:
        return known()

    if info.context.assumes_valid and not page.unordered:
        return PageRecord(versions, None, page, checked=checked)
    return known()


def version_records(
    shape: ObjectTypeInfo, page: Page[Any], moment: Timestamp | None = None
) -> list[VersionRecord]:
    """Return the sources of a page's versions, each with its predecessor if that was read."""
    page = decode_page(page)
    read: dict[str | None, Version] = {each.token: each for each in page.items}
    if page.beyond is not None:
        read[page.beyond.token] = page.beyond
    return [
        VersionRecord(shape, each, moment, read.get(each.previous), page.ends)
        for each in page.items
    ]


def decode_page(page: Page[Any]) -> Page[Version]:
    """Convert records to versions: a page for a compiled query has raw records."""
    records = not isinstance(page.items[0] if page.items else page.beyond, Version | None)
    return page.transform(Version.from_record) if records else page


class CompiledVersions:
    """Compiled connection of versions.

    Args:
        rendering: the compiled versions.
        make: creates the response's connection from a page with rendered items.
    """

    def __init__(self, rendering: CompiledRecords, make: Make) -> None:
        self.shape = rendering.shape
        self._rendering = rendering
        self._make = make

    async def related(
        self, context: RequestContext, page: Page[Document], moment: Timestamp | None
    ) -> RelatedStates:
        """Read the documents to which references lead; see `CompiledRecords.related`."""
        if moment is None:
            return ()
        return await self._rendering.related(context, page.items, moment)

    def remember(self, related: RelatedStates, context: RequestContext, moment: Timestamp) -> None:
        """Store what `related` has read; see `CompiledRecords.remember`."""
        self._rendering.remember(related, context, moment)

    def render(
        self,
        page: Page[Document],
        context: RequestContext,
        moment: Timestamp | None = None,
        related: RelatedStates = (),
    ) -> Any:
        """Return the response's value of a page, or FALLBACK."""
        rows = (
            FALLBACK if page.unordered else self._rendering.render(page, context, moment, related)
        )
        return (
            rows
            if rows is FALLBACK
            else self._make(rendered_page_record(context, page, rows), context)
        )


def compiled_versions(
    executor: PlannedExecution, shape: ObjectTypeInfo, details: Any, *, as_of: bool = False
) -> CompiledVersions | None:
    """Compile a connection of versions; None if its selection cannot be compiled.

    Args:
        executor: the execution of the query.
        shape: the object type of the documents.
        details: graphql-core's field nodes of the connection.
        as_of: its versions are of one time point.
    """
    places = item_selections(executor, shape.version, details)
    if len(places) > 1:
        # `nodes` and `edges.node` may select different fields of the same versions.
        return None
    types: Any = executor.schema.type_map
    rendering = compile_records(executor, shape, places[0] if places else [], as_of=as_of)
    connection = types[connection_name(shape.version)]
    make = compile_object(executor, connection, details, ready=types[shape.version])
    return None if rendering is None or make is None else CompiledVersions(rendering, make)


def as_of_reader(model: Model, shape: ObjectTypeInfo) -> VersionPageReader:
    """Return the reader of a page of the documents of an entity at a time point."""

    async def read(
        context: RequestContext,
        reading: VersionReadOptions,
        as_of: Mapping[str, Any],
        where: Mapping[str, Any] | None = None,
        order_by: Any = None,
        **page: Any,
    ) -> VersionPage:
        moment = await context.loads.moment(shape.entity, as_of.get("time"), as_of.get("token"))
        query: PageQuery[Condition] = PageQuery(
            where=await context.parse_filter(model, shape.entity, where, moment.at),
            order=await parse_order(context, shape, order_by, moment.at),
            page=page_request(**page),
            **reading,
        )
        found = await context.services.history.collection_as_of(shape.entity, moment, query)
        return found, moment.at

    return read


def version_field_resolver(
    shape: ObjectTypeInfo, read: VersionPageReader
) -> Callable[..., Awaitable[PageRecord]]:
    """Return the resolver of a root field that returns a page of versions."""

    async def resolve(_root: None, info: ResolveInfo, **arguments: Any) -> PageRecord:
        selections = info.context.selections(info)
        selected = version_selection(selections, info.field_nodes, shape)
        reading = version_read_options(info.context, selections, selected, shape)
        page, moment = await read(info.context, reading, **arguments)
        return version_page_record(info, shape, page, selected.items, moment)

    return resolve


def version_field_compiler(
    shape: ObjectTypeInfo, read: VersionPageReader, *, as_of: bool = False
) -> Callable[[PlannedExecution, Any], _CompiledVersionField | None]:
    """Return the function that compiles a root field that returns a page of versions.

    Args:
        as_of: the reader returns a time point.
    """

    def prepare(executor: PlannedExecution, details: Any) -> _CompiledVersionField | None:
        page = compiled_versions(executor, shape, details, as_of=as_of)
        selections = executor.plan.selections
        if page is None or selections is None:
            return None
        selected = version_selection(selections, [each.node for each in details], shape)
        reading = version_read_options(None, selections, selected, shape)
        return _CompiledVersionField(page, selected.items, read, reading)

    return prepare


class _CompiledVersionField:
    """`CompiledRootField` for a page of versions.

    Args:
        page: the compiled connection.
        items: the field nodes that select the versions' fields.
        read: the reader of the page.
        reading: the options of the read.
    """

    growth = None

    def __init__(
        self,
        page: CompiledVersions,
        items: Nodes,
        read: VersionPageReader,
        reading: VersionReadOptions,
    ) -> None:
        self._page = page
        self._items = items
        self._read = read
        self._reading = reading

    async def read(self, info: ResolveInfo, **arguments: Any) -> tuple[VersionPage, RelatedStates]:
        found = await self._read(info.context, self._reading, **arguments)
        return found, await self._page.related(info.context, *found)

    def render(self, found: tuple[VersionPage, RelatedStates], context: RequestContext) -> Any:
        (page, moment), related = found
        return self._page.render(page, context, moment, related)

    def record(self, found: tuple[VersionPage, RelatedStates], info: ResolveInfo) -> PageRecord:
        (page, moment), related = found
        if moment is not None:
            self._page.remember(related, info.context, moment)
        return version_page_record(info, self._page.shape, page, self._items, moment)
