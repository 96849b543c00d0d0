"""The argument `orderBy` of lists of documents: its input types, and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from bson import Timestamp

from revstream.gql.engine.definitions.object_type import Link, ObjectTypeInfo
from revstream.gql.engine.request.context import RequestContext
from revstream.model.definition import Scalar
from revstream.resolvers.errors import BadUserInput, LimitExceeded
from revstream.resolvers.history.time_point import TimePoint
from revstream.resolvers.pagination.order_by import (
    CountKey,
    DistanceKey,
    Order,
    ReferenceKey,
    RelatedKey,
    related_keys,
)
from revstream.resolvers.values.input import from_api

__all__ = ["OrderArgument", "parse_order"]

Direction: TypeAlias = Literal["ASC", "DESC"]
OrderArgument: TypeAlias = "Mapping[str, Direction | OrderArgument]"
Key: TypeAlias = "str | RelatedKey"

_MOST_RELATED = 5


async def parse_order(
    context: RequestContext,
    shape: ObjectTypeInfo,
    order_by: Sequence[OrderArgument] | None,
    at: Timestamp | None,
) -> Order:
    """Parse the argument `orderBy`, and check that the caller may read its fields.

    Args:
        at: the cluster time of the read; the archives that the order needs have reached it
            afterwards. None for the present.

    Raises:
        Forbidden: a field that the caller may not read.
        BadUserInput: a field that is named twice, or an order that is not supported.
        LimitExceeded: too many fields of other documents.
        ArchiveBehind: an archive did not reach the time.
    """
    order = _parse(context, shape, order_by)
    related = related_keys(order)
    if len(related) > _MOST_RELATED:
        raise LimitExceeded(
            f"values of related documents in an order: {len(related)}, maximum is "
            f"{_MOST_RELATED}; use fewer",
            limit="related values in an order",
            asked=len(related),
            bound=_MOST_RELATED,
        )
    others = [each for each in related if not isinstance(each, DistanceKey)]
    for target in {each.target.name: each.target for each in others}.values():
        context.scope.check_shown(target)
        if at is not None:
            await context.services.moments.reached(target, TimePoint(at=at))
    return order


def _parse(
    context: RequestContext, shape: ObjectTypeInfo, order_by: Sequence[OrderArgument] | None
) -> list[tuple[Key, Direction]]:
    order: list[tuple[Key, Direction]] = []
    seen: set[str] = set()
    for each in order_by or ():
        for name, value in each.items():
            names, key, direction = _parse_key(context, shape, name, value)
            if names in seen:
                raise BadUserInput(
                    f"orderBy: {names} twice, expected each field once; remove one of them",
                    argument="orderBy",
                )
            seen.add(names)
            order.append((key, direction))
    return order


def _parse_key(
    context: RequestContext, shape: ObjectTypeInfo, name: str, value: Direction | OrderArgument
) -> tuple[str, Key, Direction]:
    """Return the API names of a field, joined, its key, and the direction."""
    names, path = [name], ""
    link: Link | None = None
    place, by = "", ""
    while True:
        if name in shape.guarded:
            context.scope.check_read(shape.type, shape.guarded[name])
        if isinstance(value, str):
            break
        if name in shape.back_links or name in shape.list_links:
            # The input type has only `count`.
            (direction,) = value.values()
            assert isinstance(direction, str)
            if link is not None:
                raise _chained(names)
            if name in shape.back_links:
                back = shape.back_links[name]
                count = CountKey(name, back.target.entity, back.by)
            else:
                listed = shape.list_links[name]
                place, by = ".".join(names), path + listed.by.stored
                count = CountKey(place, listed.target.entity, by=by)
            return count.name, count, direction
        if name in shape.fields and shape.fields[name].type is Scalar.POINT:
            if link is not None:
                raise BadUserInput(
                    f"orderBy: {'.'.join(names)}, expected a point of the documents that are "
                    "ordered, not one of another document; filter by it with near",
                    argument="orderBy",
                )
            distance = _distance_key(".".join(names), path + shape.fields[name].stored, value)
            return distance.name, distance, value.get("direction") or "ASC"  # type: ignore[return-value]
        if name in shape.links:
            if link is not None:
                raise _chained(names)
            link = shape.links[name]
            place, by, path = ".".join(names), path + link.by.stored, ""
            shape = link.target
        else:
            path += f"{shape.fields[name].stored}."
            shape = shape.embedded[name]
        # The input type has exactly one field.
        ((name, value),) = value.items()
        names.append(name)
    joined = ".".join(names)
    if len(names) == 1:
        return joined, name, value
    path += shape.fields[name].stored
    if link is None:
        return joined, path, value
    return joined, ReferenceKey(joined, place, by, link.target.entity, path), value


def _chained(names: Sequence[str]) -> BadUserInput:
    return BadUserInput(
        f"orderBy: {'.'.join(names)}, expected a relation of the documents that are ordered, not "
        "one that begins at another document",
        argument="orderBy",
    )


def _distance_key(place: str, path: str, value: OrderArgument) -> DistanceKey:
    origin = from_api(Scalar.POINT, value["distanceTo"], f"orderBy.{place}.distanceTo")
    longitude, latitude = origin["coordinates"]
    return DistanceKey(place, path, (longitude, latitude))
