"""Creation of the indexes that a model needs, with progress reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from revstream.model.definition import Index, Model
from revstream.streams.core.errors import DatabaseError, DuplicateKey, Unsuitable
from revstream.streams.layouts.factory import create_layout
from revstream.streams.mongo.database import Mongo
from revstream.streams.recording.bootstrap.text_index import (
    create_text_index,
    wanted_text_indexes,
)
from revstream.streams.versioning.copied_field import copied_fields

__all__ = ["IndexKeys", "RefusedIndex", "create_indexes", "wanted_indexes"]

Report = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class RefusedIndex:
    """An index that the server refused, and its reason."""

    collection: str
    fields: tuple[str, ...]
    reason: str


async def create_indexes(
    mongo: Mongo, model: Model, collections: Sequence[str], report: Report
) -> list[RefusedIndex]:
    """Create the missing indexes of these collections; existing ones are not changed.

    Args:
        report: Called with a text, the number of finished indexes, and their total.

    Returns: the refused indexes (a unique one over duplicate values, or one of another kind on the
    same fields).
    """
    wanted = [each for each in wanted_indexes(mongo, model) if each[0] in collections]
    refused = []
    for done, (collection, keys, index, more) in enumerate(wanted):
        report(f"index {collection}({', '.join(index.fields)})", done, len(wanted))
        if index.unique and await _is_enforced(mongo, collection, keys):
            continue
        # With the collation of reads; the collection may have another one.
        options: dict[str, Any] = {"collation": {"locale": "simple"}, **more}
        if index.unique:
            options["unique"] = True
        if index.unique and len(index.fields) == 1:
            # Documents without the field do not count as duplicates.
            options["sparse"] = True
        try:
            await mongo.create_index(collection, keys, **options)
        except (DatabaseError, DuplicateKey, Unsuitable) as exc:
            refused.append(RefusedIndex(collection, index.fields, exc.message))
    for collection, search in wanted_text_indexes(model).items():
        if collection not in collections:
            continue
        report(f"text index {collection}", len(wanted), len(wanted))
        try:
            problem = await create_text_index(mongo, collection, search)
        except (DatabaseError, Unsuitable) as exc:
            problem = exc.message
        if problem is not None:
            refused.append(RefusedIndex(collection, search.fields, problem))
    report("indexes", len(wanted), len(wanted))
    return refused


async def _is_enforced(
    mongo: Mongo, collection: str, keys: Sequence[tuple[str, int | str]]
) -> bool:
    """Return whether a unique index on these fields exists, made by another program.

    It may be stricter than the model's: without `sparse`, only one document may lack the field.
    """
    return any(
        each.get("unique")
        and [*each["key"].items()] == list(keys)
        and "partialFilterExpression" not in each
        and "collation" not in each
        for each in await mongo.indexes(collection)
    )


IndexKeys = list[tuple[str, int | str]]
WantedIndex = tuple[str, IndexKeys, Index, dict[str, Any]]


def wanted_indexes(mongo: Mongo, model: Model) -> list[WantedIndex]:
    """Return the indexes that a model declares or needs: collection, keys, the model's index,
    options.

    An index is left out if the collection's layout lacks the fields or has no use for it.
    """
    wanted = [(entity.collection, index) for entity in model.entities for index in entity.indexes]
    wanted += [each for each in _back_references(model) if each not in wanted]
    wanted += [each for each in dict.fromkeys(_copies(model)) if each not in wanted]
    layouts = {each.collection: create_layout(mongo, each) for each in model.entities}
    found: list[WantedIndex] = []
    for collection, index in wanted:
        keys = _keys(index)
        indexed = layouts[collection].index_fields([name for name, _ in keys])
        if indexed is not None:
            names, options = indexed
            directions = [direction for _, direction in keys]
            found.append((collection, list(zip(names, directions, strict=True)), index, options))
    return found


def _copies(model: Model) -> list[tuple[str, Index]]:
    """Return the indexes that find the targets of a source, in the order of their ids."""
    unique = {
        (entity.collection, index.fields)
        for entity in model.entities
        for index in entity.indexes
        if index.unique
    }
    return [
        (each.target, Index(fields=(each.reference_path,)))
        for each in copied_fields(model)
        if (each.target, (each.reference_path,)) not in unique and each.reference_path != "_id"
    ]


def _keys(index: Index) -> IndexKeys:
    keys: IndexKeys = [(name, "2dsphere" if name in index.points else 1) for name in index.fields]
    if not index.unique and "_id" not in index.fields and not index.points:
        # Pages are sorted by these fields and then by _id; without it here, MongoDB would sort in
        # memory.
        keys.append(("_id", 1))
    return keys


def _back_references(model: Model) -> list[tuple[str, Index]]:
    """Return the indexes of `@referencedBy`: without one, each parent would scan the whole
    collection.
    """
    found = []
    for entity in model.entities:
        for each in entity.back_references:
            target = model.entity(each.target)
            field = target.field(each.field)
            if field is not None and not any(i.fields[0] == field.stored for i in target.indexes):
                found.append((target.collection, Index(fields=(field.stored,))))
    return found
