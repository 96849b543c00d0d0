"""Indexes of an archive, and the index scan that finds each document's last version.

No index contains a field that closing a version would change: that would cost each version a third
more. Source: docs/decisions/0007-archive.md, 0008-as-of.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bson import Timestamp
from bson.min_key import MinKey

from revstream.model.definition import Model, Storage
from revstream.streams.mongo.driver.codecs import Document

__all__ = [
    "ALL_DOCUMENTS",
    "DOCUMENT_INDEX",
    "FORMER_INDEX",
    "INDEXES",
    "NUMBER_INDEX",
    "TIME_INDEX",
    "last_version_stages",
    "lookup_stages",
    "newest_stages",
    "reference_index",
    "referring_fields",
    "replacement_stages",
]

_FOREVER = Timestamp(2**32 - 1, 2**32 - 1)

# Names for hints.
DOCUMENT_INDEX = "documents"
# MongoDB's names of {doc: 1, v: -1} and {doc: 1, at: -1, v: -1}.
NUMBER_INDEX = "doc_1_v_-1"
TIME_INDEX = "doc_1_at_-1_v_-1"
FORMER_INDEX = "intervals"
"""Index of archives created when closing a version still changed an index."""

# Without a condition on `doc`, 6.0.5 reads all versions.
ALL_DOCUMENTS: Document = {"doc": {"$gte": MinKey()}}
"""Condition for `last_version_stages`: every document."""

INDEXES: tuple[tuple[list[tuple[str, int]], dict[str, Any]], ...] = (
    ([("doc", 1), ("v", -1)], {"unique": True}),
    # as-of read of a document; several versions of one transaction have the same `at`
    ([("doc", 1), ("at", -1), ("v", -1)], {}),
    # as-of read of a collection, in id order: each document once
    ([("doc", 1)], {"name": DOCUMENT_INDEX, "partialFilterExpression": {"first": True}}),
    # whether the archive has contents that the server cannot filter by
    ([("packed", 1)], {"name": "packed", "partialFilterExpression": {"packed": True}}),
    # whether a `_change` belongs to another write
    (
        [("change.id", 1), ("doc", 1)],
        {"name": "changes", "partialFilterExpression": {"change.id": {"$exists": True}}},
    ),
    # number of versions after a gap, of which few exist
    ([("gap", 1)], {"name": "gaps", "partialFilterExpression": {"gap": True}}),
)


def referring_fields(model: Model, collection: str) -> list[str]:
    """Return the stored names of a collection's fields that a `@referencedBy` of the model names.

    None if contents lie outside of the archive's records, where no index has them.
    """
    entity = model.entity_of_collection(collection)
    if entity is None or entity.layout is not None or entity.storage is not Storage.FULL:
        return []
    named = {
        back.field
        for each in model.entities
        for back in each.back_references
        if back.target == entity.name
    }
    return [each.stored for each in entity.fields if each.name in named and each.stored != "_id"]


def reference_index(stored: str) -> tuple[list[tuple[str, int]], dict[str, Any]]:
    """Return the index that finds the documents that have ever held an id in a field.

    Source: docs/decisions/0049-references-as-of.md.
    """
    return [(f"full.{stored}", 1), ("doc", 1)], {}


def last_version_stages(at: Timestamp | None = None) -> list[Mapping[str, Any]]:
    """Build stages that keep the last version of each document, at a cluster time or now.

    With a match on `doc` before them, MongoDB makes a DISTINCT_SCAN of them: it jumps from one
    document to the next in the index, whatever the number of versions, 5 µs each.
    """
    standing: list[Mapping[str, Any]] = [] if at is None else [{"$match": {"at": {"$lte": at}}}]
    return [
        *standing,
        {"$sort": {"doc": 1, "at": -1, "v": -1}},
        {"$group": {"_id": "$doc", "last": {"$first": "$$ROOT"}}},
        {"$replaceWith": "$last"},
    ]


def lookup_stages(
    rows: Sequence[Document],
    collection: str,
    stages: Sequence[Mapping[str, Any]],
    *,
    by: Sequence[str],
) -> list[Mapping[str, Any]]:
    """Build stages that run a pipeline for each row and put each result into the row, as `found`.

    Args:
        by: Fields of a row that the pipeline has as variables of the same name.
    """
    lookup = {"from": collection, "pipeline": stages, "as": "found"}
    return [
        # literal: an id such as "$name" is a value, not a field path
        {"$documents": {"$literal": rows}},
        {"$lookup": {**lookup, "let": {name: f"${name}" for name in by}}},
        {"$unwind": "$found"},
    ]


def newest_stages(
    archive: str,
    wanted: Sequence[Mapping[str, Any]],
    limit: int,
    projection: Mapping[str, Any] | None,
    match: Sequence[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
    """Build stages for the newest versions of each entry; `Archive.newest` describes them."""
    rows: list[Document] = [
        {"n": n, "key": each["key"], "at": each.get("at", _FOREVER)}
        for n, each in enumerate(wanted)
    ]
    inner: list[Mapping[str, Any]] = [
        {"$match": {"$expr": {"$and": [{"$eq": ["$doc", "$$key"]}, {"$lte": ["$at", "$$at"]}]}}},
        {"$sort": {"doc": 1, "at": -1, "v": -1}},
        *match,
        {"$limit": limit},
    ]
    if projection is not None:
        inner.append({"$project": projection})
    return [
        *lookup_stages(rows, archive, inner, by=("key", "at")),
        {"$replaceWith": {"$mergeObjects": ["$found", {"wanted": "$n"}]}},
    ]


def replacement_stages(
    archive: str, versions: Sequence[tuple[Any, int]]
) -> list[Mapping[str, Any]]:
    """Build stages that look up when each version was replaced: `n` and `wall`."""
    rows = [{"n": n, "key": key, "v": number} for n, (key, number) in enumerate(versions)]
    following: list[Mapping[str, Any]] = [
        {"$match": {"$expr": {"$and": [{"$eq": ["$doc", "$$key"]}, {"$gt": ["$v", "$$v"]}]}}},
        # Scans `NUMBER_INDEX` backwards.
        {"$sort": {"doc": -1, "v": 1}},
        {"$limit": 1},
        {"$project": {"_id": 0, "wall": 1}},
    ]
    return [
        *lookup_stages(rows, archive, following, by=("key", "v")),
        {"$project": {"n": 1, "wall": "$found.wall"}},
    ]
