"""Composition of conditions."""

from __future__ import annotations

import pytest

from revstream.resolvers.filters.expression import (
    EVERYTHING,
    NOTHING,
    All,
    AnyOf,
    Compare,
    Comparison,
    Condition,
    In,
    IsList,
    Not,
    Size,
    Some,
    Text,
    all_of,
    any_of,
    negate,
    paths,
)

A = Compare("a", Comparison.EQ, 1)
B = Compare("b", Comparison.LT, 2)
C = In("c", (1, 2))


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (all_of([]), EVERYTHING),
        (all_of([A]), A),
        (all_of([A, All((B, C))]), All((A, B, C))),
        (all_of([A, EVERYTHING]), A),
        (all_of([A, NOTHING]), NOTHING),
        (any_of([]), NOTHING),
        (any_of([A]), A),
        (any_of([A, AnyOf((B, C))]), AnyOf((A, B, C))),
        (any_of([A, NOTHING]), A),
        (any_of([A, EVERYTHING]), EVERYTHING),
        (negate(A), Not(A)),
        (negate(Not(A)), A),
        (negate(EVERYTHING), NOTHING),
        (negate(NOTHING), EVERYTHING),
    ],
)
def test_conditions_stay_as_flat_as_possible(made: Condition, expected: Condition) -> None:
    """Constant parts are dropped, and nothing is nested twice."""
    assert made == expected


def test_the_paths_of_a_condition_can_be_a_projection() -> None:
    """Each path occurs once, and none lies inside another one."""
    condition = AnyOf(
        (
            A,
            Not(All((Compare("size.w", Comparison.EQ, 1), Text("size.label", "x", True)))),
            Some("lines", Compare("sku", Comparison.EQ, "a")),
            Size("lines.marks", 0),
            IsList("sizes"),
            Compare("size", Comparison.EQ, None),
        )
    )
    assert paths(condition) == {"a", "size", "lines", "sizes"}
    assert paths(EVERYTHING) == frozenset()


def test_a_condition_is_hashable() -> None:
    """Subscribers with equal filters are looked up by them."""
    assert len({A, Compare("a", Comparison.EQ, 1), B}) == 2
