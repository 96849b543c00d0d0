"""streams.unions: what one command finds, as the pages that were asked for."""

from __future__ import annotations

from typing import Any

import pytest

from streams.unions import PageUnion

ONE, TWO, BOUND = {"_id": 1}, {"_id": None}, dict[str, Any]()


def union(pages: int) -> PageUnion:
    return PageUnion(queries=[{}] * pages, projection={"_id": 1}, sort=[("_id", 1)], limit=2)


@pytest.mark.parametrize(
    ("found", "pages"),
    [
        ([], [[]]),
        ([BOUND], [[], []]),
        ([ONE, TWO], [[ONE, TWO]]),
        ([BOUND, ONE, BOUND, BOUND, TWO], [[], [ONE], [], [TWO]]),
    ],
)
def test_pages_end_at_bounds(found: list[Any], pages: list[Any]) -> None:
    """Empty ones, too: the first, the last, and several in a row."""
    assert union(len(pages)).parted(found) == pages


@pytest.mark.parametrize("pages", [1, 3])
def test_another_number_of_pages_is_nobodys(pages: int) -> None:
    """Rather none than those of somebody else."""
    with pytest.raises(ValueError, match=f"2 pages were found by {pages} queries"):
        union(pages).parted([ONE, BOUND, TWO])
