"""Pages of current documents: the resolver and the compiled root fields.

A compiled root field implements `gql.engine.definitions.field.CompiledRootField` for one field of
one query.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import orjson

from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.definitions.value_tests import FALLBACK
from revstream.gql.engine.execution.compiled_documents import (
    CompiledDocuments,
    RelatedData,
    compile_documents,
    field_growth,
)
from revstream.gql.engine.execution.compiled_object import Make, compile_object
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.selection import ConnectionSelection
from revstream.gql.schema.common.orders import parse_order
from revstream.gql.schema.entities.connections import (
    PageRecord,
    connection_name,
    document_page_record,
    edge_name,
    item_selections,
    rendered_page_record,
    unchecked_page_record,
)
from revstream.model.definition import Model
from revstream.resolvers.access.permissions import Scope
from revstream.resolvers.current.page_read import PageRead, RelatedPageRead
from revstream.resolvers.filters.expression import Condition
from revstream.resolvers.pagination.page import Page, page_request
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.streams.core.lru_cache import LruCache
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["PageReadCache", "compile_page", "page_read_cache", "page_resolver"]

# Bounds per root field: a read takes about 1 KB, in addition to the text of its arguments.
_CACHED_QUERIES = 1000
_CACHED_QUERIES_BYTES = 500_000

PageReadCache: TypeAlias = (
    "LruCache[tuple[_CompiledPage, Scope, bytes], PageRead | RelatedPageRead]"
)
"""Cache of reads by compiled field, access rights and JSON of the arguments."""


def page_read_cache() -> PageReadCache:
    """Return an empty cache for the compiled fields of one root field."""
    return LruCache(most=_CACHED_QUERIES, most_size=_CACHED_QUERIES_BYTES)


def page_resolver(model: Model, shape: ObjectTypeInfo) -> Callable[..., Awaitable[PageRecord]]:
    """Return the resolver of a root field that returns a page of current documents."""

    async def resolve(
        _root: None,
        info: ResolveInfo,
        where: Mapping[str, Any] | None = None,
        order_by: Any = None,
        search: str | None = None,
        **page: Any,
    ) -> PageRecord:
        context = info.context
        matching = await context.parse_filter(model, shape.entity, where, None)
        selections = context.selections(info)
        selected = selections.connection(
            info.field_nodes, connection_name(shape.name), edge_name(shape.name)
        )
        query: PageQuery[Condition] = PageQuery(
            where=context.searched(model, shape.entity, search, matching),
            order=await parse_order(context, shape, order_by, None),
            page=page_request(**page),
            fields=selections.stored(selected.items, shape, shape.name),
            total=selected.total,
            token=selected.token,
            # A compiled query only shows the documents: it compares no states.
            for_output=context.assumes_valid,
        )
        found = await context.services.current.page(shape.entity, query)
        return await document_page_record(info, shape, found, selected.items)

    return resolve


def compile_page(
    executor: PlannedExecution,
    model: Model,
    shape: ObjectTypeInfo,
    details: Any,
    cache: PageReadCache,
) -> _CompiledPage | None:
    """Compile a root field that returns a page; None if its selection cannot be compiled.

    Args:
        executor: the execution of the query.
        model: the definition of all types.
        shape: the object type of the documents.
        details: graphql-core's field nodes of the root field.
        cache: the cache of reads, shared by all compiled fields of this root field.
    """
    selections = executor.plan.selections
    if selections is None:
        return None
    nodes = [each.node for each in details]
    selected = selections.connection(nodes, connection_name(shape.name), edge_name(shape.name))
    types: Any = executor.schema.type_map
    connection = types[connection_name(shape.name)]
    places = item_selections(executor, shape.name, details)
    if len(places) > 1:
        # `nodes` and `edges.node` may select different fields of the same documents.
        return None
    rendering = compile_documents(executor, shape, places[0] if places else [])
    make = compile_object(executor, connection, details, ready=types[shape.name])
    if rendering is None or make is None:
        return None
    growth = rendering.growth
    if growth is not None:
        growth += _connection_growth(executor, connection, types[edge_name(shape.name)], details)
    return _CompiledPage(model, selected, rendering, make, cache, growth)


def _connection_growth(
    executor: PlannedExecution, connection: Any, edge: Any, details: Any
) -> float:
    """Return the growth by the fields of the connection, its edges and its page info.

    All of them count once per document. Most exist once per page, so this is an upper estimate.
    """
    growth = 0.0
    types: Any = executor.schema.type_map
    below = {"edges": edge, "pageInfo": types["PageInfo"]}
    for name, fields in executor.selected_fields(connection, details).items():
        growth += field_growth(name)
        type_ = below.get(fields[0].node.name.value)
        if type_ is not None:
            names = executor.selected_fields(type_, fields)
            growth += sum(map(field_growth, names))
    return growth


class _CompiledPage:
    """`CompiledRootField` for a page of current documents.

    Args:
        model: the definition of all types.
        selected: the selection of the connection.
        rendering: the compiled documents.
        make: creates the response's connection from a page with rendered items.
        cache: the cache of reads.
        growth: see `gql.engine.definitions.field.CompiledRootField`.
    """

    def __init__(
        self,
        model: Model,
        selected: ConnectionSelection,
        rendering: CompiledDocuments,
        make: Make,
        cache: PageReadCache,
        growth: float | None,
    ) -> None:
        self.growth = growth
        self._model = model
        self._shape = rendering.shape
        self._selected = selected
        self._rendering = rendering
        self._make = make
        self._cache = cache

    async def read(
        self,
        info: ResolveInfo,
        where: Mapping[str, Any] | None = None,
        order_by: Any = None,
        search: str | None = None,
        **page: Any,
    ) -> tuple[Page[Document], RelatedData]:
        context = info.context
        prepare = partial(self._prepare, context, where, order_by, search, page)
        try:
            given = (where, order_by, search, page)
            text = orjson.dumps(given, option=orjson.OPT_PASSTHROUGH_SUBCLASS)
        except TypeError:
            # The arguments have values without a JSON form: no cache key.
            page_read, _ = await prepare()
        else:
            key = self, context.scope, text
            kept = self._cache.get(key)
            page_read, lasting = (kept, False) if kept else await prepare()
            if lasting:
                self._cache.put(key, page_read, len(text))
        rendering = self._rendering
        found = await context.services.current.read(page_read)
        return found, await rendering.related(context, found.items)

    async def _prepare(
        self,
        context: RequestContext,
        where: Mapping[str, Any] | None,
        order_by: Any,
        search: str | None,
        page: Mapping[str, Any],
    ) -> tuple[PageRead | RelatedPageRead, bool]:
        """Return the read, and whether it is the same in the next request."""
        shape, selected = self._shape, self._selected
        parsed = await context.parse_unresolved(self._model, shape.entity, where)
        condition = await context.resolve_references(parsed, None)
        query: PageQuery[Condition] = PageQuery(
            where=context.searched(self._model, shape.entity, search, condition),
            order=await parse_order(context, shape, order_by, None),
            page=page_request(**page),
            fields=self._rendering.fields,
            total=selected.total,
            token=selected.token,
            for_output=True,
        )
        page_read = context.services.current.prepare_read(shape.entity, query)
        # The ids to which references lead change.
        return page_read, condition is parsed

    def render(self, found: tuple[Page[Document], RelatedData], context: RequestContext) -> Any:
        page, related = found
        if page.unordered:
            return FALLBACK
        items = self._rendering.render(page.items, related, context)
        return (
            items
            if items is FALLBACK
            else self._make(rendered_page_record(context, page, items), context)
        )

    def record(self, found: tuple[Page[Document], RelatedData], info: ResolveInfo) -> PageRecord:
        page, related = found
        documents = self._rendering.records(page.items, related, info.context)
        return unchecked_page_record(info, documents, page, self._shape, self._selected.items)
