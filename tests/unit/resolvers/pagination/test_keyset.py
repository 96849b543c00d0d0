"""Cursors: content and validation; tests/integration/test_pages.py has the pages."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId

from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.pagination.keyset import Keyset, reversed_keys

BY_PRICE = Keyset("products", (("price", 1), ("_id", 1)))


def query_values(query: Any) -> list[Any]:
    """Return every operand in a query."""
    if isinstance(query, dict):
        return [each for value in query.values() for each in query_values(value)]
    if isinstance(query, list):
        return [each for value in query for each in query_values(value)]
    return [query]


@pytest.mark.parametrize(
    "value",
    [Decimal128("12.50"), 12, 12.5, "twelve", ObjectId(), datetime(2024, 5, 1, tzinfo=UTC), b"12"],
)
def test_a_cursor_keeps_the_type_of_its_values(value: Any) -> None:
    """The query compares with exactly the value of the document."""
    cursor = BY_PRICE.cursor({"_id": "p1", "price": value})
    found = [each for each in query_values(BY_PRICE.query_after(cursor, "after")) if each == value]
    assert found
    assert all(type(each) is type(value) for each in found)


def test_a_cursor_is_safe_in_a_url() -> None:
    """The text is base64url without padding, which needs no quoting."""
    cursor = BY_PRICE.cursor({"_id": "p1" * 7, "price": 0.1})
    assert cursor.replace("-", "").replace("_", "").isalnum()


def test_a_missing_field_is_null_in_a_cursor() -> None:
    """Both are equal in the sort order, so they have the same cursor."""
    assert BY_PRICE.cursor({"_id": 1}) == BY_PRICE.cursor({"_id": 1, "price": None})


@pytest.mark.parametrize(
    "other",
    [
        Keyset("suppliers", BY_PRICE.keys),
        Keyset("products", (("price", -1), ("_id", -1))),
        Keyset("products", (("stock", 1), ("_id", 1))),
        Keyset("products", (("_id", 1),)),
    ],
    ids=["of another list", "the other way", "by another field", "by id"],
)
def test_a_cursor_of_another_order_is_refused(other: Keyset) -> None:
    """Its position does not exist in this list."""
    cursor = other.cursor({"_id": 1, "price": 2, "stock": 3})
    with pytest.raises(BadUserInput, match=f"after: '{cursor}', expected a cursor of this list"):
        BY_PRICE.query_after(cursor, "after")


def digest() -> bytes:
    return base64.urlsafe_b64decode(BY_PRICE.cursor({"_id": 1}) + "==")[:4]


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"1234",
        digest(),
        digest() + b"\x05\x00\x00\x00",
        digest() + bson.encode({"0": 1}),
        digest() + bson.encode({"0": 1, "1": 2, "2": 3}),
        digest() + bson.encode({"0": 1, "1": 2})[:-1],
        digest() + bson.encode({"0": 1, "1": 2}) + b"\x00",
    ],
)
def test_a_broken_cursor_is_refused(broken: bytes) -> None:
    """The cursor is cut, extended, or made of other values."""
    cursor = base64.urlsafe_b64encode(broken).decode().rstrip("=")
    with pytest.raises(BadUserInput, match="expected a cursor"):
        BY_PRICE.query_after(cursor, "before")


@pytest.mark.parametrize("text", ["", "!", "a b", "ä", "A", "x" * 500, "\x00", "😀"])
def test_text_that_is_no_cursor_is_refused(text: str) -> None:
    """The message quotes the text, shortened if it is long."""
    with pytest.raises(BadUserInput) as caught:
        BY_PRICE.query_after(text, "after")
    assert caught.value.extensions == {"code": "BAD_USER_INPUT", "argument": "after"}
    assert len(caught.value.message) < 200


def test_operators_in_a_cursor_are_values() -> None:
    """A forged cursor gives a position, not a query."""
    forged = BY_PRICE.cursor({"_id": {"$ne": 1}, "price": {"$where": "true"}})
    query = BY_PRICE.query_after(forged, "after")
    assert {"price": {"$gt": {"$where": "true"}}} in query["$and"][0]["$or"]


def test_after_the_largest_value_nothing_matches() -> None:
    """An empty query would match everything."""
    keyset = Keyset("products", (("_id", 1),))
    largest = keyset.cursor({"_id": bson.MaxKey()})
    assert keyset.query_after(largest, "after") == {"_id": {"$in": []}}


def test_values_of_one_type_need_one_comparison() -> None:
    """Version numbers and tokens have one type, so no other types are compared."""
    keyset = Keyset("versions", (("v", -1),), uniform=True)
    cursor = keyset.cursor({"v": 7})
    assert keyset.query_after(cursor, "after") == {"v": {"$lt": 7}}
    assert keyset.query_after(cursor, "before", backwards=True) == {"v": {"$gt": 7}}


def test_an_order_is_reversed_key_by_key() -> None:
    """Each direction is inverted."""
    assert reversed_keys((("a", 1), ("b", -1))) == (("a", -1), ("b", 1))
