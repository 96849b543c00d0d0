"""References to the documents of a list of ids, followed now or as of the record's cluster time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from bson import Timestamp

from revstream.gql.engine.definitions.object_type import Link
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.invalid_documents import (
    report_invalid_snapshots,
    without_invalid,
)
from revstream.gql.engine.request.references import known_ids
from revstream.gql.engine.request.selection import ConnectionSelection, Nodes
from revstream.gql.engine.request.source import CurrentDocument, SnapshotDocument, State
from revstream.resolvers.pagination.id_list_page import IdListWindow
from revstream.resolvers.pagination.page import MAX_PAGE_SIZE, Page, PageRequest
from revstream.streams.core import resume_tokens
from revstream.streams.core.operation import OPERATION
from revstream.streams.versioning.version import Version

__all__ = ["follow_list", "read_list_page"]


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
        fits = await without_invalid(info, found, target, nodes, paged=False)
        return [each for each, fit in zip(found, fits, strict=True) if fit]
    fields = selections.stored(nodes, target, target.snapshot)
    versions = await _states_at(context, link, moment, ids, fields)
    snapshots = [
        SnapshotDocument(target, each.full or {}, each.number, moment)
        for each in versions
        if each is not None
    ]
    fits = report_invalid_snapshots(info, snapshots, target, nodes, paged=False)
    return [each for each, fit in zip(snapshots, fits, strict=True) if fit]


async def read_list_page(
    link: Link,
    source: State,
    info: ResolveInfo,
    request: PageRequest,
    selected: ConnectionSelection,
) -> Page[Any]:
    """Read a page of the documents of a list of ids; see `follow_list`.

    Args:
        selected: the selection of the page.

    Returns:
        A page of current documents, or of versions.

    Raises:
        BadUserInput: a cursor of another list.
        LimitExceeded: the operation requests too many values.
    """
    context, target, moment = info.context, link.target, source.moment
    ids = known_ids(link.by, source.values.get(link.by.stored))
    window = IdListWindow(f"list of {target.name} by {link.by.stored}", ids, request)
    type_name = target.name if moment is None else target.snapshot
    fields = context.selections(info).stored(selected.items, target, type_name)
    token = None
    if moment is not None:
        token = resume_tokens.token_from_time(moment)
    elif selected.token:
        # Before the reads: a subscription after it misses no change.
        token = resume_tokens.token_from_time((await context.services.moments.now()).at)

    async def read(ids: Sequence[Any], fields: frozenset[str] = fields) -> Sequence[Any]:
        # A total, or ids without documents, may take many more reads than the page.
        operation = OPERATION.get()
        if operation is not None:
            operation.count_values(len(ids))
        if moment is None:
            return await context.loads.documents(target.entity, ids, fields)
        return await _states_at(context, link, moment, ids, fields)

    count = partial(read, fields=frozenset()) if selected.total else None
    return await window.page(read, count=count, token=token)


async def _states_at(
    context: RequestContext,
    link: Link,
    moment: Timestamp,
    ids: Sequence[Any],
    fields: frozenset[str],
) -> list[Version | None]:
    """Return the versions at a cluster time, in the order of the ids; None for missing ones."""
    entity = link.target.entity
    found: list[Version | None] = []
    # In portions: a task for each id of a long list would keep other callers waiting.
    for start in range(0, len(ids), MAX_PAGE_SIZE):
        portion = ids[start : start + MAX_PAGE_SIZE]
        found += await asyncio.gather(
            *(context.loads.version_at(entity, each, moment, fields) for each in portion)
        )
    return [None if each is None or each.full is None else each for each in found]
