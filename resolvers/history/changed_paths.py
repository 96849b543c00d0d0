"""Changed paths of the versions before others, without their contents: what blame looks through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from revstream.resolvers.access.row_filter import RowFilter
from revstream.resolvers.pagination.projection import record_projection
from revstream.streams.archive.store import Archive
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["read_changes_before"]


async def read_changes_before(
    mongo: Mongo,
    archive: Archive,
    rows: RowFilter,
    wanted: Sequence[tuple[Any, int]],
    *,
    limit: int,
) -> list[list[Document]]:
    """N (id, number) -> for each the versions numbered lower, newest first, at most `limit`; see
    `VersionHistory.changes_before`.

    Args:
        rows: those that are there for the caller; of a version that is not, only `hidden` is said,
            and nothing of those before it.
    """
    shown: Mapping[str, Any] = {"_id": 0, **dict.fromkeys(("v", "op", "changed", "prev", "cut"), 1)}
    if rows.limits:
        shown = record_projection(rows.fields)
    places = [{"n": n, "key": key, "v": number} for n, (key, number) in enumerate(wanted)]
    found: list[list[Document]] = [[] for _ in wanted]
    pipeline: list[Document] = [
        {"$documents": {"$literal": places}},
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
                    {"$project": shown},
                ],
                "as": "found",
            }
        },
        {"$unwind": "$found"},
        {"$unset": ["key", "v"]},
    ]
    read = await mongo.aggregate(None, pipeline) if places else []
    if not rows.limits:
        for row in read:
            found[row["n"]].append(row["found"])
        return found
    filled = await archive.contents.fill([row["found"] for row in read])
    for row, record in zip(read, filled, strict=True):
        versions = found[row["n"]]
        if not (versions and "hidden" in versions[-1]):
            versions.append(record if rows.allow_version(record) else {"hidden": True})
    return found
