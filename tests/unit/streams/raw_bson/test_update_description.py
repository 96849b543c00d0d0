"""Deltas applied to the state before: exact, or refused.

tests/integration compares them with the server.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from revstream.streams.raw_bson.update_description import Ambiguous, apply_delta, apply_oplog_diff


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
        # A new name with dots, which is possible in any state before.
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
def test_an_unambiguous_delta_is_applied(
    before: dict[str, Any], update: dict[str, Any], after: dict[str, Any]
) -> None:
    """The state before decides the meaning of a dotted path."""
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
        # If steps are listed, an index is a number and a name is text.
        ({"a": [1]}, {"updatedFields": {"a.0": 1}, "disambiguatedPaths": {"a.0": ["a", "0"]}}),
        ({"a": {"0": 1}}, {"updatedFields": {"a.0": 1}, "disambiguatedPaths": {"a.0": ["a", 0]}}),
        (
            {"a": [[1]]},
            {"updatedFields": {"a.0.0": 1}, "disambiguatedPaths": {"a.0.0": ["a", "0", 0]}},
        ),
        # Numbers of other forms are names, and an array has none.
        ({"a": [1]}, {"updatedFields": {"a.00": 1}, "disambiguatedPaths": {}}),
        ({"a": [1]}, {"updatedFields": {"a.\u0660": 1}, "disambiguatedPaths": {}}),
        # An unknown form of description.
        ({"a": 1}, {"updatedFields": {"a": 2}, "movedFields": {"a": "b"}}),
    ],
)
def test_an_ambiguous_delta_is_refused(before: dict[str, Any], update: dict[str, Any]) -> None:
    """A delta that does not fit the state before is refused too."""
    with pytest.raises(Ambiguous):
        apply_delta(before, update)


NAMES = st.sampled_from(["a", "b", "0", "1", "5", "05", "a.b", "a.0", "b.", ""])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.integers(0, 3),
    lambda inside: st.dictionaries(NAMES, inside, max_size=4) | st.lists(inside, max_size=4),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)


class Description:
    """An update as MongoDB 6.1 and newer describe it with expanded events."""

    def __init__(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        self.update: dict[str, Any] = {
            "updatedFields": {},
            "removedFields": [],
            "truncatedArrays": [],
            "disambiguatedPaths": {},
        }
        self._seen: dict[str, list[str | int]] = {}
        self.unique = True
        self._object(before, after, [])

    def _path(self, steps: list[str | int]) -> str:
        path = ".".join(map(str, steps))
        self.unique &= self._seen.setdefault(path, steps) == steps
        if any(isinstance(each, str) and ("." in each or each.isdecimal()) for each in steps):
            self.update["disambiguatedPaths"][path] = steps
        return path

    def _object(self, before: dict[str, Any], after: dict[str, Any], at: list[str | int]) -> None:
        for name in before.keys() - after.keys():
            self.update["removedFields"].append(self._path([*at, name]))
        for name, value in after.items():
            if name not in before:
                self.update["updatedFields"][self._path([*at, name])] = value
            else:
                self._value(before[name], value, [*at, name])

    def _value(self, before: Any, after: Any, at: list[str | int]) -> None:
        if isinstance(before, dict) and isinstance(after, dict):
            self._object(before, after, at)
        elif isinstance(before, list) and isinstance(after, list):
            if len(after) < len(before):
                cut = {"field": self._path(at), "newSize": len(after)}
                self.update["truncatedArrays"].append(cut)
            for n, value in enumerate(after):
                if n < len(before):
                    self._value(before[n], value, [*at, n])
                else:
                    self.update["updatedFields"][self._path([*at, n])] = value
        elif before != after:
            self.update["updatedFields"][self._path(at)] = after


@given(DOCUMENTS, DOCUMENTS)
def test_a_delta_with_disambiguated_paths_is_exact(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Names may look like indexes or have dots, beside arrays and objects."""
    description = Description(before, after)
    # The server describes one path once.
    assume(description.unique)
    assert apply_delta(before, description.update) == after


@given(DOCUMENTS, DOCUMENTS)
def test_a_delta_without_disambiguated_paths_is_exact_or_refused(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Servers before 6.1 omit them, as do streams without expanded events."""
    description = Description(before, after)
    assume(description.unique)
    del description.update["disambiguatedPaths"]
    try:
        found = apply_delta(before, description.update)
    except Ambiguous:
        return
    assert found == after


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
def test_an_oplog_diff_is_applied_at_its_paths(
    before: dict[str, Any], diff: dict[str, Any], after: dict[str, Any]
) -> None:
    """It nests as the document does, so it has one meaning."""
    kept = repr(before)
    assert apply_oplog_diff(before, diff) == after
    assert repr(before) == kept


def test_an_oplog_diff_that_inserts_a_field_again_moves_it_to_the_end() -> None:
    """The server describes another order of the fields in this way."""
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
        # Sections of newer servers.
        ({"a": 1}, {"u": {"a": 2}, "b": {"o": 1}}),
        ({"a": {"x": 1}}, {"sa": {"u": {"x": 2}, "z": 1}}),
        ({"a": [1]}, {"sa": {"a": True, "u0": 2, "b": {"o": 1}}}),
        ({"a": [1]}, {"sa": {"a": True, "d0": True}}),
        ({"a": [1]}, {"sa": {"a": True, "u00": 2}}),
        ({"a": [1]}, {"sa": {"a": True, "u": 2}}),
    ],
)
def test_an_oplog_diff_that_does_not_fit_is_refused(
    before: dict[str, Any], diff: dict[str, Any]
) -> None:
    """It was created from another state, or it has an unknown section."""
    with pytest.raises(Ambiguous):
        apply_oplog_diff(before, diff)
