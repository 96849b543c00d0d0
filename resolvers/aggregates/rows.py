"""Rows that an aggregate groups: one for each document, and one for each item of measured lists.

A value of a list counts once for each item. Groups by a list have a document once in the group of
each different key that its items have, and each item of that list in the group of its own key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from revstream.resolvers.aggregates.expressions import Expression, bucket_start, fitting_value
from revstream.resolvers.aggregates.group_keys import GroupKey, StoredField
from revstream.resolvers.aggregates.query import AggregateQuery
from revstream.resolvers.aggregates.references import id_expression
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["ITEM_KEY", "ROW", "key_value", "needs_rows", "row_stages"]

ROW = "part."
"""Prefix of the values of a row, beside the keys that all rows of a document have."""

ITEM_KEY = f"{ROW}key."
"""Prefix of the keys that come from a list."""


def needs_rows(query: AggregateQuery) -> bool:
    """Return whether lists are measured or make groups, so that a document is several rows."""
    return query.list_key is not None or any(
        each.items is not None for each in query.fields.values()
    )


def row_stages(
    query: AggregateQuery, places: Mapping[tuple[str, ...], str], prefix: str, *, grouped: bool
) -> list[Document]:
    """Return the stages that reduce documents to the values that are grouped and measured.

    A row of a document has `one`, by which documents are counted.

    Args:
        places: names of the values of measured fields.
        prefix: where the documents lie in what the stages before yield.
        grouped: whether a list that makes groups is looked at.
    """
    shared: Document = {}
    own_key: Document = {}
    for n, key in enumerate(query.keys):
        if key.of.items is not None:
            own_key[f"k{n}"] = key_value(key, _path(key.of, prefix))
        elif not key.through:
            shared[f"k{n}"] = key_value(key, _path(key.of, prefix))
    for n, join in enumerate(query.joins):
        shared[f"r{n}"] = id_expression(join.hop, prefix)
    single: Document = {}
    by_list: dict[str, Document] = {}
    for names, field in query.fields.items():
        own = single if field.items is None else by_list.setdefault(field.items, {})
        own[places[names]] = fitting_value(field.field, _path(field, prefix))
    if not needs_rows(query):
        shown = {**shared, **single}
        return [{"$project": {"_id": 0, **shown}}] if shown else []
    row = {"one": {"$literal": 1}, **single}
    by = query.list_key if grouped else None
    others = _concatenated(
        [[row], *(_rows(prefix, path, values) for path, values in by_list.items() if path != by)]
    )
    if by is None:
        return [{"$project": {"_id": 0, **shared, "part": others}}, {"$unwind": "$part"}]
    item = {"key": own_key, **by_list.get(by, {})}
    no_key = {"$literal": [dict.fromkeys(own_key)]}
    # The time limit holds between documents only: an expression must not take the square of the
    # number of items. The other rows of each key are unwound for themselves.
    each_key = {"$map": {"input": "$keys", "in": {"key": "$$this", "others": "$others"}}}
    return [
        {"$project": {"_id": 0, **shared, "own": _rows(prefix, by, item), "others": others}},
        {"$set": {"keys": {"$setUnion": ["$own.key", []]}}},
        # Without items, the document is in the group of null.
        {"$set": {"keys": {"$cond": [{"$eq": ["$keys", []]}, no_key, "$keys"]}}},
        {"$project": {**dict.fromkeys(shared, 1), "part": _concatenated(["$own", each_key])}},
        {"$unwind": "$part"},
        {"$unwind": {"path": "$part.others", "preserveNullAndEmptyArrays": True}},
        {"$set": {"part": {"$mergeObjects": ["$part", "$part.others"]}}},
    ]


def key_value(key: GroupKey, path: str) -> Expression:
    """Return the expression for a part of a group's key: a value that fits, or a bucket."""
    value = fitting_value(key.of.field, path)
    return value if key.bucket is None else bucket_start(key.bucket, value)


def _path(field: StoredField, prefix: str) -> str:
    if field.items is None:
        return prefix + field.path
    return f"$item.{field.path}" if field.path else "$item"


def _rows(prefix: str, path: str, values: Document) -> Expression:
    """Return the expression for one row for each item of a list; none if it is no list."""
    items = f"${prefix}{path}"
    there = {"$cond": [{"$isArray": items}, items, []]}
    return {"$map": {"input": there, "as": "item", "in": values}}


def _concatenated(lists: Sequence[Expression]) -> Expression:
    return lists[0] if len(lists) == 1 else {"$concatArrays": lists}
