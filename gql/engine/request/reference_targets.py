"""Ids by which a filter through a reference finds documents: those of its targets that match."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bson import Timestamp

from revstream.gql.engine.request.services import Services
from revstream.model.definition import Entity, Field
from revstream.resolvers.aggregates.pipeline import OUT_OF_MEMORY
from revstream.resolvers.current.stored_ids import ids_shown_in
from revstream.resolvers.errors import LimitExceeded
from revstream.resolvers.filters.expression import Condition, Refers
from revstream.resolvers.filters.reference_filters import MOST_TARGETS
from revstream.resolvers.history.time_point import TimePoint
from revstream.resolvers.pagination.page import PageRequest
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.values.reference_ids import check_id_bytes
from revstream.streams.changefeed.event import possible_ids
from revstream.streams.core.errors import DatabaseError

__all__ = ["find_targets"]


async def find_targets(
    services: Services, reference: Refers, condition: Condition, at: Timestamp | None
) -> Sequence[Any]:
    """Return the ids of the targets that match and that the caller may read.

    Of a back reference, these are the ids that such targets hold.

    Args:
        at: the cluster time to read at; None for the present.

    Raises:
        LimitExceeded: too many ids.
        Forbidden: the caller may not read the targets.
    """
    target, held = reference.target, reference.by
    moment = None if at is None else TimePoint(at=at)
    if moment is not None:
        await services.moments.reached(target, moment)
    if held is None:
        ids = await _target_ids(services, target, condition, moment)
    else:
        ids = await _held_ids(services, target, held, condition, moment)
    if len(ids) > MOST_TARGETS:
        raise _too_many(target, held)
    # An id, and the id by which a reference leads to it, may differ in type and have one text.
    shown = [each for id_ in ids for each in ids_shown_in(held or target.id, id_)]
    # A field may hold anything: as an item of `$in`, a regular expression matches other ids.
    found = possible_ids(shown)
    check_id_bytes(target, found)
    return found


async def _target_ids(
    services: Services, target: Entity, condition: Condition, moment: TimePoint | None
) -> Sequence[Any]:
    query: PageQuery[Condition] = PageQuery(
        where=condition,
        page=PageRequest(first=MOST_TARGETS + 1),
        fields=frozenset(),
        facts=frozenset(),
        for_output=True,
    )
    if moment is None:
        page = await services.current.page(target, query)
        return [each["_id"] for each in page.items]
    page = await services.history.collection_as_of(target, moment, query)
    return [each["doc"] for each in page.items]


async def _held_ids(
    services: Services,
    target: Entity,
    held: Field,
    condition: Condition,
    moment: TimePoint | None,
) -> Sequence[Any]:
    limit = MOST_TARGETS + 1
    try:
        if moment is None:
            return await services.current.held_ids(target, held, condition, limit=limit)
        return await services.history.held_ids_as_of(target, held, condition, moment, limit=limit)
    except DatabaseError as exc:
        if exc.number in OUT_OF_MEMORY:
            # The distinct ids take more than 100 MB.
            raise _too_many(target, held) from exc
        raise


def _too_many(target: Entity, held: Field | None) -> LimitExceeded:
    found = f"{target.name}: more than {MOST_TARGETS:,} documents match"
    if held is not None:
        found = f"{target.name}.{held.name}: more than {MOST_TARGETS:,} ids are held by matches of"
    return LimitExceeded(
        f"{found} the filter through a reference, which is the maximum; add conditions",
        limit="targets of a reference",
        asked=MOST_TARGETS + 1,
        bound=MOST_TARGETS,
    )
