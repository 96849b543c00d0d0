"""Rewriting of queries over documents for their stored form: no document is missed."""

from __future__ import annotations

from typing import Any

import pytest

from revstream.streams.layouts.core.query_rewrite import replace_first_name, rewrite_query


def inside(path: str) -> str | None:
    """Return the path as EMBEDDED stores it."""
    return path if path.partition(".")[0] == "_id" else f"current.{path}"


def only_the_id(path: str) -> str | None:
    """Return the path as DOCUMENT_PER_VERSION stores it."""
    return replace_first_name(path, "_id", "docId")


@pytest.mark.parametrize(
    ("query", "renamed", "exact"),
    [
        ({}, {}, True),
        ({"a.b": {"$gt": 1}, "_id": 2}, {"$and": [{"current.a.b": {"$gt": 1}}, {"_id": 2}]}, True),
        ({"$or": [{"a": 1}, {"_id.x": 2}]}, {"$or": [{"current.a": 1}, {"_id.x": 2}]}, True),
        ({"$nor": [{"a": 1}]}, {"$nor": [{"current.a": 1}]}, True),
        ({"$expr": {"$gt": ["$a", 1]}}, {}, False),
        ({"a": 1, "$expr": True}, {"current.a": 1}, False),
        ({"$or": [{"a": 1}, {"$expr": True}]}, {}, False),
        ({"$or": [{"a": 1, "$expr": True}, {"b": 1}]}, None, False),
        ({"$nor": [{"a": 1, "$expr": True}]}, {}, False),
    ],
)
def test_conditions_are_rewritten_where_possible(
    query: dict[str, Any], renamed: dict[str, Any] | None, exact: bool
) -> None:
    """Other conditions are dropped if the query then matches more, never less."""
    found, is_exact = rewrite_query(query, inside)
    if renamed is None:
        renamed = {"$or": [{"current.a": 1}, {"current.b": 1}]}
    assert (found, is_exact) == (renamed, exact)


@pytest.mark.parametrize(
    ("query", "renamed", "exact"),
    [
        ({"_id": {"$in": [1]}}, {"docId": {"$in": [1]}}, True),
        ({"_id": 1, "stock": 5}, {"docId": 1}, False),
        ({"$and": [{"_id": 1}, {"stock": 5}]}, {"docId": 1}, False),
        ({"$or": [{"_id": 1}, {"stock": 5}]}, {}, False),
        ({"$or": [{"_id": 1}, {"_id.x": 5}]}, {"$or": [{"docId": 1}, {"docId.x": 5}]}, True),
        ({"$nor": [{"_id": 1}, {"stock": 5}]}, {}, False),
        ({"_ids": 1}, {}, False),
    ],
)
def test_only_the_id_is_a_condition_on_versions(
    query: dict[str, Any], renamed: dict[str, Any], exact: bool
) -> None:
    """Another condition may match a version and not the current document."""
    assert rewrite_query(query, only_the_id) == (renamed, exact)
