"""Several pages of one collection in one command.

Guarantees: each page is the one that a read of its own finds at that time, and none has a document
of another.
Source: MongoDB's manual, "$unionWith (aggregation)".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from streams.documents import Document

__all__ = ["parted", "union"]

# Between two pages comes what no document is: one without an `_id`.
_BOUND: Document = {"$unionWith": {"pipeline": [{"$documents": [{}]}]}}


def union(
    collection: str,
    queries: Sequence[Mapping[str, Any]],
    *,
    projection: Mapping[str, Any],
    sort: Sequence[tuple[str, int]],
    limit: int,
) -> list[Document]:
    """The pipeline; its projection shows `_id`."""
    stages: list[Document] = []
    for query in queries:
        page: list[Document] = [
            {"$match": query},
            {"$sort": dict(sort)},
            {"$limit": limit},
            {"$project": projection},
        ]
        if stages:
            stages += [_BOUND, {"$unionWith": {"coll": collection, "pipeline": page}}]
        else:
            stages = page
    return stages


def parted(found: Sequence[Document], pages: int) -> list[list[Document]]:
    """What it finds, as so many pages.

    Raises:
        ValueError: they are not so many.
    """
    parts: list[list[Document]] = [[]]
    part = parts[0]
    for document in found:
        if document:
            part.append(document)
        else:
            part = []
            parts.append(part)
    if len(parts) != pages:
        raise ValueError(f"{len(parts)} pages were found where {pages} were asked for")
    return parts
