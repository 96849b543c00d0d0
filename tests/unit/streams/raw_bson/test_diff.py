"""Differences between two states: complete, strict, and equal for raw and decoded documents."""

from __future__ import annotations

import copy
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64
from bson.raw_bson import RawBSONDocument
from hypothesis import given, settings
from hypothesis import strategies as st

from revstream.streams.mongo.driver.codecs import RAW
from revstream.streams.raw_bson.diff import (
    Difference,
    DifferenceKind,
    find_differences,
    find_differing_paths,
    is_same,
)
from tests.support.bson_values import DOCUMENTS, VALUES
from tests.support.streams import raw

NAN = float("nan")


def applied(before: dict[str, Any], found: list[Difference]) -> dict[str, Any]:
    """Return the state that results from the differences."""
    after = copy.deepcopy(before)
    for each in found:
        node = after
        for name in each.path[:-1]:
            node = node[name]
        if each.kind is DifferenceKind.REMOVED:
            del node[each.path[-1]]
        else:
            node[each.path[-1]] = each.after
    return after


@settings(deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_applying_the_differences_turns_before_into_after(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Differences are complete and unique, and their values are those of both states."""
    found = list(find_differences(before, after))
    assert is_same(applied(before, found), after)
    assert len({each.path for each in found}) == len(found)
    assert bool(found) == (not is_same(before, after))
    for each in found:
        assert not is_same(each.before, each.after) or each.kind is not DifferenceKind.CHANGED


@settings(deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_raw_and_decoded_documents_have_the_same_differences(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """The recorder compares raw documents, the API decoded ones."""

    def kinds(one: Any, other: Any) -> list[tuple[tuple[str, ...], DifferenceKind]]:
        return [(each.path, each.kind) for each in find_differences(one, other)]

    expected = kinds(before, after)
    assert kinds(raw(before), raw(after)) == expected
    assert kinds(raw(before), after) == expected
    assert is_same(raw(before), raw(after)) == is_same(before, after)


@settings(deadline=None)
@given(DOCUMENTS, st.data())
def test_differing_paths_are_those_of_the_differences(
    before: dict[str, Any], data: st.DataObject
) -> None:
    """The recorder compares bytes while fields keep their places.

    Some fields are set, and one may be added or removed.
    """
    after = dict(before)
    for name in data.draw(st.lists(st.sampled_from(list(before)))) if before else ():
        after[name] = data.draw(VALUES | st.sampled_from(RELATED))
    if after and data.draw(st.booleans()):
        del after[data.draw(st.sampled_from(list(after)))]
    if data.draw(st.booleans()):
        after[data.draw(st.sampled_from(["", "a", "new"]))] = data.draw(VALUES)
    expected = [each.path for each in find_differences(before, after)]
    assert list(find_differing_paths(raw(before), raw(after))) == expected
    assert list(find_differing_paths(before, after)) == expected


# Many of them are nearly equal.
RELATED = [None, 1, Int64(1), 1.0, True, NAN, -0.0, 0.0, "1", "2", {"a": 1}, {"a": 1.0}, [1]]


def test_invalid_text_differs_if_it_is_rendered_differently() -> None:
    """Invalid bytes that render equally are equal: MongoDB stores any bytes."""

    def text(value: bytes) -> RawBSONDocument:
        given = bson.encode({"a": "x" * len(value)}).replace(b"x" * len(value), value)
        return RawBSONDocument(given, RAW)

    assert list(find_differing_paths(text(b"\xff"), text(b"\xfe"))) == []
    assert list(find_differing_paths(text(b"\xffa"), text(b"\xffb"))) == [("a",)]


@given(VALUES)
def test_a_value_is_the_same_as_its_copy(value: Any) -> None:
    """This includes NaN, and a round trip through BSON."""
    assert is_same(value, copy.deepcopy(value))
    assert is_same(value, bson.decode(bson.encode({"": value}))[""]) or _loses_its_zone(value)


def _loses_its_zone(value: Any) -> bool:
    # Plain `bson.decode` gives naive datetimes.
    return "datetime" in repr(value)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, Int64(1)),
        (NAN, NAN),
        (0.0, -0.0),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": [1, {"b": NAN}]}, {"a": [Int64(1), {"b": NAN}]}),
        (Decimal128("NaN"), Decimal128("NaN")),
    ],
)
def test_values_that_are_equal_to_a_reader_are_the_same(one: Any, other: Any) -> None:
    """An integer's width, the order of fields and the sign of zero are no change."""
    assert is_same(one, other)
    assert is_same(raw({"x": one}), raw({"x": other}))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0, False),
        (1.0, True),
        (1, Decimal128("1")),
        (Decimal128("1"), Decimal128("1.0")),
        (NAN, None),
        ("1", 1),
        ("1", b"1"),
        ([1], [1.0]),
        ([1, 2], [2, 1]),
        ([1], [1, None]),
        ({"a": None}, {}),
        ({"a": 1}, [1]),
        ([], {}),
    ],
)
def test_values_of_two_types_differ(one: Any, other: Any) -> None:
    """The comparison is stricter than Python's: 1, 1.0 and true are three values."""
    assert not is_same(one, other)
    assert not is_same(other, one)
    assert not is_same(raw({"x": one}), raw({"x": other}))


def test_an_added_or_removed_subtree_is_one_difference() -> None:
    """The order is that of the state after, then removed fields; a name with dots is one step."""
    found = list(
        find_differences(
            {"keep": {"x": 1}, "gone": {"y": {"z": 1}}, "list": [1, 2]},
            {"new": {"a": {"b": 1}}, "keep": {"x": 2, "a.b": 1}, "list": [1, 3]},
        )
    )
    assert [(each.path, each.kind) for each in found] == [
        (("new",), DifferenceKind.ADDED),
        (("keep", "x"), DifferenceKind.CHANGED),
        (("keep", "a.b"), DifferenceKind.ADDED),
        (("list",), DifferenceKind.CHANGED),
        (("gone",), DifferenceKind.REMOVED),
    ]
    assert found[2].dotted == "keep.a.b"
    assert (found[4].before, found[4].after) == ({"y": {"z": 1}}, None)


@given(st.none() | DOCUMENTS)
def test_a_missing_state_differs_by_all_fields(document: dict[str, Any] | None) -> None:
    """It is a state without fields."""
    assert [each.kind for each in find_differences(None, document)] == [DifferenceKind.ADDED] * len(
        document or {}
    )
    assert [each.kind for each in find_differences(document, None)] == [
        DifferenceKind.REMOVED
    ] * len(document or {})
