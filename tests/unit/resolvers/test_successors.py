"""resolvers.successors: what was seen in a row is known in a row."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Int64, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from resolvers.successors import Direction, Reach, Start, Successors

HERE: Direction = "products.versions", False
IDS = st.lists(st.integers(0, 30), max_size=12, unique=True).map(sorted)


def at(second: int) -> Timestamp:
    return Timestamp(second, 1)


@given(views=st.lists(IDS, min_size=1, max_size=4), data=st.data())
def test_what_was_seen_last_is_known(views: list[list[int]], data: st.DataObject) -> None:
    """From an end of all or from any id, whatever was seen before; no further than was seen."""
    successors = Successors()
    for second, ids in enumerate(views):
        cut = data.draw(st.integers(0, len(ids)), label="cut")
        successors.learn(HERE, (), ids[:cut], at(second), ended=False)
        start = (ids[cut - 1],) if cut else ()
        successors.learn(HERE, start, ids[cut:], at(second), ended=True)
    ids, count = views[-1], data.draw(st.integers(1, 13), label="count")
    for n in range(len(ids) + 1):
        rest = ids[n:]
        found = successors.reach(HERE, (ids[n - 1],) if n else (), count)
        assert found == (
            Reach(count, rest[count - 1]) if len(rest) >= count else Reach(count, whole=True)
        )


def test_no_more_is_known_than_was_seen() -> None:
    successors = Successors()
    assert successors.reach(HERE, (), 1).known == 0
    successors.learn(HERE, (), ["a", "b", "c"], at(1), ended=False)
    assert successors.reach(HERE, (), 3) == Reach(3, "c")
    assert successors.reach(HERE, (), 4).known == 3
    assert successors.reach(HERE, ("b",), 2).known == 1
    assert successors.reach(HERE, ("x",), 1).known == 0
    assert successors.reach(("products.versions", True), (), 1).known == 0


def test_an_earlier_moment_does_not_unsay_what_a_later_one_has_said() -> None:
    successors = Successors()
    successors.learn(HERE, (), ["a", "c"], at(2), ended=True)
    successors.learn(HERE, (), ["c"], at(1), ended=True)
    assert successors.reach(HERE, (), 2) == Reach(2, "c")
    successors.learn(HERE, (), ["a", "b", "c"], at(3), ended=True)
    assert successors.reach(HERE, (), 2) == Reach(2, "b")


def test_one_that_is_being_cut_comes_twice_and_counts_once() -> None:
    successors = Successors()
    successors.learn(HERE, (), ["a", "a", "b", "c", "c"], at(1), ended=False)
    assert successors.reach(HERE, (), 3) == Reach(3, "c")
    assert successors.reach(HERE, ("c",), 1).known == 0


@pytest.mark.parametrize("ids", [["a", 1], [1, Int64(2)], [1.5], [None], [True]])
def test_of_ids_that_python_may_order_otherwise_nothing_is_known(ids: list[Any]) -> None:
    """Not any more, where it was."""
    successors = Successors()
    successors.learn(HERE, (), ["a", "b"], at(1), ended=True)
    successors.learn(HERE, (), ids, at(1), ended=True)
    assert successors.reach(HERE, (), 1).known == 0


@pytest.mark.parametrize("id_", [{"a": 1}, None, True, 2.5])
def test_behind_such_an_id_nothing_is_known(id_: Any) -> None:
    successors, start = Successors(), (id_,)
    successors.learn(HERE, (), [1, 2, 3], at(1), ended=True)
    successors.learn(HERE, start, [], at(1), ended=True)
    assert successors.reach(HERE, start, 1).known == 0


def test_what_is_remembered_is_bounded() -> None:
    successors = Successors(most=10)
    start: Start = ()
    for n in range(0, 100, 4):
        successors.learn(HERE, start, [*range(n, n + 4)], at(1), ended=False)
        assert successors.reach(HERE, start, 4) == Reach(4, n + 3)
        assert len(successors._next[HERE]) <= 10
        start = (n + 3,)


def test_what_a_client_sends_for_a_cursor_is_not_kept_whatever_its_length() -> None:
    """Ten thousand of a megabyte would be all of the memory."""
    successors = Successors()
    for start in [(200 * "x",), (201 * "x",)]:
        successors.learn(HERE, start, ["y"], at(1), ended=True)
    assert successors.reach(HERE, (200 * "x",), 1).known == 1
    assert successors.reach(HERE, (201 * "x",), 1).known == 0
