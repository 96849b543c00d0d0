"""The indexes of an archive, and the walk over one of them that finds each document's last version.

None has what closing a version changes: that would cost each version a third more.
Source: docs/decisions/0007-archive.md, 0008-as-of.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bson import Timestamp
from bson.min_key import MinKey

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
]

# Names that readers hint with.
DOCUMENT_INDEX = "documents"
# As MongoDB names {doc: 1, v: -1} and {doc: 1, at: -1, v: -1}.
NUMBER_INDEX = "doc_1_v_-1"
TIME_INDEX = "doc_1_at_-1_v_-1"
FORMER_INDEX = "intervals"
"""Of archives that were made when closing a version changed an index."""

# Without a word on the documents, 6.0.5 reads all of their versions.
ALL_DOCUMENTS: Document = {"doc": {"$gte": MinKey()}}
"""For `last_version_stages`: every document."""

INDEXES: tuple[tuple[list[tuple[str, int]], dict[str, Any]], ...] = (
    ([("doc", 1), ("v", -1)], {"unique": True}),
    # a document as of a moment; several versions of one transaction have the same `at`
    ([("doc", 1), ("at", -1), ("v", -1)], {}),
    # a whole collection as of a moment, in id order: each document once
    ([("doc", 1)], {"name": DOCUMENT_INDEX, "partialFilterExpression": {"first": True}}),
    # whether there are contents that the server cannot see into
    ([("packed", 1)], {"name": "packed", "partialFilterExpression": {"packed": True}}),
    # whether a `_change` is another write's
    (
        [("change.id", 1), ("doc", 1)],
        {"name": "changes", "partialFilterExpression": {"change.id": {"$exists": True}}},
    ),
    # how many stand behind a gap, of which there are few
    ([("gap", 1)], {"name": "gaps", "partialFilterExpression": {"gap": True}}),
)


def last_version_stages(at: Timestamp | None = None) -> list[Mapping[str, Any]]:
    """Stages that leave of each document its last version, at a cluster time or now.

    MongoDB makes a DISTINCT_SCAN of them together with a match of `doc` before them: from one
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
    """Stages that look up, for each row, what a pipeline finds: as `found`, beside the row.

    Args:
        by: fields of a row that the pipeline has as variables of the same name.
    """
    lookup = {"from": collection, "pipeline": stages, "as": "found"}
    return [
        # literal: an id such as "$name" is a value, not a field path
        {"$documents": {"$literal": rows}},
        {"$lookup": {**lookup, "let": {name: f"${name}" for name in by}}},
        {"$unwind": "$found"},
    ]
