"""Types of documents: `ProductState`, `Product`, `ProductSnapshot`.

Embedded types have the same three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Read, Resolve
from revstream.gql.engine.definitions.object_type import Link, ObjectTypeInfo
from revstream.gql.engine.definitions.value_tests import FALLBACK
from revstream.gql.engine.execution.worker_thread import count_list
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.reference_lists import follow_list, read_list_page
from revstream.gql.engine.request.references import follow_reference, loaded_reference_reader
from revstream.gql.engine.request.source import (
    CurrentDocument,
    EmbeddedDocument,
    State,
    id_text,
    not_archived_error,
)
from revstream.gql.schema.common.access_check import check_field_access
from revstream.gql.schema.common.descriptions import field_description, object_phrase
from revstream.gql.schema.common.id_naming import Naming
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.entities.connections import (
    PAGE_ARGUMENTS,
    PageRecord,
    connection_name,
    document_page_record,
    edge_name,
)
from revstream.gql.schema.entities.interfaces import node_id_field, raise_unresolved
from revstream.gql.schema.entities.state_pages import snapshot_page_record
from revstream.model.definition import Field
from revstream.model.naming import upper_first
from revstream.resolvers.pagination.page import page_request
from revstream.resolvers.values.global_id import node_id
from revstream.resolvers.values.output import converter

__all__ = ["define_states"]

# A list of unknown length counts as ten items (`gql.engine.limits.query_cost`).
_LIST_COST = 10
_DOCUMENT_ID = "documentId"


def define_states(
    types: Types,
    shape: ObjectTypeInfo,
    more: Sequence[StrawberryField] = (),
    past_more: Sequence[StrawberryField] = (),
    state_more: Sequence[StrawberryField] = (),
) -> None:
    """Define the interface of a type of the model and its two object types.

    Args:
        types: the registry of the schema.
        shape: the type of the model.
        more: additional fields of the current document: history and back references.
        past_more: additional fields of the past document: back references.
        state_more: additional fields of the interface: back references.
    """
    what = shape.type.description
    union = shape.union
    nodes = ["Node"] if shape.is_entity else []
    shared = _fields(shape, past=True, type_of=lambda inner: inner.state)
    if shape.is_entity:
        shared = [*_state_identity(shape, types.naming), *shared, *state_more]
    types.add_interface(
        shape.state,
        shared,
        f"The fields that {shape.name} and {shape.snapshot} share, for fragments on both.",
        nodes if union is None else [*nodes, union.state],
    )
    current = _fields(shape, past=False, type_of=lambda inner: inner.name)
    past = _fields(shape, past=True, type_of=lambda inner: inner.snapshot)
    current = [check_field_access(shape, each) for each in current]
    past = [check_field_access(shape, each) for each in (*past, *past_more)]
    more = [check_field_access(shape, each) for each in more]
    if shape.is_entity:
        current = [*_identity(shape, types.naming), _version(shape), *current, *more]
        past = [*_snapshot_identity(shape, types.naming), *past]
    interfaces = [*nodes, shape.state]
    add = types.add_interface if shape.members else types.add_object
    add(
        shape.name,
        current,
        what or f"{upper_first(object_phrase(shape))} in its current state.",
        interfaces if union is None else [*interfaces, union.name, union.state],
    )
    add(
        shape.snapshot,
        past,
        f"{upper_first(object_phrase(shape))} in the state of one version. Every field may be "
        "null, because the model may have been different then." + (f"\n\n{what}" if what else ""),
        interfaces if union is None else [*interfaces, union.snapshot, union.state],
    )


def _fields(
    shape: ObjectTypeInfo, *, past: bool, type_of: Callable[[ObjectTypeInfo], str]
) -> list[StrawberryField]:
    """Return the fields in the model's order; a reference follows the field with its id."""
    fields: list[StrawberryField] = []
    links: dict[str, list[Link]] = {}
    for link in (*shape.links.values(), *shape.list_links.values()):
        links.setdefault(link.by.name, []).append(link)
    for field in shape.fields.values():
        # `id` of a document and of a snapshot have different values: it is not in the interface.
        if not (shape.is_entity and field.stored == "_id"):
            embedded = shape.embedded.get(field.name)
            inner = field.type_name if embedded is None else type_of(embedded)
            fields.append(
                Read(
                    field.name,
                    # A document without its discriminator has no type, in the past, too.
                    _field_type(field, inner, past=past and not shape.is_discriminator(field)),
                    field_description(shape, field),
                    _reader(field, embedded, past=past),
                    None if embedded else field,
                )
            )
        for link in links.get(field.name, ()):
            if not link.reference.is_list:
                fields.append(_reference(link, type_of(link.target), past))
                continue
            fields.append(_reference_list(link, type_of(link.target), past))
            name = f"{link.reference.name}Connection"
            if name in shape.list_pages:
                fields.append(_reference_pages(name, shape, link, type_of(link.target)))
    return fields


def _field_type(field: Field, inner: str, *, past: bool) -> str:
    """Return the type of a field as GraphQL text.

    In past states no field is required, because the model may have been different then.
    """
    text = f"[{inner}{'!' if field.item_required else ''}]" if field.is_list else inner
    return text if past or not field.required else f"{text}!"


def _reader(field: Field, embedded: ObjectTypeInfo | None, *, past: bool) -> Callable[[State], Any]:
    stored, name = field.stored, field.name
    convert = converter(field, nullable=past)

    def read(source: State) -> Any:
        return convert(source.values.get(stored), source.place)

    def read_counted(source: State) -> Any:
        # Before the items are converted, so that the limit bounds the work.
        count_list(source.values.get(stored), leaf=embedded is None)
        return read(source)

    if embedded is None:
        return read_counted if field.is_list else read

    def inside(source: State, name: str, value: dict[str, Any] | None) -> EmbeddedDocument | None:
        if value is None:
            return None
        return EmbeddedDocument(
            embedded.variant(value), value, source.place.inside(name), source.moment
        )

    def read_embedded(source: State) -> Any:
        return inside(source, name, read(source))

    def read_list(source: State) -> Any:
        values = read_counted(source)
        if values is None:
            return None
        return [inside(source, f"{name}.{index}", each) for index, each in enumerate(values)]

    return read_list if field.is_list else read_embedded


def _reference(link: Link, inner: str, past: bool) -> Resolve:
    reference = link.reference

    def resolve(source: State, info: ResolveInfo) -> Any:
        return follow_reference(link, source, info, info.field_nodes)

    def ready(executor: Any, details: Any) -> Callable[[State, RequestContext], Any]:
        return loaded_reference_reader(link, [each.node for each in details])

    as_of = " It is read at the same time point." if past else ""
    description = (
        reference.description or f"The {link.target.name} whose id is in `{link.by.name}`."
    )
    type_ = f"{inner}!" if reference.required and not past else inner
    return Resolve(
        reference.name, type_, description + as_of, resolve, ready=None if past else ready
    )


def _reference_list(link: Link, inner: str, past: bool) -> Resolve:
    def resolve(source: State, info: ResolveInfo) -> Any:
        # Before they are read, so that the limit bounds the work.
        count_list(source.values.get(link.by.stored), leaf=False)
        return follow_list(link, source, info, info.field_nodes)

    as_of = " They are read at the same time point." if past else ""
    description = link.reference.description or (
        f"The documents of {link.target.name} whose ids are in `{link.by.name}`, in the order of "
        "the ids, without those that do not exist."
    )
    return Resolve(
        link.reference.name, f"[{inner}!]!", description + as_of, resolve, cost=_LIST_COST
    )


def _reference_pages(name: str, shape: ObjectTypeInfo, link: Link, inner: str) -> Resolve:
    reference, target = link.reference, link.target

    async def resolve(source: State, info: ResolveInfo, **page: Any) -> PageRecord:
        context, moment = info.context, source.moment
        if reference.name in shape.guarded:
            context.scope.check_read(shape.type, reference)
        # Each page looks through the list.
        count_list(source.values.get(link.by.stored), leaf=True)
        item = target.name if moment is None else target.snapshot
        selected = context.selections(info).connection(
            info.field_nodes, connection_name(item), edge_name(item)
        )
        found = await read_list_page(link, source, info, page_request(**page), selected)
        if moment is None:
            return await document_page_record(info, target, found, selected.items)
        return snapshot_page_record(info, target, found, moment, selected.items)

    return Resolve(
        name,
        f"{connection_name(inner)}!",
        f"The documents of `{reference.name}`, in the order of the ids, in pages.",
        resolve,
        PAGE_ARGUMENTS,
    )


def _identity(shape: ObjectTypeInfo, naming: Naming) -> list[StrawberryField]:
    field, owner = shape.entity.id, shape.union or shape
    return [
        node_id_field(naming, lambda source: node_id(owner.name, source.id_text)),
        Read(
            "id",
            "ID!",
            field.description
            or "The id of the document; the ids of its snapshots and versions begin with it.",
            _id_text,
            field,
            shown_as=naming.document,
        ),
        # Relay's naming has it already.
        *(() if naming.document == _DOCUMENT_ID else _document_id(shape, shape.entity.id)),
    ]


def _version(shape: ObjectTypeInfo) -> StrawberryField:
    def version(source: CurrentDocument, info: ResolveInfo) -> Any:
        if source.number is not None:
            return source.number
        return _load_number(shape, source, info)

    return Resolve(
        "version",
        "Int!",
        "The number of the latest version; mutations compare `expectedVersion` with it.",
        version,
        ready=lambda executor, details: _loaded_number,
    )


def _loaded_number(source: CurrentDocument, context: RequestContext) -> Any:
    return FALLBACK if source.number is None else source.number


async def _load_number(shape: ObjectTypeInfo, source: CurrentDocument, info: ResolveInfo) -> int:
    [number] = await info.context.loads.numbers(shape.entity, [source.values])
    if number is None:
        raise not_archived_error(source)
    return number


def _snapshot_identity(shape: ObjectTypeInfo, naming: Naming) -> list[StrawberryField]:
    owner = shape.union or shape
    return [
        node_id_field(naming, lambda source: node_id(owner.snapshot, source.id_text)),
        Read(
            "id",
            "ID!",
            "The id of the snapshot, `<document id>@<version>`. It differs from the document's id, "
            "so that normalized caches keep both.",
            _id_text,
            shown_as=naming.state,
        ),
        *_document_id(shape),
        Read(
            "version",
            "Int",
            "The number of the version; null in the document of a draft.",
            lambda source: source.number if isinstance(source.number, int) else None,
        ),
    ]


def _state_identity(shape: ObjectTypeInfo, naming: Naming) -> list[StrawberryField]:
    own: list[StrawberryField] = []
    if naming.document == naming.state:
        text = "The id of the object: that of the document now, or that of the snapshot."
        own = [Read("id", "ID!", text, raise_unresolved, shown_as=naming.state)]
    return [
        node_id_field(naming, raise_unresolved),
        *own,
        *_document_id(shape),
        Read("version", "Int", "The number of the version.", raise_unresolved),
    ]


def _document_id(shape: ObjectTypeInfo, stored: Field | None = None) -> list[StrawberryField]:
    """Return the field with the document's id; none, if the model has a field of that name."""
    taken = [
        names
        for each in (shape, *(shape.union or shape).variants)
        for names in (each.fields, each.links, each.list_links, each.back_links)
    ]
    if any(_DOCUMENT_ID in each for each in taken):
        return []
    text = "The id of the document: the same in all of its states."
    return [
        Read(
            _DOCUMENT_ID,
            "ID!",
            text,
            lambda source: id_text(shape, source.values["_id"], source),
            stored,
        )
    ]


def _id_text(source: Any) -> str:
    text: str = source.id_text
    return text
