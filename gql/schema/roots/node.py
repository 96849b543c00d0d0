"""Objects by id: `Query.node`, and conversion of an id of the API to a stored `_id`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, IdOnlyField, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.definitions.value_tests import FALLBACK
from revstream.gql.engine.execution.compiled_documents import (
    CompiledDocuments,
    RelatedData,
    compile_documents,
)
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.prefetch import id_only_reads, prefetch
from revstream.gql.engine.request.source import CurrentDocument, SnapshotDocument, VersionRecord
from revstream.gql.schema.entities.drafts import DraftRecord
from revstream.gql.schema.entities.versions import read_version
from revstream.model.definition import Model
from revstream.resolvers.current.stored_ids import RecordKind
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.expression import Condition
from revstream.resolvers.mutations.result import DocumentNotFound
from revstream.resolvers.pagination.page import page_request
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.values.global_id import parse_node_id
from revstream.resolvers.values.input import ids_from_api
from revstream.streams.changefeed.event import identity
from revstream.streams.mongo.driver.codecs import Document

__all__ = [
    "compile_document",
    "node_field",
    "read_document",
    "run_with_id",
    "stored_id",
]

T = TypeVar("T")


def stored_id(shape: ObjectTypeInfo, text: str) -> Any:
    """Convert an id of the API to the stored `_id`.

    Raises:
        BadUserInput: no document of the entity can have this id.
    """
    return stored_ids(shape)(text)


def stored_ids(shape: ObjectTypeInfo) -> Callable[[str], Any]:
    """Return a function that converts ids of an entity, as `stored_id` does."""
    scalar = shape.entity.id.stored_scalar
    assert scalar is not None
    return ids_from_api(scalar, f"{shape.name}.id")


async def run_with_id(
    info: ResolveInfo,
    shape: ObjectTypeInfo,
    text: str,
    work: Callable[[Any], Awaitable[T]],
    *kinds: RecordKind,
    missing: type[Exception] = DocumentNotFound,
) -> T:
    """Run a write with the `_id` of the document that an id of the API identifies.

    `work` runs with the id in the type that the model declares. If that document does not exist,
    it runs again with an id of another BSON type that has the same text, if one is stored.

    Args:
        info: graphql-core's info of the field.
        shape: the object type of the document.
        text: the id in the API.
        work: takes the `_id`.
        kinds: kinds of records that prove that a document existed, although it is deleted.
        missing: the error that `work` raises if it does not find the document or the record.

    Raises:
        BadUserInput: no document of the entity can have this id. `work` may raise other errors.
    """
    key = stored_id(shape, text)
    try:
        return await work(key)
    except missing:
        other = await info.context.services.current.other_id(shape.entity, key, kinds)
        if other is None:
            raise
    return await work(other)


async def read_document(
    info: ResolveInfo,
    model: Model,
    shape: ObjectTypeInfo,
    id: str | None = None,
    by: Mapping[str, Any] | None = None,
) -> CurrentDocument | None:
    """Read the current document with an id, or with the value of a unique field.

    Raises:
        BadUserInput: both or none are given, or no document can have this value.
        Forbidden: the caller may not read the unique field.
    """
    _check_one(shape, id, by)
    if by is None:
        return await read_current_document(info, shape, stored_id(shape, id or ""))
    context = info.context
    fields = context.selections(info).stored(info.field_nodes, shape, shape.name)
    document = await _find_unique(context, model, shape, by, fields)
    if document is None:
        return None
    found = CurrentDocument(shape, document)
    await prefetch(info, [found], shape, info.field_nodes)
    return found


def _check_one(shape: ObjectTypeInfo, id: str | None, by: Mapping[str, Any] | None) -> None:
    if (id is None) == (by is None):
        name = shape.entity.singular
        given = "id and by" if by is not None else "no argument"
        raise BadUserInput(f"{name}: {given}, expected one of id and by; pass one of them")


async def _find_unique(
    context: RequestContext,
    model: Model,
    shape: ObjectTypeInfo,
    by: Mapping[str, Any],
    fields: frozenset[str],
) -> Document | None:
    # The input type has exactly one field.
    ((name, value),) = by.items()
    query: PageQuery[Condition] = PageQuery(
        where=context.condition(model, shape.entity, {name: {"eq": value}}),
        page=page_request(first=1),
        fields=fields,
        for_output=context.assumes_valid,
    )
    found = await context.services.current.page(shape.entity, query)
    return found.items[0] if found.items else None


async def read_current_document(
    info: ResolveInfo, shape: ObjectTypeInfo, id_: Any
) -> CurrentDocument | None:
    """Read a current document; None if it does not exist."""
    context = info.context
    fields = context.selections(info).stored(info.field_nodes, shape, shape.name)
    if not context.assumes_valid:
        document = await context.loads.document(shape.entity, id_, fields)
        return None if document is None else CurrentDocument(shape, document)
    # No other field of this response reads it; reads of other responses share the command.
    reading = context.services.current.by_ids(shape.entity, [id_], fields, for_output=True)
    id_only_fields = context.selections(info).needs(info.field_nodes, shape).id_only
    document = await _read_with_related(context, id_, reading, id_only_fields)
    if document is None:
        return None
    found = CurrentDocument(shape, document)
    await prefetch(info, [found], shape, info.field_nodes)
    return found


async def _read_with_related(
    context: RequestContext,
    id_: Any,
    reading: Awaitable[list[Document | None]],
    id_only_fields: Sequence[IdOnlyField],
) -> Document | None:
    """Read a document and, at the same time, the fields that need only its id.

    Both are in the context afterwards: the document nearly always exists, so the fields do not
    wait for a second read.
    """
    related = [
        asyncio.ensure_future(each)
        for each in id_only_reads(context, [{"_id": id_}], id_only_fields)
    ]
    try:
        [document] = await reading
        # A document whose stored id has another type: its fields are read by its own id later.
        same = document is not None and identity(document["_id"]) == identity(id_)
        for each in related if same else ():
            await each
    finally:
        for each in related:
            each.cancel()
    return document


def compile_document(
    executor: PlannedExecution, model: Model, shape: ObjectTypeInfo, details: Any
) -> _CompiledDocumentField | None:
    """Compile a root field that returns one document; None if that is not possible."""
    rendering = compile_documents(executor, shape, details)
    if rendering is None:
        return None
    return _CompiledDocumentField(model, rendering)


_DocumentRead = tuple[list[Document], RelatedData]
"""One document, and the related data that was read with it."""


class _CompiledDocumentField:
    """`CompiledRootField` for one current document."""

    # Unknown: one command may read the documents of several responses.
    growth = None

    def __init__(self, model: Model, rendering: CompiledDocuments) -> None:
        self._model = model
        self._rendering = rendering
        self._stored_id = stored_ids(rendering.shape)

    async def read(
        self, info: ResolveInfo, id: str | None = None, by: Mapping[str, Any] | None = None
    ) -> _DocumentRead | None:
        context, rendering = info.context, self._rendering
        shape = rendering.shape
        _check_one(shape, id, by)
        document: Document | None
        if by is not None:
            document = await _find_unique(context, self._model, shape, by, rendering.fields)
        else:
            id_ = self._stored_id(id or "")
            reading = context.services.current.by_ids(
                shape.entity, [id_], rendering.fields, for_output=True
            )
            document = await _read_with_related(context, id_, reading, rendering.id_only_fields)
        if document is None:
            return None
        return [document], await rendering.related(context, [document])

    def render(self, found: _DocumentRead, context: RequestContext) -> Any:
        made = self._rendering.render(*found, context)
        return made if made is FALLBACK else made[0]

    def record(self, found: _DocumentRead, info: ResolveInfo) -> CurrentDocument:
        return self._rendering.records(*found, info.context)[0]


_Finder = Callable[[ResolveInfo, str], Awaitable[Any]]


def node_field(shapes: Mapping[str, ObjectTypeInfo], name: str) -> StrawberryField:
    """Return the field `Query.node`, which reads an object of any type by its global id.

    Args:
        shapes: all object types, by name.
        name: the name of the global id, `nodeId` by default.
    """
    finders: dict[str, _Finder] = {}
    for shape in shapes.values():
        if shape.is_entity:
            finders |= _finders(shape)

    async def resolve(_root: None, info: ResolveInfo, **arguments: str) -> Any:
        (node_id,) = arguments.values()
        type_name, id_text = parse_node_id(node_id, name)
        find = finders.get(type_name)
        if find is None:
            raise BadUserInput(f"{name}: object of type {type_name!r}, expected a type of this API")
        return await find(info, id_text)

    return Resolve(
        "node",
        "Node",
        f"Any object by its `{name}`; null if it does not exist, or no longer exists.",
        resolve,
        (Argument(name, "ID!", f"The value of the object's field `{name}`."),),
    )


def _finders(shape: ObjectTypeInfo) -> dict[str, _Finder]:
    async def current(info: ResolveInfo, id_text: str) -> CurrentDocument | None:
        return await read_current_document(info, shape, stored_id(shape, id_text))

    async def version(info: ResolveInfo, id_text: str) -> VersionRecord | None:
        id_, number = _id_and_number(shape, id_text)
        return await read_version(info, shape, id_, info.field_nodes, number, None)

    async def snapshot(info: ResolveInfo, id_text: str) -> SnapshotDocument | None:
        context = info.context
        draft = re.fullmatch(r"(.*)@draft-([0-9]{1,9})", id_text, re.DOTALL)
        if draft:
            id_ = stored_id(shape, draft[1])
            number = int(draft[2])
            proposed = await context.loads.draft(shape.entity, id_, number)
            if proposed is None:
                other = await context.services.current.other_id(shape.entity, id_, ["drafts"])
                if other is not None:
                    proposed = await context.loads.draft(shape.entity, other, number)
            return None if proposed is None else DraftRecord(shape, proposed).snapshot
        id_, number = _id_and_number(shape, id_text)
        fields = context.selections(info).stored(info.field_nodes, shape, shape.snapshot)
        found = await context.loads.version_numbered(shape.entity, id_, number, fields)
        return None if found is None else VersionRecord(shape, found).snapshot

    return {shape.name: current, shape.version: version, shape.snapshot: snapshot}


def _id_and_number(shape: ObjectTypeInfo, id_text: str) -> tuple[Any, int]:
    id_, at, number = id_text.rpartition("@")
    if not at or not number.isascii() or not number.isdigit() or len(number) > 10:
        raise BadUserInput(f"nodeId: {id_text!r}, expected <document id>@<version>")
    return stored_id(shape, id_), int(number)
