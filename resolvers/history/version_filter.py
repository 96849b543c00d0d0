"""Filter over versions: a `VersionWhere` as a query over the archive's records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp

from revstream.model.definition import Entity, EnumType, Field, Model, Scalar
from revstream.resolvers.access.permissions import Scope
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.expression import Text
from revstream.resolvers.filters.mongo_query import regular_expression, to_query
from revstream.resolvers.filters.parser import parse_where
from revstream.resolvers.values.dates import milliseconds
from revstream.resolvers.values.field_path import stored_path
from revstream.resolvers.values.input import from_api
from revstream.streams.core import resume_tokens

__all__ = ["CHANGED", "OPERATION", "VERSION_RECORD", "VersionFilter", "parse_version_where"]

OPERATION = EnumType(name="Operation", values=("BASELINE", "INSERT", "UPDATE", "REPLACE", "DELETE"))

CHANGED = "changed"
"""Paths of the fields that a version changed."""

VERSION_RECORD = Entity(
    name="Version",
    fields=(
        Field(name="token", stored="_id", type=Scalar.ID),
        Field(name="documentId", stored="doc", type=Scalar.ID),
        Field(name="author", stored="by", type=Scalar.STRING),
        Field(name="operation", stored="op", type=OPERATION),
        Field(name="at", stored="wall", type=Scalar.DATETIME),
        Field(name="changedField", stored=CHANGED, type=Scalar.STRING, is_list=True),
    ),
    collection="versions",
    singular="version",
    plural="versions",
    version=None,
)
"""Records of any archive as if they were modelled, for aggregates."""

_SLACK_S = 10
"""How far a record's wall-clock time may lie from its cluster time, to be found by the former.

Generous: it only bounds what is looked through. A clock that was set back further than this hides
what was written meanwhile from filters by time, and from nothing else.
"""

_LAST_SECOND = 2**32 - 1


@dataclass(frozen=True, slots=True)
class VersionFilter:
    """Query over records.

    Attributes:
        changed: Stored path of a field that the versions changed, if this has to be evaluated for a
            caller that does not see all versions; the query finds these versions, and others.
    """

    query: Mapping[str, Any]
    changed: str | None = None


def parse_version_where(
    model: Model, entity: Entity, where: Mapping[str, Any] | None, scope: Scope
) -> VersionFilter | None:
    """Parse a `VersionWhere` on versions of an entity's documents; None matches all.

    Raises:
        BadUserInput: An unknown field or operator, or a wrong value; the message names it.
        Forbidden: A changed field that the caller may not read.
    """
    if not where:
        return None
    given = dict(where)
    path = given.pop("changedField", None)
    if "changedField" in where and path is None:
        raise BadUserInput(
            "VersionWhere.changedField: null, expected the path of a field; remove it",
            argument="changedField",
        )
    queries = [to_query(parse_where(model, _records_of(entity), given))] if given else []
    if entity.layout is None or entity.layout.at is None:
        # Where a layout says when, that may be long before it was recorded.
        queries += _bounds(given.get("at"))
    if path is not None:
        stored = stored_path(entity, model, path, "VersionWhere.changedField")
        scope.check_named(entity, path.split("."))
        if scope.read_rows(entity).limits:
            # A version after a hidden one counts as a change of all its fields.
            top = f"full.{stored.partition('.')[0]}"
            there = [{top: {"$exists": True}}, {"packed": True}]
            queries.append({"$or": [*_changed(stored)["$or"], *there]})
            return VersionFilter({"$and": queries}, changed=stored)
        queries.append(_changed(stored))
    return VersionFilter(queries[0] if len(queries) == 1 else {"$and": queries})


def _records_of(entity: Entity) -> Entity:
    """The records of an archive as if they were modelled, for the one filter language."""
    scalar = entity.id.stored_scalar
    return Entity(
        name="VersionWhere",
        fields=(
            Field(name="documentId", stored="doc", type=Scalar.ID, stored_scalar=scalar),
            Field(name="author", stored="by", type=Scalar.STRING),
            Field(name="operation", stored="op", type=OPERATION),
            Field(name="at", stored="wall", type=Scalar.DATETIME),
            Field(name="version", stored="v", type=Scalar.INT),
        ),
        collection=f"{entity.collection}.versions",
        singular="version",
        plural="versions",
        version=None,
    )


def _bounds(at: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Return the part of the stream with the requested times: `_id` is in the order of the
    stream.
    """
    for operator, operand in (at or {}).items():
        if operand is None:
            continue
        if operator in ("gt", "gte", "eq"):
            yield {"_id": {"$gte": _token(operand, -_SLACK_S)}}
        if operator in ("lt", "lte", "eq"):
            yield {"_id": {"$lt": _token(operand, _SLACK_S + 1)}}


def _token(time: Any, slack_s: int) -> str:
    date = from_api(Scalar.DATETIME, time, "VersionWhere.at")
    second = min(max(milliseconds(date) // 1000 + slack_s, 0), _LAST_SECOND)
    return resume_tokens.time_prefix(Timestamp(second, 0))


def _changed(path: str) -> dict[str, Any]:
    """Versions that changed it, something inside of it, or all of what it is in.

    An object that appears is listed by itself, and so is each top-level field of a first state.
    """
    names = path.split(".")
    above = [".".join(names[: n + 1]) for n in range(len(names))]
    inside = regular_expression(Text("changed", f"{path}.", at_start=True))
    return {"$or": [{"changed": {"$in": above}}, {"changed": {"$regex": inside}}]}
