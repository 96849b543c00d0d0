"""Back references (`@referencedBy`): connections of the documents that refer to one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Resolve
from revstream.gql.engine.definitions.object_type import BackLink, ObjectTypeInfo
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.source import CurrentDocument, SnapshotDocument
from revstream.gql.schema.common.orders import parse_order
from revstream.gql.schema.entities.connections import (
    PAGE_ARGUMENTS,
    PageRecord,
    connection_name,
    document_page_record,
    edge_name,
    filter_arguments,
)
from revstream.gql.schema.entities.interfaces import raise_unresolved
from revstream.gql.schema.entities.state_pages import page_with_token, snapshot_page_record
from revstream.model.definition import Entity, Model
from revstream.resolvers.current.stored_ids import other_ids
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.expression import Condition
from revstream.resolvers.filters.reference_filters import references_in
from revstream.resolvers.history.as_of.referring_documents import WantedReferrers
from revstream.resolvers.pagination.order_by import Order
from revstream.resolvers.pagination.page import Page, page_request
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.streams.versioning.version import Version

__all__ = [
    "back_reference_field",
    "equivalent_ids",
    "past_back_reference_field",
    "resolved_at",
    "state_back_reference_field",
]


def equivalent_ids(entity: Entity, id_: Any) -> Any:
    """Return the id, or a list with all ids of the same text: a reference may hold any of them."""
    others = other_ids(entity, id_)
    return [id_, *others] if others else id_


class _Pages:
    """Pages of a back reference that a request selects: the same for each document of a list.

    Args:
        type_name: the type of the referring documents.
        page: the arguments of the page.
    """

    def __init__(
        self, info: ResolveInfo, target: ObjectTypeInfo, type_name: str, page: Mapping[str, Any]
    ) -> None:
        selections = info.context.selections(info)
        self.selected = selections.connection(
            info.field_nodes, connection_name(type_name), edge_name(type_name)
        )
        self._fields = selections.stored(self.selected.items, target, type_name)
        self._page = page

    def query(self, where: Condition, order: Order) -> PageQuery[Condition]:
        return PageQuery(
            where=where,
            order=order,
            page=page_request(**self._page),
            fields=self._fields,
            total=self.selected.total,
            token=self.selected.token,
        )


def back_reference_field(model: Model, link: BackLink) -> StrawberryField:
    """Return the field of a back reference: a connection of the documents that refer to one."""
    target, by = link.target, link.by

    async def resolve(
        source: CurrentDocument,
        info: ResolveInfo,
        where: Mapping[str, Any] | None = None,
        order_by: Any = None,
        **page: Any,
    ) -> PageRecord:
        context = info.context
        pages = _Pages(info, target, target.name, page)

        async def read(ids: list[Any]) -> Any:
            condition = await context.parse_filter(model, target.entity, where, None)
            order = await parse_order(context, target, order_by, None)
            query = pages.query(condition, order)
            parents = [equivalent_ids(source.shape.entity, each) for each in ids]
            return await context.services.current.pages_by_parent(
                target.entity, by.stored, parents, query
            )

        kind = (source.shape.name, link.reference.name, *map(id, info.field_nodes))
        found = await context.loads.for_document(kind, source.values["_id"], read)
        return await document_page_record(info, target, found, pages.selected.items)

    return Resolve(
        link.reference.name,
        f"{connection_name(target.name)}!",
        link.reference.description
        or f"The documents of {target.name} whose `{by.name}` refers to this document.",
        resolve,
        (*filter_arguments(target), *PAGE_ARGUMENTS),
    )


async def resolved_at(
    context: RequestContext,
    model: Model,
    entity: Entity,
    where: Mapping[str, Any] | None,
    wanted: Sequence[WantedReferrers],
) -> Condition:
    """Parse a filter of documents that referred to others.

    Raises:
        BadUserInput: a filter through a reference, at several time points.
    """
    parsed = await context.parse_unresolved(model, entity, where)
    if not references_in(parsed):
        return parsed
    moments = {each.at for each in wanted}
    if len(moments) > 1:
        raise BadUserInput(
            f"{entity.name}: a filter through a reference at {len(moments)} time points, expected "
            "one; filter by the field with the id, or read one time point"
        )
    return await context.resolve_references(parsed, *moments)


def past_back_reference_field(model: Model, link: BackLink) -> StrawberryField:
    """Return the field of a back reference of a past document: it is read at the same moment."""
    target, by = link.target, link.by

    async def resolve(
        source: SnapshotDocument,
        info: ResolveInfo,
        where: Mapping[str, Any] | None = None,
        order_by: Any = None,
        **page: Any,
    ) -> PageRecord:
        context = info.context
        pages = _Pages(info, target, target.snapshot, page)

        async def read(wanted: list[WantedReferrers]) -> Any:
            latest = max(each.at for each in wanted)
            condition = await resolved_at(context, model, target.entity, where, wanted)
            order = await parse_order(context, target, order_by, latest)
            return await context.services.history.referring_as_of(
                target.entity, by.stored, wanted, pages.query(condition, order)
            )

        kind = (source.shape.name, link.reference.name, *map(id, info.field_nodes))
        id_ = source.values["_id"]
        keys = [id_, *other_ids(source.shape.entity, id_)]
        found: Page[Version] = await context.loads.referring_at(
            kind, source.moment, keys, target.entity, read
        )
        page_at = page_with_token(found, source.moment)
        return snapshot_page_record(info, target, page_at, source.moment, pages.selected.items)

    described = link.reference.description or (
        f"The documents of {target.name} whose `{by.name}` referred to this document."
    )
    return Resolve(
        link.reference.name,
        f"{connection_name(target.snapshot)}!",
        f"{described} They are read at the same time point.",
        resolve,
        (*filter_arguments(target), *PAGE_ARGUMENTS),
    )


def state_back_reference_field(link: BackLink) -> StrawberryField:
    """Return the field of a back reference of the interface of current and past documents."""
    target = link.target
    described = link.reference.description or (
        f"The documents of {target.name} whose `{link.by.name}` refers to this document."
    )
    return Resolve(
        link.reference.name,
        f"{connection_name(target.state)}!",
        described,
        raise_unresolved,
        (*filter_arguments(target), *PAGE_ARGUMENTS),
    )
