"""Ids that are stored otherwise than the model declares: an `ID` that is declared as text shows ids
of every type, and the text leads back to each of them.

The declared type goes first, at no cost; the others are looked for where nothing is found by it.
Of several ids that show as one text, the declared one counts, then the order of `ids_meant`; among
those, one whose document is there before one of which only history is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from model.entities import Entity
from resolvers.inputs import ids_meant
from resolvers.queries import with_ids
from resolvers.values import TEXT_IDS, any_id
from streams.archive import Archive
from streams.events import identity

__all__ = ["find_other_id", "first_shown_as", "ids_shown_as", "other_ids"]

T = TypeVar("T")


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


async def find_other_id(archive: Archive, entity: Entity, key: Any) -> Any:
    """Find the `_id` of another type that shows as this one does, of a document that is there, or
    else of one that has a history; None where there is none."""
    others = other_ids(entity, key)
    if not others:
        return None
    found = await archive.layout.find(with_ids(others), projection={"_id": 1})
    there = _in_order(others, [each["_id"] for each in found])
    if not there:
        wanted = [{"key": each} for each in others]
        records = await archive.newest(wanted, limit=1, projection={"doc": 1})
        there = _in_order(others, [each["doc"] for each in records])
    return first_shown_as(key, [(each, each) for each in there])


def _in_order(wanted: Sequence[Any], found: Iterable[Any]) -> list[Any]:
    by_name = {identity(each): each for each in found}
    return [by_name[name] for each in wanted if (name := identity(each)) in by_name]
