"""Pages of children for many parents, read with one command."""

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
    variables: Sequence[Mapping[str, Any]] = (),
    most: int | None = None,
) -> list[Page[T]]:
    """Read a page of the matching documents for each of many keys, with one command.

    Each key costs as much as its page if an index begins with the joined field and continues with
    the order. No document belongs to the key None.

    Args:
        joined: the `$lookup` that finds the documents of a key: see `Layout.lookup_stages`.
        keys: n items: None, a key, or a list of keys that share a page.
        query: filter of the documents, without the window's and the key's part.
        window: the window of every page.
        projection: projection of the documents.
        make: see `Window.page`.
        total: True to count each key's documents in the same command.
        filled: completes documents, called once with all of them; keeps their order.
        at: the cluster time to read at.
        snapshot: True to read at a single cluster time.
        token: the resume token of the pages.
        variables: n items: values that the lookup's first stages have as `$$name`.
        most: maximum number of documents of all pages; others are not read.

    Returns:
        n pages in the order of the keys.
    """
    if not keys:
        return []
    rows: list[list[Document]] = [[] for _ in keys]
    totals = [0] * len(keys)
    rows_in = [
        {"n": n, "key": key, **(variables[n] if variables else {})}
        for n, key in enumerate(keys)
        if key is not None
    ]
    if variables:
        lookup = {**joined[0], "let": {name: f"${name}" for name in variables[0]}}
        joined = lookup, joined[1]
    pipeline = _pipeline(joined, rows_in, query, window, projection, total, most)
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
    rows: Sequence[Document],
    query: Mapping[str, Any],
    window: Window,
    projection: Mapping[str, Any],
    total: bool,
    most: int | None,
) -> list[Document]:
    """Build the pipeline: a row `{n, total?, found}` per document, and with totals one per empty
    key.
    """
    stages: list[Document] = [
        # literal: an id such as "$name" is a value, not a field path
        {"$documents": {"$literal": rows}}
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
        # Directly after the lookup, MongoDB unwinds one by one, with no limit on their total size.
        {"$unwind": {"path": "$found", "preserveNullAndEmptyArrays": total}},
        *([] if most is None else [{"$limit": most}]),
        {"$project": {"_id": 0, "n": 1, "total": 1, **prefixed_projection("found", shown)}},
    ]
