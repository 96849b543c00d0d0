"""Documents now or at a time point in one field: pages of past documents, compiled fields.

A compiled root field implements `gql.engine.definitions.field.CompiledRootField`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from bson import Timestamp
from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, CompiledRootField, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.definitions.value_tests import FALLBACK
from revstream.gql.engine.execution.compiled_object import Make, compile_object, give_up
from revstream.gql.engine.execution.compiled_query import ResolvedField
from revstream.gql.engine.execution.compiled_snapshots import (
    CompiledRecords,
    RelatedStates,
    compile_snapshots,
)
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.invalid_documents import (
    report_invalid_snapshots,
    report_unordered,
)
from revstream.gql.engine.request.selection import ConnectionSelection, Nodes, Selections
from revstream.gql.engine.request.source import SnapshotDocument
from revstream.gql.schema.entities.connections import (
    PAGE_ARGUMENTS,
    PageRecord,
    connection_name,
    edge_name,
    encoded_token,
    filter_arguments,
    item_selections,
    rendered_page_record,
)
from revstream.gql.schema.entities.document_pages import (
    compile_page,
    page_read_cache,
    page_resolver,
)
from revstream.gql.schema.entities.version_pages import (
    VersionPageReader,
    VersionReadOptions,
    as_of_reader,
    decode_page,
)
from revstream.model.definition import Model
from revstream.resolvers.pagination.page import Page
from revstream.streams.core import resume_tokens

__all__ = [
    "STATE_AS_OF",
    "CompiledStates",
    "page_with_token",
    "snapshot_page_record",
    "state_list_field",
]

STATE_AS_OF = Argument("asOf", "TimePoint", "The time point. Default: now.")


def state_list_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    """Return the root field of a page of documents, current ones or those at a time point."""
    current, read = page_resolver(model, shape), as_of_reader(model, shape)
    cache = page_read_cache()

    async def past(_root: None, info: ResolveInfo, **arguments: Any) -> PageRecord:
        context = info.context
        selections = context.selections(info)
        selected = _selection(selections, info.field_nodes, shape)
        options = _options(selections, selected, shape, for_output=context.assumes_valid)
        page, moment = await read(context, options, **arguments)
        assert moment is not None
        found = page_with_token(page, moment)
        return snapshot_page_record(info, shape, found, moment, selected.items)

    async def resolve(
        root: None, info: ResolveInfo, as_of: Mapping[str, Any] | None = None, **arguments: Any
    ) -> PageRecord:
        if as_of is None:
            return await current(root, info, **arguments)
        return await past(root, info, as_of=as_of, **arguments)

    def prepare(executor: PlannedExecution, details: Any) -> CompiledStates | None:
        page = compile_page(executor, model, shape, details, cache)
        if page is None:
            return None
        snapshots = _compile_snapshots(executor, shape, details, read)
        return CompiledStates(page, snapshots or ResolvedField(past, give_up))

    return Resolve(
        f"{shape.entity.singular}States",
        f"{connection_name(shape.state)}!",
        f"The documents of `{shape.entity.collection}` now, or at a time point, filtered, sorted "
        "and paged: one type for both.",
        resolve,
        (STATE_AS_OF, *filter_arguments(shape), *PAGE_ARGUMENTS),
        prepare=prepare,
    )


def page_with_token(page: Page[Any], moment: Timestamp) -> Page[Any]:
    """Return the page with the resume token of its time point."""
    return replace(page, token=resume_tokens.token_from_time(moment))


def snapshot_page_record(
    info: ResolveInfo, shape: ObjectTypeInfo, page: Page[Any], moment: Timestamp, nodes: Nodes
) -> PageRecord:
    """Return the source of a page of past documents, without those whose id is invalid.

    Args:
        info: graphql-core's info of the connection's field.
        shape: the object type of the documents.
        page: the page of versions that was read, with its resume token.
        moment: the time point at which references are read.
        nodes: the field nodes that select the documents' fields.
    """
    snapshots = [
        SnapshotDocument(shape, each.full or {"_id": each.document}, each.number, moment)
        for each in decode_page(page).items
    ]
    report_unordered(info, page)
    fits = report_invalid_snapshots(info, snapshots, shape, nodes)
    token, name = encoded_token(info.context, page), connection_name(shape.snapshot)
    return PageRecord(snapshots, fits, page, token, type_name=name)


class CompiledStates:
    """`CompiledRootField` with an argument `asOf`, made of two.

    Args:
        current: the field for current documents, without the argument.
        past: the field for past documents.
    """

    growth = None

    def __init__(self, current: CompiledRootField, past: CompiledRootField) -> None:
        self._current = current
        self._past = past

    async def read(
        self, info: ResolveInfo, as_of: Mapping[str, Any] | None = None, **arguments: Any
    ) -> tuple[CompiledRootField, Any] | None:
        chosen, given = self._current, arguments
        if as_of is not None:
            chosen, given = self._past, {"as_of": as_of, **arguments}
        found = await chosen.read(info, **given)
        return None if found is None else (chosen, found)

    def render(self, found: tuple[CompiledRootField, Any], context: RequestContext) -> Any:
        chosen, read = found
        return chosen.render(read, context)

    def record(self, found: tuple[CompiledRootField, Any], info: ResolveInfo) -> Any:
        chosen, read = found
        return chosen.record(read, info)


def _selection(selections: Selections, nodes: Nodes, shape: ObjectTypeInfo) -> ConnectionSelection:
    return selections.connection(nodes, connection_name(shape.snapshot), edge_name(shape.snapshot))


def _options(
    selections: Selections,
    selected: ConnectionSelection,
    shape: ObjectTypeInfo,
    *,
    for_output: bool,
) -> VersionReadOptions:
    return {
        "fields": selections.stored(selected.items, shape, shape.snapshot),
        "facts": frozenset(),
        "total": selected.total,
        "for_output": for_output,
    }


def _compile_snapshots(
    executor: PlannedExecution, shape: ObjectTypeInfo, details: Any, read: VersionPageReader
) -> _CompiledSnapshots | None:
    selections = executor.plan.selections
    places = item_selections(executor, shape.snapshot, details)
    if selections is None or len(places) > 1:
        # `nodes` and `edges.node` may select different fields of the same documents.
        return None
    types: Any = executor.schema.type_map
    rendering = compile_snapshots(executor, shape, places[0] if places else [])
    connection = types[connection_name(shape.snapshot)]
    make = compile_object(executor, connection, details, ready=types[shape.snapshot])
    if rendering is None or make is None:
        return None
    selected = _selection(selections, [each.node for each in details], shape)
    options = _options(selections, selected, shape, for_output=True)
    return _CompiledSnapshots(rendering, make, selected.items, read, options)


_SnapshotRead: TypeAlias = "tuple[Page[Any], Timestamp, RelatedStates]"
"""Page of versions at a time point, and the documents to which references lead."""


class _CompiledSnapshots:
    """`CompiledRootField` for a page of past documents.

    Args:
        rendering: the compiled documents.
        make: creates the response's connection from a page with rendered items.
        items: the field nodes that select the documents' fields.
        read: the reader of the page.
        options: the options of the read.
    """

    growth = None

    def __init__(
        self,
        rendering: CompiledRecords,
        make: Make,
        items: Nodes,
        read: VersionPageReader,
        options: VersionReadOptions,
    ) -> None:
        self._rendering = rendering
        self._make = make
        self._items = items
        self._read = read
        self._options = options

    async def read(self, info: ResolveInfo, **arguments: Any) -> _SnapshotRead:
        page, moment = await self._read(info.context, self._options, **arguments)
        assert moment is not None
        related = await self._rendering.related(info.context, page.items, moment)
        return page_with_token(page, moment), moment, related

    def render(self, found: _SnapshotRead, context: RequestContext) -> Any:
        page, moment, related = found
        rows = (
            FALLBACK if page.unordered else self._rendering.render(page, context, moment, related)
        )
        return (
            rows
            if rows is FALLBACK
            else self._make(rendered_page_record(context, page, rows), context)
        )

    def record(self, found: _SnapshotRead, info: ResolveInfo) -> PageRecord:
        page, moment, related = found
        self._rendering.remember(related, info.context, moment)
        return snapshot_page_record(info, self._rendering.shape, page, moment, self._items)
