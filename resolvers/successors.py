"""Which document comes next in the order of ids, as it was when somebody looked.

A guess of where to look, and never more: documents come in between, and are purged. What was seen
as of a later moment, when more of them were there, counts before what was seen as of an earlier.

One event loop's property: no locks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

__all__ = ["ORDERED", "Direction", "Reach", "Start", "Successors"]

ORDERED = frozenset({str, int, Int64, ObjectId})
"""Types of ids of which Python and MongoDB have the same order."""

Direction = tuple[str, bool]
"""An archive's name, and whether its documents are passed from the last one on."""

Start = tuple[Any, ...]
"""The id that one is behind; empty where it is an end of all."""

_BEFORE, _BEHIND = object(), object()

# Of text that is remembered: a cursor is whatever a client sends.
_MOST_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Reach:
    """How far so many documents reach.

    Attributes:
        known: of how many documents that is known. last: the last of these. whole: instead of
            it, where there were not so many.
    """

    known: int
    last: Any = None
    whole: bool = False


class Successors:
    """Args:
    most: documents in one direction; about 250 bytes each, a kilobyte at most.
    """

    def __init__(self, *, most: int = 10_000) -> None:
        self._most = most
        self._next: dict[Direction, dict[Any, tuple[Any, Timestamp]]] = {}

    def learn(
        self, direction: Direction, start: Start, ids: Sequence[Any], at: Timestamp, *, ended: bool
    ) -> None:
        """Args:
        ids: of the next documents behind `start`, as of `at`; each once or, while it is being cut,
            twice. ended: there were no more.
        """
        following = self._next.setdefault(direction, {})
        kinds = set(map(type, (*start, *ids)))
        longest = max(map(len, (*start, *ids))) if kinds == {str} else 0
        if len(kinds) > 1 or not kinds <= ORDERED or longest > _MOST_CHARACTERS:
            # What was known of others would be found wrong each time.
            following.pop(_place(start), None)
            return
        if len(following) + len(ids) > self._most:
            following.clear()
        passed = list(dict.fromkeys([_place(start), *ids]))
        if ended:
            passed.append(_BEHIND)
        for one, other in pairwise(passed):
            known = following.get(one)
            if known is None or known[1] <= at:
                following[one] = other, at

    def reach(self, direction: Direction, start: Start, count: int) -> Reach:
        """Of the next `count` documents, as far as they are known."""
        following = self._next.get(direction, {})
        last = _place(start)
        for passed in range(count):
            known = following.get(last)
            if known is None:
                return Reach(passed, last)
            if known[0] is _BEHIND:
                return Reach(count, whole=True)
            last = known[0]
        return Reach(count, last)


def _place(start: Start) -> Any:
    """A key for it; that of none where its type is not ordered."""
    if not start:
        return _BEFORE
    return start[0] if type(start[0]) in ORDERED else None
