"""Aggregates of documents as of a moment, and of versions, for one caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

import bson
from bson.timestamp import Timestamp

from revstream.model.definition import Entity, Model
from revstream.resolvers.aggregates.pipeline import NO_RESULT, AggregateResult
from revstream.resolvers.aggregates.query import AggregateQuery
from revstream.resolvers.aggregates.reading import compute_aggregate
from revstream.resolvers.errors import LimitExceeded
from revstream.resolvers.filters.expression import EVERYTHING
from revstream.resolvers.history.as_of.past_documents import CONTENT, PastDocuments
from revstream.resolvers.history.row_filtered_pages import RowFilteredPages
from revstream.resolvers.history.version_filter import CHANGED, VersionFilter
from revstream.resolvers.history.versions import VersionHistory
from revstream.resolvers.pagination.keyset import Keyset
from revstream.resolvers.values.field_diff import visible_fields
from revstream.resolvers.values.field_path import path_steps
from revstream.streams.core.errors import ArchiveBehind, HistoryLost
from revstream.streams.core.operation import count_computed
from revstream.streams.mongo.driver.codecs import DECODED, Document

__all__ = ["aggregate_as_of", "aggregate_versions", "read_past_targets"]

_MOST_BYTES = 8 * 1024 * 1024
"""Values of versions that are given to the server; a command may have 16 MB."""


async def aggregate_as_of(
    history: VersionHistory, entity: Entity, at: Timestamp, query: AggregateQuery
) -> AggregateResult:
    """Compute an aggregate of the documents that matched at a cluster time.

    The archives of the entity and of the targets of its references must have reached it.

    Raises:
        HistoryLost: not all that stood then is known.
        BadUserInput: an unknown time zone.
        LimitExceeded, TimeLimit: see `PastDocuments.run`; or there are too many groups.
    """
    archive, rows = history.readable(entity)
    where = rows.narrowed(query.where) or EVERYTHING
    documents = PastDocuments(history.mongo, archive, entity, at, where, query.paths)
    targets = partial(read_past_targets, history, at)
    result = await compute_aggregate(query, documents.run, targets, prefix=CONTENT)
    await documents.check_known()
    return result


async def aggregate_versions(
    history: VersionHistory,
    entity: Entity,
    where: VersionFilter | None,
    query: AggregateQuery,
    readable: tuple[Entity, Model],
) -> AggregateResult:
    """Compute an aggregate of the versions that match and that the caller may read.

    Args:
        readable: see `Scope.readable`.

    Raises:
        BadUserInput: an unknown time zone.
        ArchiveBehind: see `VersionHistory.read_trail`.
        LimitExceeded: too many groups; or too many versions that MongoDB cannot judge, since their
            contents lie outside of their records.
    """
    archive, rows = history.readable(entity)
    sifting, mongo = RowFilteredPages(archive, entity, rows), history.mongo
    shows_changes = CHANGED in query.paths
    naming = [_changed_names(*readable)] if shows_changes else []

    async def read() -> AggregateResult:
        start: Mapping[str, Any] = {"$match": sifting.query({} if where is None else where.query)}
        source: str | None = archive.name
        # Changes of a version after a hidden one are judged by the one before.
        if await sifting.is_needed(where) or (shows_changes and rows.limits):
            found = await _visible_versions(sifting, where, sorted(query.paths))
            if not found:
                return NO_RESULT
            # literal: values such as "$name" are no field paths
            start, source = {"$documents": {"$literal": found}}, None

        async def run(stages: Sequence[Document]) -> Sequence[Document]:
            return await mongo.aggregate(source, [start, *naming, *stages], in_memory=True)

        return await compute_aggregate(query, run)

    return await history.read_trail(
        entity, read, lambda found: not found.totals.get("count") and not found.groups
    )


def _changed_names(entity: Entity, model: Model) -> Document:
    """Return the stage that makes changed paths into the names of top-level fields, each once.

    A path that `changedFields` does not show, such as that of a hidden field inside, has no name.
    """
    steps = path_steps(entity, model)
    keys, targets = {"$literal": [*steps.targets]}, [*steps.targets.values()]
    # Without a step the index is -1, which is the last item.
    target = {
        "$arrayElemAt": [
            {"$literal": [*targets, False]},
            {"$indexOfArray": [keys, {"$concat": ["$$value", ".", "$$this"]}]},
        ]
    }
    names = {"$split": ["$$path", "."]}
    is_state = {"$eq": [{"$type": "$$value"}, "string"]}
    end = {
        "$reduce": {
            "input": names,
            "initialValue": steps.start,
            "in": {"$cond": [is_state, target, "$$value"]},
        }
    }
    paths = {"$ifNull": [f"${CHANGED}", []]}
    shown = {"$filter": {"input": paths, "as": "path", "cond": {"$ne": [end, False]}}}
    fields = {each.stored: each.name for each in visible_fields(entity)}
    place = {"$indexOfArray": [{"$literal": [*fields]}, {"$arrayElemAt": [names, 0]}]}
    name = {"$arrayElemAt": [{"$literal": [*fields.values(), None]}, place]}
    found = {"$map": {"input": shown, "as": "path", "in": name}}
    return {"$set": {CHANGED: {"$setDifference": [found, [None]]}}}


async def _visible_versions(
    sifting: RowFilteredPages, where: VersionFilter | None, fields: Sequence[str]
) -> Sequence[Document]:
    """Return the fields of the visible versions that are measured.

    Raises:
        LimitExceeded: they are too large for one command.
    """
    keyset = Keyset("versions", (("_id", -1),), uniform=True)
    rows: list[Document] = []
    size = 0
    async with aclosing(sifting.rows(where, keyset, fields)) as portions:
        async for portion in portions:
            before = size
            for record in portion:
                row = {name: record[name] for name in fields if name in record}
                size += len(bson.encode(row, codec_options=DECODED))
                rows.append(row)
            if size > _MOST_BYTES:
                raise LimitExceeded(
                    "versions whose contents are stored as patches, in bytes: more than "
                    f"{_MOST_BYTES:,}, which is the maximum of an aggregate for a caller with a "
                    "row rule; filter with `where`",
                    limit="memory",
                    bound=_MOST_BYTES,
                )
            # A row is two documents, however small they are.
            await count_computed(size - before, 2 * len(portion))
    return rows


async def read_past_targets(
    history: VersionHistory,
    at: Timestamp,
    entity: Entity,
    ids: Sequence[Any],
    fields: frozenset[str],
) -> Sequence[Document | None]:
    """Return the documents as they were.

    Raises:
        HistoryLost, ArchiveBehind: it is not known whether one was there.
    """
    states = await history.as_of(entity, [(each, at) for each in ids], fields)
    found: list[Document | None] = []
    for each in states:
        if isinstance(each, HistoryLost | ArchiveBehind):
            raise each
        found.append(None if each is None else each.full)
    return found
