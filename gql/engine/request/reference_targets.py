"""Ids of the documents on the other side of a reference that match a filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bson import Timestamp

from revstream.gql.engine.request.services import Services
from revstream.model.definition import Entity
from revstream.resolvers.current.stored_ids import ids_shown_as
from revstream.resolvers.errors import LimitExceeded
from revstream.resolvers.filters.expression import Condition
from revstream.resolvers.filters.reference_filters import MOST_TARGETS
from revstream.resolvers.history.time_point import TimePoint
from revstream.resolvers.pagination.page import PageRequest
from revstream.resolvers.pagination.page_query import PageQuery

__all__ = ["find_targets"]


async def find_targets(
    services: Services, entity: Entity, condition: Condition, at: Timestamp | None
) -> Sequence[Any]:
    """Return the ids of the documents that match and that the caller may read.

    Args:
        at: the cluster time to read at; None for the present.

    Raises:
        LimitExceeded: too many documents match.
        Forbidden: the caller may not read the entity.
    """
    query: PageQuery[Condition] = PageQuery(
        where=condition,
        page=PageRequest(first=MOST_TARGETS),
        fields=frozenset(),
        facts=frozenset(),
        shown=True,
    )
    if at is None:
        page = await services.current.page(entity, query)
        ids = [each["_id"] for each in page.items]
    else:
        moment = TimePoint(at=at)
        await services.moments.reached(entity, moment)
        page = await services.history.collection_as_of(entity, moment, query)
        ids = [each["doc"] for each in page.items]
    if page.has_next:
        raise LimitExceeded(
            f"{entity.name}: more than {MOST_TARGETS:,} documents match the filter through a "
            "reference, which is the maximum; add conditions",
            limit="targets of a reference",
            asked=MOST_TARGETS + 1,
            bound=MOST_TARGETS,
        )
    # A reference leads to a document whose id has another type and the same text, too.
    return [each for id_ in ids for each in ids_shown_as(entity, id_)]
