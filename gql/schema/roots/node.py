"""Objects by their ids: `Query.node` over all types, and what an id of the API means in MongoDB."""

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
    rendering_of,
)
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.prefetch import prefetch, read_ahead
from revstream.gql.engine.request.source import CurrentDocument, SnapshotDocument, VersionRecord
from revstream.gql.schema.entities.drafts import DraftRecord
from revstream.gql.schema.entities.versions import read_version
from revstream.resolvers.current.stored_ids import RecordKind
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.mutations.result import DocumentNotFound
from revstream.resolvers.values.global_id import parse_node_id
from revstream.resolvers.values.input import ids_from_api
from revstream.streams.changefeed.event import identity
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["compile_document", "node_field", "read_current_document", "run_with_id", "stored_id"]

T = TypeVar("T")


def stored_id(shape: ObjectTypeInfo, text: str) -> Any:
    """The `_id` that an id of the API means.

    Raises:
        BadUserInput: it cannot be the id of any document of that entity.
    """
    return stored_ids(shape)(text)


def stored_ids(shape: ObjectTypeInfo) -> Callable[[str], Any]:
    """The same for many."""
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
    """Do something to the document that an id of the API means: the one that is stored as the model
    declares, or, where nothing is known of it, one whose id is of another type and shows alike.

    Args:
        work: given the `_id`. missing: the error that it raises where it does not find it, or
            something of it. kinds: records of a document by which it is known, also where it is
            not there.

    Raises:
        BadUserInput, and what `work` raises.
    """
    key = stored_id(shape, text)
    try:
        return await work(key)
    except missing:
        other = await info.context.current.other_id(shape.entity, key, kinds)
        if other is None:
            raise
    return await work(other)


async def read_current_document(
    info: ResolveInfo, shape: ObjectTypeInfo, id_: Any
) -> CurrentDocument | None:
    """A document as it is now, or None."""
    context = info.context
    fields = context.selections(info).stored(info.field_nodes, shape, shape.name)
    if not context.trusting:
        document = await context.loads.document(shape.entity, id_, fields)
        return None if document is None else CurrentDocument(shape, document)
    # No other field of this response can ask for it; those of others share the lookup.
    reading = context.current.by_ids(shape.entity, [id_], fields, shown=True)
    besides = context.selections(info).needs(info.field_nodes, shape).beside
    document = await _read_with_related(context, id_, reading, besides)
    if document is None:
        return None
    found = CurrentDocument(shape, document)
    await prefetch(info, [found], shape, info.field_nodes)
    return found


async def _read_with_related(
    context: RequestContext,
    id_: Any,
    reading: Awaitable[list[Document | None]],
    besides: Sequence[IdOnlyField],
) -> Document | None:
    """A document, once what its id alone tells is there, too: nearly always the document is there,
    and nothing is waited for a second time."""
    beside = [asyncio.ensure_future(each) for each in read_ahead(context, [{"_id": id_}], besides)]
    try:
        [document] = await reading
        # Of one that is stored under another id it is read later.
        same = document is not None and identity(document["_id"]) == identity(id_)
        for each in beside if same else ():
            await each
    finally:
        for each in beside:
            each.cancel()
    return document


def compile_document(
    executor: PlannedExecution, shape: ObjectTypeInfo, details: Any
) -> _CompiledDocumentField | None:
    """The same, compiled for one place of a query."""
    rendering = rendering_of(executor, shape, details)
    if rendering is None:
        return None
    return _CompiledDocumentField(rendering)


_DocumentRead = tuple[list[Document], RelatedData]
"""A document, and what was read beside it."""


class _CompiledDocumentField:
    """See `gql.engine.definitions.field.CompiledRootField`."""

    # It may be read for others as well.
    growth = None

    def __init__(self, rendering: CompiledDocuments) -> None:
        self._rendering = rendering
        self._stored_id = stored_ids(rendering.shape)

    async def read(self, info: ResolveInfo, id: str) -> _DocumentRead | None:
        context, rendering = info.context, self._rendering
        id_ = self._stored_id(id)
        reading = context.current.by_ids(
            rendering.shape.entity, [id_], rendering.fields, shown=True
        )
        document = await _read_with_related(context, id_, reading, rendering.besides)
        if document is None:
            return None
        return [document], await rendering.related(context, [document])

    def made(self, found: _DocumentRead, context: RequestContext) -> Any:
        made = self._rendering.made(*found, context)
        return made if made is FALLBACK else made[0]

    def record(self, found: _DocumentRead, info: ResolveInfo) -> CurrentDocument:
        return self._rendering.records(*found, info.context)[0]


_Finder = Callable[[ResolveInfo, str], Awaitable[Any]]


def node_field(shapes: Mapping[str, ObjectTypeInfo], name: str) -> StrawberryField:
    """The field of Query that finds whatever a `nodeId` names.

    Args:
        name: what a `nodeId` is called.
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
            raise BadUserInput(
                f"{name} names an object of type {type_name!r}, which this API does not have"
            )
        return await find(info, id_text)

    return Resolve(
        "node",
        "Node",
        f"Any object by its `{name}`; null where it is not there, or not any more.",
        resolve,
        (Argument(name, "ID!", f"What the object's own field `{name}` says."),),
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
                other = await context.current.other_id(shape.entity, id_, ["drafts"])
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
        raise BadUserInput(f"nodeId: {id_text!r} is not of the form <document id>@<version>")
    return stored_id(shape, id_), int(number)
