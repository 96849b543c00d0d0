"""`…` in expected outputs and answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.site.matching import json_difference, missing_line

OUTPUT = "first line\n  second: 12 ms\nthird\n"


@pytest.mark.parametrize(
    ("expected", "missing"),
    [
        ("first line\nthird", None),
        ("second: … ms", None),
        ("…\nthird\n…", None),
        ("third\nfirst line", "first line"),
        ("second: … s", "second: … s"),
        ("third\nthird", "third"),
        ("first", "first"),
        ("second: 12 m.", "second: 12 m."),
    ],
)
def test_lines_occur_in_order(expected: str, missing: str | None) -> None:
    """Other lines may stand between them, and each line counts once."""
    assert missing_line(expected, OUTPUT) == missing


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"a": 1, "b": [True, None, "x"]}, {"b": [True, None, "x"], "a": 1}),
        ("…", {"any": "value"}),
        ({"a": "…", "…": "…"}, {"a": None, "b": 2}),
        ([1, "…"], [1, 2, 3]),
        ([1, "…"], [1]),
        (["…"], []),
        ("p-…-…", "p-1-2"),
    ],
)
def test_equal_values_have_no_difference(expected: Any, actual: Any) -> None:
    """Anything may stand for `…`."""
    assert json_difference(expected, actual) is None


@pytest.mark.parametrize(
    ("expected", "actual", "difference"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, "answer.a.b: 2, expected 1"),
        ({"a": 1}, {}, "answer.a: missing, expected 1"),
        ({}, {"a": 1}, "answer.a: 1, expected nothing"),
        ([1, 2], [1], "answer: 1 items, expected 2"),
        ([1, 2, "…"], [1], "answer: 1 items, expected 2 or more"),
        ([1], [2], "answer[0]: 2, expected 1"),
        (1, True, "answer: true, expected 1"),
        (0, None, "answer: null, expected 0"),
        ({}, [], "answer: [], expected {}"),
        ("p-…", "q-1", 'answer: "q-1", expected "p-…"'),
        ("1", 1, 'answer: 1, expected "1"'),
    ],
)
def test_a_difference_names_its_place(expected: Any, actual: Any, difference: str) -> None:
    """The first one is enough."""
    assert json_difference(expected, actual) == difference
