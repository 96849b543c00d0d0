"""Differences between two states: complete, strict, and the same for raw and decoded documents."""

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
    """The state that the differences describe."""
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
    """Nothing is left out, nothing is said twice, and what is said is true of both states."""
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
    """The recorder compares raw documents, the API decoded ones, and they tell the same."""

    def told(one: Any, other: Any) -> list[tuple[tuple[str, ...], DifferenceKind]]:
        return [(each.path, each.kind) for each in find_differences(one, other)]

    expected = told(before, after)
    assert told(raw(before), raw(after)) == expected
    assert told(raw(before), after) == expected
    assert is_same(raw(before), raw(after)) == is_same(before, after)


@settings(deadline=None)
@given(DOCUMENTS, st.data())
def test_paths_that_differ_are_those_of_the_differences(
    before: dict[str, Any], data: st.DataObject
) -> None:
    """The recorder looks for them byte by byte, as far as fields stand where they stood: some are
    set, and one may go or come."""
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


# Many of them nearly the same.
RELATED = [None, 1, Int64(1), 1.0, True, NAN, -0.0, 0.0, "1", "2", {"a": 1}, {"a": 1.0}, [1]]


def test_text_that_is_none_differs_where_it_is_shown_otherwise() -> None:
    """Not by bytes that no reader sees: MongoDB keeps whatever a program sends."""

    def text(value: bytes) -> RawBSONDocument:
        given = bson.encode({"a": "x" * len(value)}).replace(b"x" * len(value), value)
        return RawBSONDocument(given, RAW)

    assert list(find_differing_paths(text(b"\xff"), text(b"\xfe"))) == []
    assert list(find_differing_paths(text(b"\xffa"), text(b"\xffb"))) == [("a",)]


@given(VALUES)
def test_a_value_is_the_same_as_its_copy(value: Any) -> None:
    """NaN included; a round trip through BSON changes nothing either."""
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
def test_what_is_one_value_to_a_reader_is_the_same(one: Any, other: Any) -> None:
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
    """Strict where Python is lax: 1, 1.0 and true are three values."""
    assert not is_same(one, other)
    assert not is_same(other, one)
    assert not is_same(raw({"x": one}), raw({"x": other}))


def test_a_subtree_that_appears_or_goes_is_one_difference() -> None:
    """In the order of the state after, then what was removed; a name with dots is one step."""
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
def test_nothing_differs_from_nothing_by_its_fields(document: dict[str, Any] | None) -> None:
    """A missing state is one without fields."""
    assert [each.kind for each in find_differences(None, document)] == [DifferenceKind.ADDED] * len(
        document or {}
    )
    assert [each.kind for each in find_differences(document, None)] == [
        DifferenceKind.REMOVED
    ] * len(document or {})
