"""Relay connections: their types, their arguments, and the sources of their pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from revstream.gql.engine.definitions.field import Argument, Read, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.execution.worker_thread import count_items
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.invalid_documents import report_unordered, without_invalid
from revstream.gql.engine.request.prefetch import prefetch
from revstream.gql.engine.request.selection import Nodes
from revstream.gql.engine.request.source import CurrentDocument
from revstream.gql.schema.common.type_builder import Types
from revstream.resolvers.pagination.page import Page
from revstream.streams.mongo.driver.codecs import Document

__all__ = [
    "PAGE_ARGUMENTS",
    "connection_name",
    "define_connection",
    "define_connections",
    "document_page_record",
    "edge_name",
    "encoded_token",
    "filter_arguments",
    "item_selections",
    "rendered_page_record",
    "search_arguments",
    "unchecked_page_record",
]

PAGE_ARGUMENTS = (
    Argument(
        "first",
        "Int",
        "The maximum number of items, from the start or after `after`. "
        "Default: 20 if neither `first` nor `last` is set.",
    ),
    Argument("after", "String", "Only items after the one with this cursor."),
    Argument("last", "Int", "The maximum number of items, from the end or before `before`."),
    Argument("before", "String", "Only items before the one with this cursor."),
)


def filter_arguments(shape: ObjectTypeInfo) -> tuple[Argument, ...]:
    """Return the arguments `where` and `orderBy` of a list of documents."""
    return (
        Argument("where", f"{shape.name}Where", "Only documents that match."),
        Argument(
            "orderBy",
            f"[{shape.name}Order!]",
            "The order of the documents, the most important field first. "
            "Documents that are equal in it, or all without it, are ordered by id.",
        ),
    )


def search_arguments(shape: ObjectTypeInfo) -> tuple[Argument, ...]:
    """Return the argument `search` of a type with a text index."""
    if shape.entity.search is None:
        return ()
    fields = ", ".join(f"`{each}`" for each in shape.entity.search.names)
    return (
        Argument(
            "search",
            "String",
            f"Only documents with at least one of these words in {fields}. Without `orderBy`, the "
            'best matches come first. `"two words"` in quotes is a phrase, `-word` must not occur.',
        ),
    )


def connection_name(type_name: str) -> str:
    return f"{type_name}Connection"


def edge_name(type_name: str) -> str:
    return f"{type_name}Edge"


def item_selections(executor: PlannedExecution, item: str, details: Any) -> list[Any]:
    """Return the field nodes that select items of a connection: `nodes`, `edges.node`, aliases.

    Args:
        executor: the execution of the query.
        item: the name of the items' type.
        details: graphql-core's field nodes of the connection.
    """
    types: Any = executor.schema.type_map
    connection, edge = types[connection_name(item)], types[edge_name(item)]
    found = []
    for each in executor.selected_fields(connection, details).values():
        match each[0].node.name.value:
            case "nodes":
                found.append(each)
            case "edges":
                fields = executor.selected_fields(edge, each).values()
                found += [field for field in fields if field[0].node.name.value == "node"]
    return found


@dataclass(frozen=True, slots=True)
class Edge:
    """Source of an edge of a connection."""

    node: Any
    cursors: Sequence[str]
    index: int

    @property
    def cursor(self) -> str:
        return self.cursors[self.index]


class PageRecord:
    """Source of a connection.

    Its cursors and flags refer to all items that were read, also to those that are left out.

    Args:
        items: sources of the page's items.
        fits: for each item, whether it is in the response; None: all of them are.
        page: the page that was read.
        resume_token: the encoded resume token of the read.
        checked: returns the same page without invalid documents; None if it is checked already.
        type_name: the name of the connection's type, if the field's type is an interface.
    """

    __slots__ = ("_fits", "_items", "_page", "checked", "resume_token", "type_name")

    def __init__(
        self,
        items: Sequence[Any],
        fits: Sequence[bool] | None,
        page: Page[Any],
        resume_token: str | None = None,
        checked: Callable[[], Awaitable[PageRecord]] | None = None,
        type_name: str = "",
    ) -> None:
        self._items = items
        self._fits = fits
        self._page = page
        self.resume_token = resume_token
        self.checked = checked
        self.type_name = type_name

    @property
    def edges(self) -> list[Edge]:
        cursors = self._page.cursors
        return [
            Edge(item, cursors, index)
            for index, item in enumerate(self._items)
            if self._fits is None or self._fits[index]
        ]

    @property
    def nodes(self) -> Sequence[Any]:
        if self._fits is None:
            return self._items
        return [item for item, fit in zip(self._items, self._fits, strict=True) if fit]

    @property
    def has_next(self) -> bool:
        return self._page.has_next

    @property
    def has_previous(self) -> bool:
        return self._page.has_previous

    @property
    def start_cursor(self) -> str | None:
        return self._page.cursors[0] if self._page.cursors else None

    @property
    def end_cursor(self) -> str | None:
        return self._page.cursors[-1] if self._page.cursors else None

    @property
    def total(self) -> int | None:
        return self._page.total


async def document_page_record(
    info: ResolveInfo, shape: ObjectTypeInfo, page: Page[Document], nodes: Nodes
) -> PageRecord:
    """Return the source of a page of current documents, without invalid ones.

    A compiled query detects an invalid document when it renders it, so its page is not checked
    here. See `gql.engine.request.invalid_documents`.

    Args:
        info: graphql-core's info of the connection's field.
        shape: the object type of the documents.
        page: the page that was read.
        nodes: the field nodes that select the documents' fields.
    """
    documents = [CurrentDocument(shape, each) for each in page.items]
    await prefetch(info, documents, shape, nodes)
    if info.context.assumes_valid and not page.unordered:
        return unchecked_page_record(info, documents, page, shape, nodes)
    return await _checked_page_record(info, documents, page, shape, nodes)


def unchecked_page_record(
    info: ResolveInfo,
    documents: Sequence[CurrentDocument],
    page: Page[Document],
    shape: ObjectTypeInfo,
    nodes: Nodes,
) -> PageRecord:
    """Return a page with all of its documents; its `checked` leaves out invalid ones."""
    checked = partial(_checked_page_record, info, documents, page, shape, nodes)
    token, name = encoded_token(info.context, page), connection_name(shape.name)
    return PageRecord(documents, None, page, token, checked, name)


async def _checked_page_record(
    info: ResolveInfo,
    documents: Sequence[CurrentDocument],
    page: Page[Document],
    shape: ObjectTypeInfo,
    nodes: Nodes,
) -> PageRecord:
    fits = await without_invalid(info, documents, shape, nodes)
    report_unordered(info, page)
    token, name = encoded_token(info.context, page), connection_name(shape.name)
    return PageRecord(documents, fits, page, token, type_name=name)


def rendered_page_record(
    context: RequestContext, page: Page[Document], items: Sequence[Any]
) -> PageRecord:
    """Return the source of a page whose documents are rendered already."""
    return PageRecord(items, None, page, encoded_token(context, page))


def encoded_token(context: RequestContext, page: Page[Any]) -> str | None:
    """Return the API's form of a page's resume token."""
    return None if page.token is None else context.token_out(page.token)


def define_connections(types: Types, shape: ObjectTypeInfo) -> None:
    """Define the connections of an entity's documents, states and versions, with their edges."""
    resume_token = Read(
        "resumeToken",
        "ResumeToken!",
        "The position of this read in the change stream: a subscription after it misses no change.",
        attrgetter("resume_token"),
    )
    documents = f"A page of documents of {shape.name}"
    types.add_interface(
        connection_name(shape.state),
        [*_connection_fields(shape.state), resume_token],
        f"{documents}, current ones or those at a time point.",
    )
    types.add_interface(
        edge_name(shape.state),
        _edge_fields(shape.state),
        f"An item of a page of type {shape.state}, with its cursor.",
    )
    define_connection(types, shape.name, f"{documents}.", resume_token, state=shape.state)
    define_connection(
        types, shape.snapshot, f"{documents} at a time point.", resume_token, state=shape.state
    )

    async def gaps(_source: PageRecord, info: ResolveInfo) -> Any:
        context = info.context
        # One read for the pages of all documents.
        found = await context.loads.for_document(
            "gaps", shape.entity.collection, context.services.status.gaps
        )
        return count_items(found)

    lost = Resolve(
        "gaps",
        "[HistoryGap!]!",
        "The gaps in the history of the collection, oldest first.",
        gaps,
    )
    define_connection(types, shape.version, f"A page of versions of {shape.name}.", lost)


def define_connection(
    types: Types, item: str, description: str, *more: Read | Resolve, state: str | None = None
) -> None:
    """Define the connection of a type, and its edges.

    Args:
        more: additional fields of the connection.
        state: the interface of current and past documents, if the type is one of them.
    """
    types.add_object(
        connection_name(item),
        [*_connection_fields(item), *more],
        description,
        [] if state is None else [connection_name(state)],
    )
    types.add_object(
        edge_name(item),
        _edge_fields(item),
        f"An item of a page of type {item}, with its cursor.",
        [] if state is None else [edge_name(state)],
    )


def _connection_fields(item: str) -> list[Read]:
    edge = edge_name(item)
    return [
        Read("edges", f"[{edge}!]!", "The items with their cursors.", attrgetter("edges")),
        Read("nodes", f"[{item}!]!", "The items without cursors.", attrgetter("nodes")),
        Read("pageInfo", "PageInfo!", "The position of this page in the list.", _identity),
        Read("totalCount", "Int!", "The number of items on all pages.", attrgetter("total")),
    ]


def _edge_fields(item: str) -> list[Read]:
    return [
        Read("node", f"{item}!", "The item.", attrgetter("node")),
        Read(
            "cursor",
            "String!",
            "The cursor of the item; pass it as `after` or `before`.",
            attrgetter("cursor"),
        ),
    ]


def _identity(source: object) -> object:
    return source
