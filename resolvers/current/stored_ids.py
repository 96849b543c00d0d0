"""Ids that are stored with another type than the model declares.

An `ID` declared as text shows ids of every type, and the text leads back to each of them. The
declared type is looked up first, at no cost; others only if no document has an id of the declared
type. An id of another type is meant only if nothing is stored under the declared one, whether the
caller may see it or not. Among several others the order of `ids_meant` decides, and ids of existing
documents come before ids of which only history is left.
Source: docs/decisions/0046-ids-that-show-alike.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from revstream.model.definition import Entity, Field
from revstream.resolvers.filters.mongo_query import with_ids
from revstream.resolvers.values.input import ids_meant
from revstream.resolvers.values.output import TEXT_IDS, any_id
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions

__all__ = [
    "RecordKind",
    "counts_by_id",
    "find_meant_ids",
    "find_other_id",
    "first_shown_as",
    "ids_shown_as",
    "ids_shown_in",
    "other_ids",
    "read_with_other_ids",
]

K = TypeVar("K")
T = TypeVar("T")

RecordKind = Literal["versions", "drafts", "comments"]
"""Kinds of records that can outlive their document."""


def ids_shown_as(entity: Entity, key: Any) -> tuple[Any, ...]:
    """Return all ids with the same text as this one, itself first."""
    return ids_shown_in(entity.id, key)


def ids_shown_in(field: Field, key: Any) -> tuple[Any, ...]:
    """Return the same for an id that a field holds."""
    return (key, *_other_ids(field, key))


def other_ids(entity: Entity, key: Any) -> tuple[Any, ...]:
    """Return the ids of other types with the same text as this one."""
    return _other_ids(entity.id, key)


def _other_ids(field: Field, key: Any) -> tuple[Any, ...]:
    if field.stored_scalar not in TEXT_IDS:
        return ()
    name = identity(key)
    return tuple(each for each in ids_meant(any_id(key)) if identity(each) != name)


def first_shown_as(key: Any, found: Iterable[tuple[Any, T]]) -> T | None:
    """Return the value of the first pair whose id has the same text as the key.

    MongoDB calls the decimals 5 and 5.0 equal, whose texts differ.

    Args:
        found: pairs of (`_id`, value).
    """
    text = any_id(key)
    return next((each for id_, each in found if any_id(id_) == text), None)


def counts_by_id(counts: Iterable[Mapping[str, Any]], alike: Sequence[Sequence[Any]]) -> list[int]:
    """Return for each list of ids with the same text the sum of their counts.

    Args:
        counts: `{_id, n}`.
    """
    found = {identity(each["_id"]): int(each["n"]) for each in counts}
    return [sum(found.get(name, 0) for name in set(map(identity, each))) for each in alike]


async def find_other_id(
    mongo: Mongo, archive: Archive, entity: Entity, key: Any, kinds: Sequence[RecordKind]
) -> Any:
    """Find the stored `_id` of another type that an unknown id means.

    Returns:
        None if there is none, or if something is stored under this id; see `find_meant_ids`.
    """
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
    """Find for each id the stored `_id` that it means: itself, or one with the same text.

    Rows that the caller may not see count too: a write to a hidden row must not reach another
    document.

    Args:
        ids: n ids.
        kinds: kinds of records that count beside the document. Versions must have been waited for.

    Returns:
        n stored ids; None where nothing is stored under any of them.
    """
    alike = [ids_shown_as(entity, each) for each in ids]
    wanted = [key for each in alike for key in each]
    documents, *records = await asyncio.gather(
        archive.layout.find(with_ids(wanted), FindOptions(projection={"_id": 1})),
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
    """Return the `_id`s that have records of a kind; reads at most one record per id."""
    if kind == "versions":
        entries = [{"key": each} for each in wanted]
        records = await archive.newest(entries, limit=1, projection={"doc": 1})
    else:
        name = f"{archive.collection}.{kind}"
        each_first = (
            mongo.find(name, {"doc": {"$eq": key}}, FindOptions(projection={"doc": 1}, limit=1))
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
    """Read items by id; items that were not found are read by the ids of other types that are
    meant.

    Args:
        wanted: n (id, further key).
        read: reads n items in order, None for missing ones.
        meant: n (id, further key) -> n stored ids or None; see `find_meant_ids`.

    Returns:
        n items in the order of `wanted`; None for missing ones.
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
