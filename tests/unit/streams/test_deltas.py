"""Deltas applied to the state before: exact, or refused. The server's own word on them is tested in
integration."""

from __future__ import annotations

from typing import Any

import pytest

from streams.deltas import Ambiguous, apply_delta, apply_oplog_diff


@pytest.mark.parametrize(
    ("before", "update", "after"),
    [
        ({"a": 1}, {"updatedFields": {"a": 2, "b": 3}}, {"a": 2, "b": 3}),
        ({"a": 1, "b": 2}, {"removedFields": ["a"]}, {"b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"removedFields": ["a.b"]}, {"a": {"c": 2}}),
        ({"a": {"5": 1}}, {"removedFields": ["a.5"]}, {"a": {}}),
        ({"a.b": 1, "c": 2}, {"removedFields": ["a.b"]}, {"c": 2}),
        ({"a": [1, 2, 3]}, {"truncatedArrays": [{"field": "a", "newSize": 1}]}, {"a": [1]}),
        (
            {"a": {"b": [1, 2, 3]}},
            {"truncatedArrays": [{"field": "a.b", "newSize": 0}]},
            {"a": {"b": []}},
        ),
        # No state before in which it could be anything else: a new name with dots.
        ({"x": 1}, {"updatedFields": {"a.b": 1}}, {"x": 1, "a.b": 1}),
        (
            {"a": [1, 2]},
            {"updatedFields": {"a.5": 1}, "disambiguatedPaths": {"a.5": ["a", 5]}},
            {"a": [1, 2, None, None, None, 1]},
        ),
        (
            {"a": {}},
            {"updatedFields": {"a.5": 1}, "disambiguatedPaths": {"a.5": ["a", "5"]}},
            {"a": {"5": 1}},
        ),
        (
            {"a": {"b": 1}},
            {"updatedFields": {"a.b": 2}, "disambiguatedPaths": {"a.b": ["a.b"]}},
            {"a": {"b": 1}, "a.b": 2},
        ),
    ],
)
def test_a_delta_that_can_be_read_in_one_way_is_applied(
    before: dict[str, Any], update: dict[str, Any], after: dict[str, Any]
) -> None:
    """The state before decides what a dotted path means."""
    kept = repr(before)
    assert apply_delta(before, update) == after
    assert repr(before) == kept


@pytest.mark.parametrize(
    ("before", "update"),
    [
        # An item of the array, a field of the object, or a new name with a dot.
        ({"a": [1]}, {"updatedFields": {"a.0": 2}}),
        ({"a": {"b": 1}}, {"updatedFields": {"a.b": 2}}),
        ({"a": {"b": 1}, "a.b": 1}, {"updatedFields": {"a.b": 2}}),
        ({"a": {"b": 1}, "a.b": 1}, {"removedFields": ["a.b"]}),
        ({"a": 1}, {"removedFields": ["b"]}),
        ({"a": 1}, {"truncatedArrays": [{"field": "a", "newSize": 1}]}),
        ({"a": 1}, {"truncatedArrays": [{"field": "b", "newSize": 1}]}),
        ({"a": [1]}, {"removedFields": ["a.0"]}),
        ({"a": 1}, {"updatedFields": {"a.b": 1}, "disambiguatedPaths": {"a.b": ["a", "b"]}}),
    ],
)
def test_a_delta_that_can_be_read_in_two_ways_is_refused(
    before: dict[str, Any], update: dict[str, Any]
) -> None:
    """Never a guess; what does not fit the state before is refused too."""
    with pytest.raises(Ambiguous):
        apply_delta(before, update)


@pytest.mark.parametrize(
    ("before", "diff", "after"),
    [
        ({"a": 1, "b": 2}, {"d": {"a": False}, "u": {"b": 3}, "i": {"c": 4}}, {"b": 3, "c": 4}),
        ({"a": {"b": {"c": 1}}}, {"sa": {"sb": {"u": {"c": 2}}}}, {"a": {"b": {"c": 2}}}),
        ({"a.b": {"c": 1}}, {"sa.b": {"u": {"c": 2}}}, {"a.b": {"c": 2}}),
        ({"": {"c": 1}}, {"s": {"u": {"c": 2}}}, {"": {"c": 2}}),
        ({"a": [1, 2, 3]}, {"sa": {"a": True, "l": 1}}, {"a": [1]}),
        ({"a": [1]}, {"sa": {"a": True, "u3": 4}}, {"a": [1, None, None, 4]}),
        ({"a": [{"b": 1}]}, {"sa": {"a": True, "s0": {"i": {"c": 2}}}}, {"a": [{"b": 1, "c": 2}]}),
        ({"a": [[1, 2]]}, {"sa": {"a": True, "s0": {"a": True, "u1": 3}}}, {"a": [[1, 3]]}),
        ({"u": 1, "d": 2}, {"d": {"d": False}, "u": {"u": 2}}, {"u": 2}),
    ],
)
def test_an_oplog_diff_is_applied_where_it_says(
    before: dict[str, Any], diff: dict[str, Any], after: dict[str, Any]
) -> None:
    """It nests as the document does, so it has one reading."""
    kept = repr(before)
    assert apply_oplog_diff(before, diff) == after
    assert repr(before) == kept


def test_an_oplog_diff_that_inserts_a_field_again_moves_it_to_the_end() -> None:
    """That is how the server tells of another order of the fields."""
    found = apply_oplog_diff({"a": 1, "b": 2}, {"i": {"a": 1}})
    assert list(found) == ["b", "a"]


@pytest.mark.parametrize(
    ("before", "diff"),
    [
        ({"a": 1}, {"sa": {"u": {"b": 1}}}),
        ({}, {"sa": {"u": {"b": 1}}}),
        ({"a": {}}, {"sa": {"a": True, "l": 1}}),
        ({"a": [1]}, {"sa": {"u": {"b": 1}}}),
        ({"a": [1]}, {"sa": {"a": True, "s0": {"u": {"b": 1}}}}),
    ],
)
def test_an_oplog_diff_that_does_not_fit_is_refused(
    before: dict[str, Any], diff: dict[str, Any]
) -> None:
    """A state that the diff was not made from is not patched up."""
    with pytest.raises(Ambiguous):
        apply_oplog_diff(before, diff)
