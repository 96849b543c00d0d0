"""Ids that are stored otherwise than the model declares: an `ID` that is declared as text shows ids
of every type, and the text leads back to each of them.

The declared type goes first, at no cost; the others are looked for where nothing is found by it.
They are meant where nothing is known of the declared one, whether the caller sees it or not. Of
several others the order of `ids_meant` counts; among those, one whose document is there before one
of which only history is left.
Source: docs/decisions/0046-ids-that-show-alike.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar

from revstream.model.definition import Entity
from revstream.resolvers.filters.mongo_query import with_ids
from revstream.resolvers.values.input import ids_meant
from revstream.resolvers.values.output import TEXT_IDS, any_id
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.mongo.database import Mongo

__all__ = [
    "RecordKind",
    "find_meant_ids",
    "find_other_id",
    "first_shown_as",
    "ids_shown_as",
    "other_ids",
    "read_with_other_ids",
]

K = TypeVar("K")
T = TypeVar("T")

RecordKind = Literal["versions", "drafts", "comments"]
"""Records that may be left of a document that is not there."""


def ids_shown_as(entity: Entity, key: Any) -> tuple[Any, ...]:
    """Return the ids that show as this one does, itself first."""
    return (key, *other_ids(entity, key))


def other_ids(entity: Entity, key: Any) -> tuple[Any, ...]:
    """Return the ids of other types that show as this one does."""
    if entity.id.stored_scalar not in TEXT_IDS:
        return ()
    name = identity(key)
    return tuple(each for each in ids_meant(any_id(key)) if identity(each) != name)


def first_shown_as(key: Any, found: Iterable[tuple[Any, T]]) -> T | None:
    """Return the first of (`_id`, what was found) whose id shows as this one does: MongoDB calls 5
    and 5.0 equal, whose decimals show otherwise."""
    text = any_id(key)
    return next((each for id_, each in found if any_id(id_) == text), None)


async def find_other_id(
    mongo: Mongo, archive: Archive, entity: Entity, key: Any, kinds: Sequence[RecordKind]
) -> Any:
    """Find the `_id` of another type that is meant by one that was not found; None where there is
    none, or something is known of this one. See `find_meant_ids`."""
    if not other_ids(entity, key):
        return None
    (meant,) = await find_meant_ids(mongo, archive, entity, [key], kinds)
    return None if meant is None or identity(meant) == identity(key) else meant


async def find_meant_ids(
    mongo: Mongo,
    archive: Archive,
    entity: Entity,
    ids: Sequence[Any],
    kinds: Sequence[RecordKind],
) -> list[Any]:
    """n ids -> of each the stored `_id` that it means, itself or one that shows alike; None where
    nothing is known of any.

    Rows that callers may not see count: whom a row is hidden from must not write to another one.

    Args:
        kinds: records that count beside the document itself. Versions must have been waited for.
    """
    alike = [ids_shown_as(entity, each) for each in ids]
    wanted = [key for each in alike for key in each]
    documents, *records = await asyncio.gather(
        archive.layout.find(with_ids(wanted), projection={"_id": 1}),
        *(_recorded_ids(mongo, archive, wanted, each) for each in kinds),
    )
    there = {identity(each["_id"]): each["_id"] for each in documents}
    known = {identity(each): each for some in records for each in some} | there
    found = []
    for itself, *others in alike:
        order = [itself, *(each for each in others if identity(each) in there), *others]
        names = [name for each in order if (name := identity(each)) in known]
        found.append(first_shown_as(itself, [(known[name], known[name]) for name in names]))
    return found


async def _recorded_ids(
    mongo: Mongo, archive: Archive, wanted: Sequence[Any], kind: RecordKind
) -> list[Any]:
    """Return the `_id`s of which there are such records; at most one record of each is read."""
    if kind == "versions":
        entries = [{"key": each} for each in wanted]
        records = await archive.newest(entries, limit=1, projection={"doc": 1})
    else:
        name = f"{archive.collection}.{kind}"
        each_first = (
            mongo.find(name, {"doc": {"$eq": key}}, projection={"doc": 1}, limit=1)
            for key in wanted
        )
        records = [record for found in await asyncio.gather(*each_first) for record in found]
    return [each["doc"] for each in records]


async def read_with_other_ids(
    entity: Entity,
    wanted: Sequence[tuple[Any, K]],
    read: Callable[[Sequence[tuple[Any, K]]], Awaitable[list[Any]]],
    meant: Callable[[Sequence[tuple[Any, K]]], Awaitable[list[Any]]],
) -> list[Any]:
    """Read n (id, which) -> n in the order asked, None where there is none; those not found
    by the ids of other types that are meant.

    Args:
        meant: n (id, which) -> of each the `_id` that it means, or None; as `find_meant_ids`.
    """
    found = await read(wanted)
    missing = [
        n for n, each in enumerate(found) if each is None and other_ids(entity, wanted[n][0])
    ]
    if not missing:
        return found
    ids = await meant([wanted[n] for n in missing])
    others = {
        n: (id_, wanted[n][1])
        for n, id_ in zip(missing, ids, strict=True)
        if id_ is not None and identity(id_) != identity(wanted[n][0])
    }
    for n, each in zip(others, await read([*others.values()]) if others else (), strict=True):
        found[n] = each
    return found
