"""Follow to-one references: now, or as they stood at the moment of the record they are followed
from."""

from __future__ import annotations

from gql.context import ResolveInfo
from gql.records import CurrentDocument, SnapshotDocument, State
from gql.selection import Nodes
from gql.shapes import Link
from resolvers.values import converter

__all__ = ["follow"]


async def follow(
    link: Link, source: State, info: ResolveInfo, nodes: Nodes
) -> CurrentDocument | SnapshotDocument | None:
    """The document that is referred to, or None where there is none; siblings are read together.

    Args:
        nodes: where its fields are selected.
    Raises:
        DocumentMisfit: what should be an id is none, or leads nowhere from a document that is
            required to have it.
    """
    context = info.context
    by, target = link.by, link.target
    id_ = source.values.get(by.stored)
    required = link.reference.required and source.moment is None
    if id_ is None:
        if required:
            raise source.place.misfit(by.name, None, f"the id of a {target.name}")
        return None
    # For what it refuses: an id of another type leads nowhere, and that would look like a document
    # that is gone.
    converter(by, nullable=True)(id_, source.place)
    selections = context.selections(info)
    if source.moment is None:
        fields = selections.stored(nodes, target, target.name)
        document = await context.loads.document(target.entity, id_, fields)
        if document is not None:
            return CurrentDocument(target, document)
        if required:
            raise source.place.misfit(by.name, id_, f"the id of a {target.name} that exists")
        return None
    fields = selections.stored(nodes, target, target.snapshot)
    version = await context.loads.version_at(target.entity, id_, source.moment, fields)
    if version is None or version.full is None:
        return None
    return SnapshotDocument(target, version.full, version.number, source.moment)
