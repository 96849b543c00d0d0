"""Changed paths of the versions before others, without their contents: what blame looks through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from streams.archive import Archive
from streams.documents import Document
from streams.mongo import Mongo

__all__ = ["changes_before"]


async def changes_before(
    mongo: Mongo, archive: Archive, wanted: Sequence[tuple[Any, int]], *, limit: int
) -> list[list[Document]]:
    """n (id, number) -> for each the versions numbered lower, newest first, at most `limit`; see
    `History.changes_before`."""
    names = ("v", "op", "changed", "prev", "cut")
    rows = [{"n": n, "key": key, "v": number} for n, (key, number) in enumerate(wanted)]
    found: list[list[Document]] = [[] for _ in wanted]
    pipeline: list[Document] = [
        {"$documents": {"$literal": rows}},
        {
            "$lookup": {
                "from": archive.name,
                "localField": "key",
                "foreignField": "doc",
                "let": {"v": "$v"},
                "pipeline": [
                    {"$match": {"$expr": {"$lt": ["$v", "$$v"]}}},
                    {"$sort": {"v": -1}},
                    {"$limit": limit},
                    {"$project": {"_id": 0, **dict.fromkeys(names, 1)}},
                ],
                "as": "found",
            }
        },
        {"$unwind": "$found"},
        {"$unset": ["key", "v"]},
    ]
    for row in await mongo.aggregate(None, pipeline) if rows else ():
        found[row["n"]].append(row["found"])
    return found
