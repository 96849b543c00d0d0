"""A page for each of many keys, in one command: what keeps fifty lists from being fifty reads."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from bson.timestamp import Timestamp

from revstream.resolvers.pagination.page import Page, Window
from revstream.resolvers.pagination.projection import prefixed_projection
from revstream.streams.layouts.core.sort_key import sort_key_expressions
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["pages_by_key"]

T = TypeVar("T")


async def pages_by_key(
    mongo: Mongo,
    joined: tuple[Mapping[str, Any], Sequence[Document]],
    keys: Sequence[Any],
    *,
    query: Mapping[str, Any],
    window: Window,
    projection: Mapping[str, Any],
    make: Callable[[Document], T] | None = None,
    total: bool = False,
    filled: Callable[[list[Document]], Awaitable[list[Document]]] | None = None,
    at: Timestamp | None = None,
    snapshot: bool = False,
    token: str | None = None,
) -> list[Page[T]]:
    """n keys -> n pages of the documents that belong to the key, in the order of the keys.

    Each key costs what its page costs, where an index begins with the field that holds it and goes
    on with the order. Nothing belongs to the key None.

    Args:
        keys: None, a key, or a list of keys that belong together.
        joined: which ones do: see `Layout.lookup_stages`.
        query, projection: of the documents, without the window's and the key's part.
        make: see `Window.page`.
        filled: puts into documents what they lack; given all of them at once, keeps their order.
        total: count each key's documents, in the same command.
        at: read as of this cluster time. `snapshot`: as of one. `token`: what the pages say of it.
    """
    if not keys:
        return []
    rows: list[list[Document]] = [[] for _ in keys]
    totals = [0] * len(keys)
    pipeline = _pipeline(joined, keys, query, window, projection, total)
    read = await mongo.aggregate(None, pipeline, at=at, snapshot=snapshot)
    for each in read:
        totals[each["n"]] = each.get("total", 0)
    owners = [each["n"] for each in read if "found" in each]
    found = [each["found"] for each in read if "found" in each]
    if filled is not None:
        found = await filled(found)
    for n, document in zip(owners, found, strict=True):
        rows[n].append(document)
    return [
        window.page(rows[n], make, total=totals[n] if total else None, token=token)
        for n in range(len(keys))
    ]


def _pipeline(
    joined: tuple[Mapping[str, Any], Sequence[Document]],
    keys: Sequence[Any],
    query: Mapping[str, Any],
    window: Window,
    projection: Mapping[str, Any],
    total: bool,
) -> list[Document]:
    """A row `{n, total?, found}` per document; with totals, also one for a key without any."""
    stages: list[Document] = [
        # literal: an id such as "$name" is a value, not a field path
        {
            "$documents": {
                "$literal": [{"n": n, "key": key} for n, key in enumerate(keys) if key is not None]
            }
        }
    ]
    lookup, beginning = joined
    if total:
        counted: list[Document] = [*beginning, {"$match": query}, {"$count": "n"}]
        stages += [
            {"$lookup": {**lookup, "pipeline": counted, "as": "total"}},
            {"$set": {"total": {"$ifNull": [{"$first": "$total.n"}, 0]}}},
        ]
    found: list[Document] = [
        *beginning,
        {"$match": window.limited_to(query)},
        {"$sort": window.sort},
        {"$limit": window.limit},
    ]
    shown = window.projected(projection)
    if window.placing:
        made = dict.fromkeys(window.placing, sort_key_expressions(window.keys))
        found.append({"$set": made if beginning else window.placing})
        shown = {**shown, **dict.fromkeys(window.placing, 1)}
    return [
        *stages,
        {"$lookup": {**lookup, "pipeline": found, "as": "found"}},
        # Right behind the lookup it takes documents one by one, whatever they weigh together.
        {"$unwind": {"path": "$found", "preserveNullAndEmptyArrays": total}},
        {"$project": {"_id": 0, "n": 1, "total": 1, **prefixed_projection("found", shown)}},
    ]
