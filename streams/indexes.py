"""The indexes that a model asks for, created at start, with progress to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from model.entities import Index, Model
from streams.errors import DatabaseError, DuplicateKey, Unsuitable
from streams.mongo import Mongo

__all__ = ["IndexRefused", "create_indexes", "wanted_indexes"]

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
    wanted = wanted_indexes(model)
    refused = []
    for done, (collection, keys, index) in enumerate(wanted):
        report(f"index {collection}({', '.join(index.fields)})", done, len(wanted))
        # As reads compare; the collection may be made otherwise.
        options: dict[str, Any] = {"collation": {"locale": "simple"}}
        if index.unique:
            options["unique"] = True
        if index.unique and len(index.fields) == 1:
            # Documents without the field do not count as equal.
            options["sparse"] = True
        try:
            await mongo.create_index(collection, keys, **options)
        except (DatabaseError, DuplicateKey, Unsuitable) as exc:
            refused.append(IndexRefused(collection, index.fields, exc.message))
    report("indexes", len(wanted), len(wanted))
    return refused


def wanted_indexes(model: Model) -> list[tuple[str, list[tuple[str, int]], Index]]:
    """Those that a model asks for or needs: collection, keys, and the model's index."""
    wanted = [(entity.collection, index) for entity in model.entities for index in entity.indexes]
    wanted += [each for each in _back_references(model) if each not in wanted]
    return [(collection, _keys(index), index) for collection, index in wanted]


def _keys(index: Index) -> list[tuple[str, int]]:
    keys = [(name, 1) for name in index.fields]
    if not index.unique and "_id" not in index.fields:
        # Pages are sorted by these fields and then by _id; without it here they would be sorted in
        # memory.
        keys.append(("_id", 1))
    return keys


def _back_references(model: Model) -> list[tuple[str, Index]]:
    """Without an index each parent of a `@referencedBy` would be a scan of the whole collection."""
    found = []
    for entity in model.entities:
        for each in entity.back_references:
            target = model.entity(each.target)
            field = target.field(each.field)
            if field is not None and not any(i.fields[0] == field.stored for i in target.indexes):
                found.append((target.collection, Index(fields=(field.stored,))))
    return found
