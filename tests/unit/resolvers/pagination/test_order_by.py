"""Parsing of `orderBy`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.pagination.order_by import order_keys
from tests.support.shapes import THING


@pytest.mark.parametrize("order", [None, []])
def test_the_default_order_is_by_id(order: list[tuple[str, str]] | None) -> None:
    """Every collection has an index for it."""
    assert order_keys(THING, order) == (("_id", 1),)


def test_names_are_stored_names_and_the_id_comes_last() -> None:
    """The id has the direction of the key before it, since an index is read in one direction."""
    assert order_keys(THING, [("text", "ASC")]) == (("t", 1), ("_id", 1))
    assert order_keys(THING, [("text", "ASC"), ("whole", "DESC")]) == (
        ("t", 1),
        ("whole", -1),
        ("_id", -1),
    )


def test_a_field_of_an_embedded_document_is_a_stored_path() -> None:
    """It has the prefix of the other fields."""
    assert order_keys(THING, [("size.w", "DESC")]) == (("size.w", -1), ("_id", -1))
    assert order_keys(THING, [("size.w", "ASC")], id_path="doc", prefix="full.") == (
        ("full.size.w", 1),
        ("doc", 1),
    )


def test_keys_after_the_id_are_dropped() -> None:
    """Ids are unique, so further keys would only cost time."""
    order = [("text", "ASC"), ("id", "DESC"), ("whole", "ASC")]
    assert order_keys(THING, order) == (("t", 1), ("_id", -1))


def test_the_version_is_the_version_field() -> None:
    """The field exists if documents are counted; records always have a number."""
    assert order_keys(THING, [("version", "ASC")]) == (("version", 1), ("_id", 1))
    uncounted = replace(THING, version=None)
    with pytest.raises(BadUserInput, match="'version', expected a field of Thing"):
        order_keys(uncounted, [("version", "ASC")])
    assert order_keys(uncounted, [("version", "ASC")], version_path="v") == (("v", 1), ("_id", 1))


def test_paths_may_have_a_prefix() -> None:
    """The state is a part of the record in the archive."""
    assert order_keys(THING, [("text", "DESC")], id_path="doc", prefix="full.") == (
        ("full.t", -1),
        ("doc", -1),
    )


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([("colours", "ASC")], "'colours', expected a field of Thing"),
        ([("textList", "ASC")], "Thing.textList is a list or has several values"),
        ([("size", "ASC")], "Thing.size is a list or has several values"),
        ([("attributes", "ASC")], "Thing.attributes is a list or has several values"),
        ([("text", "ASC"), ("text", "DESC")], "orderBy: text twice"),
        ([("text", "UP")], "orderBy.text: 'UP', expected ASC or DESC"),
    ],
)
def test_an_invalid_order_is_refused(order: list[tuple[str, str]], message: str) -> None:
    """The error names the field."""
    with pytest.raises(BadUserInput, match=message) as caught:
        order_keys(THING, order)
    assert caught.value.extensions["argument"] == "orderBy"
