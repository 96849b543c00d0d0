"""Follow to-one references: now, or as they stood at the moment of the record they are followed
from."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from bson import Timestamp

from revstream.gql.engine.definitions.object_type import Link
from revstream.gql.engine.definitions.value_tests import FALLBACK
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.selection import Nodes
from revstream.gql.engine.request.source import CurrentDocument, SnapshotDocument, State
from revstream.model.definition import Field, Scalar
from revstream.model.naming import with_article
from revstream.resolvers.errors import DocumentMisfit
from revstream.resolvers.values.output import (
    ID_CLASSES,
    TEXT_IDS,
    Convert,
    ValueLocation,
    converter,
)
from revstream.streams.changefeed.event import PLAIN_KEY_TYPES, identity
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["follow", "followed_already", "ids_named"]

_NOWHERE = ValueLocation("", None)


def follow(link: Link, source: State, info: ResolveInfo, nodes: Nodes) -> Any:
    """The document that is referred to, or None where there is none; or an awaitable of it, where
    it is not read yet: siblings are read together.

    Args:
        nodes: where its fields are selected.
    Raises:
        DocumentMisfit: what should be an id is none, or leads nowhere from a document that is
            required to have it.
    """
    by, target = link.by, link.target
    id_ = source.values.get(by.stored)
    if id_ is None:
        if _required(link, source):
            raise source.place.misfit(by.name, None, f"the id of {with_article(target.name)}")
        return None
    # For what it refuses: an id of another type leads nowhere, and that would look like a document
    # that is gone.
    _id_converter(by)(id_, source.place)
    if source.moment is not None:
        return _followed_then(link, source, info, nodes, id_, source.moment)
    fields = info.context.selections(info).stored(nodes, target, target.name)
    known = info.context.known.get((target.name, fields))
    if known is not None:
        key = identity(id_)
        if key in known:
            return _there(link, source, id_, known[key])
    return _followed(link, source, info, id_, fields)


def followed_already(link: Link, nodes: Nodes) -> Callable[[State, RequestContext], Any]:
    """The same without waiting, and without an error: FALLBACK, where it would take either. For one
    plan, whose selections stay what they are."""
    by, target = link.by.stored, link.target
    missing = FALLBACK if link.reference.required else None
    read: tuple[str, frozenset[str]] | None = None

    def followed(source: State, context: RequestContext) -> Any:
        nonlocal read
        id_ = source.values.get(by)
        if id_ is None:
            return missing
        if read is None:
            selections = None if context.plan is None else context.plan.selections
            if selections is None:
                return FALLBACK
            read = target.name, selections.stored(nodes, target, target.name)
        known = context.known.get(read)
        return FALLBACK if known is None else known.get(identity(id_)) or FALLBACK

    return followed


async def _followed(
    link: Link, source: State, info: ResolveInfo, id_: Any, fields: frozenset[str]
) -> CurrentDocument | None:
    target = link.target
    document = await info.context.loads.document(target.entity, id_, fields)
    found = None if document is None else CurrentDocument(target, document)
    return _there(link, source, id_, found)


async def _followed_then(
    link: Link, source: State, info: ResolveInfo, nodes: Nodes, id_: Any, moment: Timestamp
) -> SnapshotDocument | None:
    context, target = info.context, link.target
    fields = context.selections(info).stored(nodes, target, target.snapshot)
    version = await context.loads.version_at(target.entity, id_, moment, fields)
    if version is None or version.full is None:
        return None
    return SnapshotDocument(target, version.full, version.number, moment)


def _there(
    link: Link, source: State, id_: Any, found: CurrentDocument | None
) -> CurrentDocument | None:
    if found is None and _required(link, source):
        raise source.place.misfit(
            link.by.name, id_, f"the id of {with_article(link.target.name)} that exists"
        )
    return found


def ids_named(link: Link, documents: Iterable[Document]) -> dict[Any, Any]:
    """The ids that documents refer by, each once, by `identity`; without what is none, which the
    field complains of."""
    by = link.by
    ids = [each.get(by.stored) for each in documents]
    usual = ID_CLASSES.get(by.stored_scalar or Scalar.ID) if by.type is Scalar.ID else None
    if {usual}.issuperset(map(type, ids)):
        return dict(zip(ids, ids, strict=True))
    convert = _id_converter(by)
    named: dict[Any, Any] = {}
    for id_ in ids:
        name = id_ if id_.__class__ in PLAIN_KEY_TYPES else identity(id_)
        if id_ is not None and name not in named and _is_id(convert, id_):
            named[name] = id_
    return named


@lru_cache(maxsize=1024)
def _id_converter(by: Field) -> Convert:
    """Return the conversion that refuses what cannot be the id of the target's documents."""
    scalar = by.stored_scalar
    if scalar is None or scalar in TEXT_IDS:
        return converter(by, nullable=True)
    return converter(replace(by, type=scalar), nullable=True)


def _is_id(convert: Convert, id_: Any) -> bool:
    try:
        convert(id_, _NOWHERE)
    except DocumentMisfit:
        return False
    return True


def _required(link: Link, source: State) -> bool:
    return link.reference.required and source.moment is None
