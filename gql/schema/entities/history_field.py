"""Field `history` of a current document: its versions.

They are read at the same time as the document, and for all documents of a list together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.arguments import Arguments
from revstream.gql.engine.definitions.field import Argument, CompleteValue, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.definitions.value_tests import FALLBACK
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.selection import Nodes, Selections
from revstream.gql.engine.request.source import CurrentDocument
from revstream.gql.schema.entities.connections import PAGE_ARGUMENTS, PageRecord, connection_name
from revstream.gql.schema.entities.version_pages import (
    VersionReadOptions,
    compiled_versions,
    version_page_record,
    version_read_options,
    version_records,
    version_selection,
)
from revstream.model.definition import Model
from revstream.resolvers.history.version_filter import parse_version_where
from revstream.resolvers.pagination.page import Page, page_request
from revstream.resolvers.pagination.page_query import PageQuery

__all__ = ["VERSION_WHERE", "history_field"]

VERSION_WHERE = Argument("where", "VersionWhere", "Only versions that match.")


def history_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    """Return the field `history` of a current document."""

    async def history(source: CurrentDocument, info: ResolveInfo, **arguments: Any) -> PageRecord:
        context, id_, nodes = info.context, source.values["_id"], info.field_nodes
        selections = context.selections(info)
        selected = version_selection(selections, nodes, shape)
        found = context.prefetched(nodes, id_)
        if found is None:
            reading = version_read_options(context, selections, selected, shape)

            async def read(ids: list[Any]) -> Any:
                return await pages(context, ids, reading, **arguments)

            kind = ("history", shape.name, *map(id, nodes))
            found = await context.loads.for_document(kind, id_, read)
        elif isinstance(found, Exception):
            # Raised by the field, so that the error has its path in the response.
            raise found
        return version_page_record(info, shape, found, selected.items)

    async def pages(
        context: RequestContext,
        ids: Sequence[Any],
        reading: VersionReadOptions,
        where: Mapping[str, Any] | None = None,
        **page: Any,
    ) -> list[Page[Any]]:
        query = PageQuery(
            where=parse_version_where(model, shape.entity, where, context.scope),
            page=page_request(**page),
            **reading,
        )
        return await context.services.history.pages_of(shape.entity, ids, query)

    def ready(
        executor: Any, details: Any
    ) -> Callable[[CurrentDocument, RequestContext], Any] | CompleteValue:
        nodes = [each.node for each in details]
        compiled = compiled_versions(executor, shape, details)
        render = None if compiled is None else compiled.render

        def known(source: CurrentDocument, context: RequestContext) -> Any:
            found = context.prefetched(nodes, source.values["_id"])
            if not isinstance(found, Page):
                return FALLBACK
            if render is not None:
                return render(found, context)
            return PageRecord(version_records(shape, found), None, found)

        return known if render is None else CompleteValue(known)

    def id_only(selections: Selections, nodes: Nodes, arguments: Arguments) -> _HistoryReader:
        selected = version_selection(selections, nodes, shape)
        return _HistoryReader(
            nodes, arguments, pages, version_read_options(None, selections, selected, shape)
        )

    return Resolve(
        "history",
        f"{connection_name(shape.version)}!",
        "The versions of the document, newest first.",
        history,
        (*PAGE_ARGUMENTS, VERSION_WHERE),
        ready=ready,
        id_only=id_only,
    )


class _HistoryReader:
    """`IdOnlyField` for the histories of documents, for one selection of the field."""

    def __init__(
        self,
        nodes: Nodes,
        arguments: Arguments,
        pages: Callable[..., Any],
        reading: VersionReadOptions,
    ) -> None:
        self.nodes = nodes
        self._arguments = arguments
        self._pages = pages
        self._reading = reading

    async def read(self, context: RequestContext, ids: Sequence[Any]) -> Sequence[Any]:
        try:
            arguments = self._arguments(context.variables)
            found: Sequence[Any] = await self._pages(context, ids, self._reading, **arguments)
        except Exception as exc:
            # The field raises it for each document, with its path in the response.
            return [exc] * len(ids)
        return found
