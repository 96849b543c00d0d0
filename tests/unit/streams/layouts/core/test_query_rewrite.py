"""Queries over documents, said of what they are stored as: never less is found."""

from __future__ import annotations

from typing import Any

import pytest

from revstream.streams.layouts.core.query_rewrite import replace_first_name, rewrite_query


def inside(path: str) -> str | None:
    """As EMBEDDED has it."""
    return path if path.partition(".")[0] == "_id" else f"current.{path}"


def only_the_id(path: str) -> str | None:
    """As DOCUMENT_PER_VERSION has it."""
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
def test_what_can_be_said_is_said(
    query: dict[str, Any], renamed: dict[str, Any] | None, exact: bool
) -> None:
    """And what cannot is left out where that makes it find more, and not less."""
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
def test_of_versions_only_the_id_is_asked_first(
    query: dict[str, Any], renamed: dict[str, Any], exact: bool
) -> None:
    """What else matches a version need not match the current one."""
    assert rewrite_query(query, only_the_id) == (renamed, exact)
