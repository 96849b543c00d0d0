"""The indexes that a model asks for, created at start, with progress to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from model.entities import Model
from streams.errors import DatabaseError, DuplicateKey, Unsuitable
from streams.mongo import Mongo

__all__ = ["IndexRefused", "create_indexes"]

Report = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class IndexRefused:
    """An index that could not be made, and what the server said."""

    collection: str
    fields: tuple[str, ...]
    reason: str


async def create_indexes(mongo: Mongo, model: Model, report: Report) -> list[IndexRefused]:
    """Create what is missing; what is there already is left alone.

    Args:
        report: called with a text, how many are done, and how many there are.
    Returns: those that were refused (a unique one over data that is not, or one of another kind on
        the same fields).
    """
    wanted = [(entity, index) for entity in model.entities for index in entity.indexes]
    refused = []
    for done, (entity, index) in enumerate(wanted):
        report(f"index {entity.collection}({', '.join(index.fields)})", done, len(wanted))
        # As reads compare; the collection may be made otherwise.
        options: dict[str, Any] = {"collation": {"locale": "simple"}}
        if index.unique:
            options["unique"] = True
        if index.unique and len(index.fields) == 1:
            # Documents without the field do not count as equal.
            options["sparse"] = True
        try:
            keys = [(name, 1) for name in index.fields]
            if not index.unique and "_id" not in index.fields:
                # Pages are sorted by these fields and then by _id; without it here they would be
                # sorted in memory.
                keys.append(("_id", 1))
            await mongo.create_index(entity.collection, keys, **options)
        except (DatabaseError, DuplicateKey, Unsuitable) as exc:
            refused.append(IndexRefused(entity.collection, index.fields, exc.message))
    report("indexes", len(wanted), len(wanted))
    return refused
