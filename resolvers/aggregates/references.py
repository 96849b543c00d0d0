"""Groups by fields of the documents to which references lead.

Documents are grouped by the id that they hold first. The values of the targets are read by these
ids, as references read them, and given to MongoDB, which merges the groups with equal values.
Source: docs/decisions/0053-aggregates-across-documents.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import bson

from revstream.model.definition import Entity, Field
from revstream.resolvers.aggregates.expressions import Expression, any_id
from revstream.resolvers.errors import LimitExceeded
from revstream.resolvers.filters.reference_filters import MOST_TARGETS
from revstream.resolvers.values.field_path import value_at
from revstream.resolvers.values.reference_ids import id_converter, is_id
from revstream.streams.changefeed.event import identity
from revstream.streams.core.operation import count_computed
from revstream.streams.mongo.driver.codecs import DECODED, Document

__all__ = [
    "Hop",
    "Join",
    "ReadTargets",
    "check_target_count",
    "id_expression",
    "id_stages",
    "join_stages",
    "read_join",
]

_PORTION = 500
"""Targets that are read at once."""

_MOST_BYTES = 8 * 1024 * 1024
"""Values of targets that are given to the server; a command may have 16 MB."""

ReadTargets = Callable[
    [Entity, Sequence[Any], frozenset[str]], Awaitable[Sequence[Mapping[str, Any] | None]]
]
"""(entity, ids, stored fields) -> documents in that order, with the rows of the caller only."""


@dataclass(frozen=True, slots=True)
class Hop:
    """Reference from a document to another one.

    Attributes:
        path: stored path of the id.
        name: the reference.
        by: the field with the id.
    """

    path: str
    name: str
    by: Field = field(compare=False)
    target: Entity = field(compare=False)


@dataclass(frozen=True, slots=True)
class Join:
    """Values of the documents to which one reference leads, directly or by further references.

    Attributes:
        values: stored paths in the target, by the name of the value.
        joins: the references of the target.
    """

    hop: Hop
    values: Mapping[str, str]
    joins: Sequence[Join]

    def targets(self) -> Iterator[Entity]:
        """Yield the entities that are read."""
        yield self.hop.target
        for each in self.joins:
            yield from each.targets()


def id_expression(hop: Hop, prefix: str = "") -> Expression:
    """Return the expression for the id that a document holds, or null."""
    return any_id(f"${prefix}{hop.path}")


def id_stages(hop: Hop, *, prefix: str = "") -> list[Document]:
    """Return the stages that yield the different ids that documents hold, as `_id`.

    One more than allowed is enough to refuse them: see `check_target_count`.
    """
    # Null is one of them.
    return [{"$group": {"_id": id_expression(hop, prefix)}}, {"$limit": MOST_TARGETS + 2}]


def check_target_count(hop: Hop, ids: Sequence[Any]) -> None:
    """Check the number of documents to which a reference leads.

    Raises:
        LimitExceeded: there are too many.
    """
    count = sum(each is not None for each in ids)
    if count > MOST_TARGETS:
        raise LimitExceeded(
            f"{hop.target.name}: more than {MOST_TARGETS:,} documents to group by, which is the "
            f"maximum; group by {hop.by.name}, or filter with `where`",
            limit="targets of a reference",
            asked=MOST_TARGETS + 1,
            bound=MOST_TARGETS,
        )


async def read_join(join: Join, ids: Sequence[Any], read: ReadTargets) -> list[Document]:
    """Return `{id, to}` for the targets that exist: `to` has the values by name.

    Raises:
        LimitExceeded: too many targets, or too large values. `read` may raise other errors.
    """
    hop = join.hop
    check_target_count(hop, ids)
    convert = id_converter(hop.by)
    valid = [each for each in ids if each is not None and is_id(convert, each)]
    fields = frozenset((*join.values.values(), *(each.hop.path for each in join.joins)))
    rows: list[Document] = []
    held: list[list[Any]] = []
    size = 0
    # At least one read, which checks that the caller may read the entity.
    for start in range(0, len(valid) or 1, _PORTION):
        portion, before = valid[start : start + _PORTION], size
        documents = await read(hop.target, portion, fields)
        for id_, document in zip(portion, documents, strict=True):
            if document is None:
                continue
            values = {name: value_at(document, path) for name, path in join.values.items()}
            row = {"id": id_, "to": values}
            size += len(bson.encode(row, codec_options=DECODED))
            _check_size(hop, size)
            rows.append(row)
            held.append([value_at(document, each.hop.path) for each in join.joins])
        # A row is two documents, however small they are.
        await count_computed(size - before, 2 * len(portion))
    for n, inner in enumerate(join.joins):
        inner_ids = {identity(each[n]): each[n] for each in held}
        found = await read_join(inner, [*inner_ids.values()], read)
        values_by_id = {identity(each["id"]): each["to"] for each in found}
        for row, own in zip(rows, held, strict=True):
            row["to"] |= values_by_id.get(identity(own[n]), {})
    return rows


def _check_size(hop: Hop, size: int) -> None:
    if size > _MOST_BYTES:
        raise LimitExceeded(
            f"{hop.target.name}: values to group by, in bytes: more than {_MOST_BYTES:,}, which "
            "is the maximum; group by fields with shorter values, or filter with `where`",
            limit="memory",
            bound=_MOST_BYTES,
        )


def join_stages(number: int, values: Expression) -> list[Document]:
    """Return the stages that add the values of targets to groups by ids.

    A group has the id as `_id.r<number>` and gets the values as `to<number>`.

    Args:
        values: a list of `{id, to}`.
    """
    is_group = {"$eq": [{"$type": "$rows.to"}, "missing"]}
    entry = {
        "$map": {"input": values, "in": {"_id": {f"r{number}": "$$this.id"}, "to": "$$this.to"}}
    }
    return [
        # Both sides in one list, so that a second `$group` finds equal ids without comparing
        # each with each.
        {"$group": {"_id": None, "rows": {"$push": "$$ROOT"}}},
        {"$project": {"rows": {"$concatArrays": ["$rows", entry]}}},
        {"$unwind": "$rows"},
        {
            "$group": {
                "_id": f"$rows._id.r{number}",
                "rows": {"$push": {"$cond": [is_group, "$rows", "$$REMOVE"]}},
                # Without the groups, which have none.
                "to": {"$max": "$rows.to"},
            }
        },
        {"$unwind": "$rows"},
        {"$replaceWith": {"$mergeObjects": ["$rows", {f"to{number}": "$to"}]}},
    ]
