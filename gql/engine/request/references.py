"""References to one document, followed now or as of the cluster time of the record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from bson import Timestamp

from revstream.gql.engine.definitions.object_type import Link
from revstream.gql.engine.definitions.value_tests import FALLBACK
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.selection import Nodes
from revstream.gql.engine.request.source import CurrentDocument, SnapshotDocument, State
from revstream.model.definition import Field, Scalar
from revstream.model.naming import with_article
from revstream.resolvers.values.output import ID_CLASSES
from revstream.resolvers.values.reference_ids import id_converter, is_id
from revstream.streams.changefeed.event import PLAIN_KEY_TYPES, identity
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["follow_reference", "known_ids", "loaded_reference_reader", "referenced_ids"]


def follow_reference(link: Link, source: State, info: ResolveInfo, nodes: Nodes) -> Any:
    """Return the referenced document, or None; an awaitable if it has to be read.

    References of sibling objects are read together.

    Args:
        nodes: selections of the reference.

    Raises:
        DocumentMisfit: the stored id is invalid, or a required reference leads to no document.
    """
    by, target = link.by, link.target
    id_ = source.values.get(by.stored)
    if id_ is None:
        if _required(link, source):
            raise source.place.misfit(by.name, None, f"the id of {with_article(target.name)}")
        return None
    # Called for its error: an id of another type would look like a deleted document.
    id_converter(by)(id_, source.place)
    if source.moment is not None:
        return _followed_then(link, source, info, nodes, id_, source.moment)
    fields = info.context.selections(info).stored(nodes, target, target.name)
    known = info.context.known.get((target.name, fields))
    if known is not None:
        key = identity(id_)
        if key in known:
            return _there(link, source, id_, known[key])
    return _followed(link, source, info, id_, fields)


def loaded_reference_reader(link: Link, nodes: Nodes) -> Callable[[State, RequestContext], Any]:
    """Return a function that returns the loaded document, or FALLBACK, without awaiting or raising.

    It belongs to one plan, whose selections do not change.
    """
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
        raise source.place.misfit(link.by.name, id_, f"the id of an existing {link.target.name}")
    return found


def referenced_ids(link: Link, documents: Iterable[Document]) -> dict[Any, Any]:
    """Return the ids that documents refer to, by `identity`; invalid ids are left out."""
    by = link.by
    ids = [each.get(by.stored) for each in documents]
    usual = ID_CLASSES.get(by.stored_scalar or Scalar.ID) if by.type is Scalar.ID else None
    if {usual}.issuperset(map(type, ids)):
        return dict(zip(ids, ids, strict=True))
    convert = id_converter(by)
    named: dict[Any, Any] = {}
    for id_ in ids:
        name = id_ if id_.__class__ in PLAIN_KEY_TYPES else identity(id_)
        if id_ is not None and name not in named and is_id(convert, id_):
            named[name] = id_
    return named


def known_ids(by: Field, stored: Any) -> list[Any]:
    """Return the items of a stored list of ids that a document of the target can have."""
    convert = id_converter(replace(by, is_list=False))
    items = stored if isinstance(stored, list) else []
    return [each for each in items if each is not None and is_id(convert, each)]


def _required(link: Link, source: State) -> bool:
    return link.reference.required and source.moment is None
