"""Compiled root fields that return a page of current documents.

Each implements `gql.engine.definitions.field.CompiledRootField` for one field of one query.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from revstream.gql.schema.entities.connections import (
    PageRecord,
    connection_name,
    edge_name,
    item_selections,
    parse_allowed_order,
    rendered_page_record,
    unchecked_page_record,
)
from revstream.model.definition import Model
from revstream.resolvers.access.permissions import Scope
from revstream.resolvers.current.page_query import PageQuery
from revstream.resolvers.pagination.page import Page, page_request
from revstream.streams.core.lru_cache import LruCache
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["PageQueryCache", "compile_page"]

PageQueryCache: TypeAlias = "LruCache[tuple[_CompiledPage, Scope, bytes], PageQuery]"
"""Cache of page queries by compiled field, access rights and JSON of the arguments."""


def compile_page(
    executor: PlannedExecution,
    model: Model,
    shape: ObjectTypeInfo,
    details: Any,
    readings: PageQueryCache,
) -> _CompiledPage | None:
    """Compile a root field that returns a page; None if its selection cannot be compiled.

    Args:
        executor: the execution of the query.
        model: the definition of all types.
        shape: the object type of the documents.
        details: graphql-core's field nodes of the root field.
        readings: the cache of page queries, shared by all compiled fields of this root field.
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
    return _CompiledPage(model, selected, rendering, make, readings, growth)


def _connection_growth(
    executor: PlannedExecution, connection: Any, edge: Any, details: Any
) -> float:
    """Return the growth by the fields of the connection, its edges and its page info.

    All of them count once per document. Most exist once per page, so this is an upper estimate.
    """
    growth = 0.0
    types: Any = executor.schema.type_map
    below = {"edges": edge, "pageInfo": types["PageInfo"]}
    for name, fields in executor.collect_subfields(connection, details).grouped_field_set.items():
        growth += field_growth(name)
        type_ = below.get(fields[0].node.name.value)
        if type_ is not None:
            names = executor.collect_subfields(type_, fields).grouped_field_set
            growth += sum(map(field_growth, names))
    return growth


class _CompiledPage:
    """`CompiledRootField` for a page of current documents.

    Args:
        model: the definition of all types.
        selected: the selection of the connection.
        rendering: the compiled documents.
        make: creates the response's connection from a page with rendered items.
        readings: the cache of page queries.
        growth: see `gql.engine.definitions.field.CompiledRootField`.
    """

    def __init__(
        self,
        model: Model,
        selected: ConnectionSelection,
        rendering: CompiledDocuments,
        make: Make,
        readings: PageQueryCache,
        growth: float | None,
    ) -> None:
        self.growth = growth
        self._model = model
        self._shape = rendering.shape
        self._selected = selected
        self._rendering = rendering
        self._make = make
        self._readings = readings

    async def read(
        self,
        info: ResolveInfo,
        where: Mapping[str, Any] | None = None,
        order_by: Any = None,
        **page: Any,
    ) -> tuple[Page[Document], RelatedData]:
        context = info.context
        try:
            text = orjson.dumps((where, order_by, page), option=orjson.OPT_PASSTHROUGH_SUBCLASS)
        except TypeError:
            # The arguments have values without a JSON form: no cache key.
            reading = await self._reading(context, where, order_by, page)
        else:
            key = self, context.scope, text
            kept = self._readings.get(key)
            reading = kept or await self._reading(context, where, order_by, page)
            if kept is None:
                self._readings.put(key, reading, len(text))
        rendering = self._rendering
        found = await context.current.read(reading, shown=True)
        return found, await rendering.related(context, found.items)

    async def _reading(
        self,
        context: RequestContext,
        where: Mapping[str, Any] | None,
        order_by: Any,
        page: Mapping[str, Any],
    ) -> PageQuery:
        shape, selected = self._shape, self._selected
        return context.current.reading(
            shape.entity,
            where=await context.parse_filter(self._model, shape.entity, where),
            order=parse_allowed_order(context, shape, order_by),
            page=page_request(**page),
            fields=self._rendering.fields,
            total=selected.total,
            token=selected.token,
        )

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
