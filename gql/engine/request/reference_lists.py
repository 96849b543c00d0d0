"""References to the documents of a list of ids, followed now or as of the record's cluster time."""

from __future__ import annotations

import asyncio
from typing import Any

from revstream.gql.engine.definitions.object_type import Link
from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.engine.request.invalid_documents import (
    report_invalid_snapshots,
    without_invalid,
)
from revstream.gql.engine.request.references import known_ids
from revstream.gql.engine.request.selection import Nodes
from revstream.gql.engine.request.source import CurrentDocument, SnapshotDocument, State

__all__ = ["follow_list"]


async def follow_list(link: Link, source: State, info: ResolveInfo, nodes: Nodes) -> list[Any]:
    """Return the documents of a list of ids, in its order, without those that do not exist.

    An id that no document of the target can have leads to none. Lists of sibling objects are read
    together.

    Args:
        nodes: selections of the reference.
    """
    context, target, moment = info.context, link.target, source.moment
    ids = known_ids(link.by, source.values.get(link.by.stored))
    selections = context.selections(info)
    if moment is None:
        fields = selections.stored(nodes, target, target.name)
        read = await context.loads.documents(target.entity, ids, fields)
        found = [CurrentDocument(target, each) for each in read if each is not None]
        fits = await without_invalid(info, found, target, nodes)
        return [each for each, fit in zip(found, fits, strict=True) if fit]
    fields = selections.stored(nodes, target, target.snapshot)
    versions = await asyncio.gather(
        *(context.loads.version_at(target.entity, each, moment, fields) for each in ids)
    )
    snapshots = [
        SnapshotDocument(target, each.full, each.number, moment)
        for each in versions
        if each is not None and each.full is not None
    ]
    fits = report_invalid_snapshots(info, snapshots, target, nodes)
    return [each for each, fit in zip(snapshots, fits, strict=True) if fit]
