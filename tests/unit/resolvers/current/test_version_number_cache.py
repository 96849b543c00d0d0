"""Version number cache against a plain model.

The archive may be late, the stream may be late, and this process may have written what neither has
reached yet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from bson import Timestamp
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from revstream.resolvers.current.version_number_cache import VersionNumberCache
from revstream.streams.changefeed.event import ChangeEvent, EventBatch
from revstream.streams.core import resume_tokens
from revstream.streams.live.hub import Hub
from tests.support.streams import event

KEYS = st.sampled_from(["a", "b", "c"])


def there(*keys: Any) -> list[dict[str, Any]]:
    """Return documents with these keys."""
    return [{"_id": each} for each in keys]


def token(second: int) -> str:
    return resume_tokens.token_from_time(Timestamp(second, 1))


@dataclass
class Write:
    key: str
    second: int
    number: int


@dataclass
class World:
    """`archived` and `seen` are the positions of the archive and of this process's stream."""

    writes: list[Write] = field(default_factory=list)
    now: int = 100
    archived: int = 100
    seen: int = 100


class KnownNumbers(RuleBasedStateMachine):
    """A known number is the last one at the position of the stream at that time."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.hub = Hub(["things"], position=token(100))
        self.numbers = VersionNumberCache(self.hub, most=2)
        self.reads: list[tuple[tuple[str, int, str], str]] = []

    def last(self, key: str, upto: int) -> int | None:
        writes = self.world.writes
        numbers = [each.number for each in writes if each.key == key and each.second <= upto]
        return numbers[-1] if numbers else None

    @rule(key=KEYS, own=st.booleans())
    def write(self, key: str, own: bool) -> None:
        world = self.world
        world.now += 1
        number = 1 + sum(each.key == key for each in world.writes)
        world.writes.append(Write(key, world.now, number))
        if own:
            self.numbers.forget("things", key, Timestamp(world.now, 1))

    @rule(steps=st.integers(1, 5))
    def archive(self, steps: int) -> None:
        self.world.archived = min(self.world.now, self.world.archived + steps)

    @rule(steps=st.integers(1, 5))
    def follow(self, steps: int) -> None:
        world = self.world
        upto = min(world.now, world.seen + steps)
        events: list[ChangeEvent] = [
            event(each.second, key=each.key)
            for each in world.writes
            if world.seen < each.second <= upto
        ]
        world.seen = upto
        self.hub.publish(EventBatch(tuple(events), token(upto)))

    @rule(key=KEYS, stale=st.integers(0, 2))
    def ask(self, key: str, stale: int) -> None:
        """Look up a number in the archive at the stream's position; known ones may be `stale`."""
        upto = min(self.world.archived, self.world.seen)
        found = self.last(key, upto)
        if found is not None:
            [write] = [e for e in self.world.writes if (e.key, e.number) == (key, found)]
            self.reads.append(((key, found, token(write.second)), token(max(100, upto - stale))))

    @rule()
    def answer(self) -> None:
        """Learn what was looked up; the archive and the stream may have moved in between."""
        for found, upto in self.reads:
            self.numbers.learn("things", [found], upto)
        self.reads.clear()

    @rule()
    def begin_anew(self) -> None:
        self.world.seen = self.world.now
        self.hub.restart(token(self.world.now))

    @invariant()
    def what_is_known_is_so(self) -> None:
        keys = ["a", "b", "c"]
        for key, number in zip(
            keys,
            self.numbers.last_numbers("things", there(*keys), token(self.world.seen)),
            strict=True,
        ):
            if number is not None:
                assert number == self.last(key, self.world.seen)

    @invariant()
    def who_has_read_earlier_is_told_no_later_number(self) -> None:
        for back in range(1, 4):
            upto = self.world.seen - back
            found = self.numbers.last_numbers("things", there("a", "b", "c"), token(upto))
            assert len([each for each in found if each is not None]) <= 2
            for key, number in zip(("a", "b", "c"), found, strict=True):
                if number is not None:
                    assert number == self.last(key, upto) == self.last(key, self.world.seen)


TestKnownNumbers = KnownNumbers.TestCase
TestKnownNumbers.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


@pytest.fixture
def hub() -> Hub:
    return Hub(["things", "others"], position=token(100))


def test_a_number_is_not_known_for_reads_older_than_its_version(hub: Hub) -> None:
    """A client would take the number for the state that it read, and overwrite newer changes."""
    numbers = VersionNumberCache(hub)
    numbers.learn("things", [("a", 7, token(99))], token(100))
    assert numbers.last_numbers("things", there("a", "b"), token(100)) == [7, None]
    assert numbers.last_numbers("things", there("a"), token(98)) == [None]
    assert numbers.last_numbers("others", there("a"), token(100)) == [None]


def test_no_number_is_learned_from_a_late_archive(hub: Hub) -> None:
    """The archive may lack a later version of the document."""
    numbers = VersionNumberCache(hub)
    numbers.learn("things", [("a", 7, token(50))], token(99))
    assert numbers.last_numbers("things", there("a"), token(100)) == [None]


def test_numbers_of_a_dropped_collection_are_evicted(hub: Hub) -> None:
    """Older records are not learned again."""
    numbers = VersionNumberCache(hub)
    numbers.learn("things", [("a", 7, token(99))], token(100))
    drop = event(101, key=None, operation="drop")
    hub.publish(EventBatch((drop,), token(101)))
    assert numbers.last_numbers("things", there("a"), token(101)) == [None]
    numbers.learn("things", [("a", 7, token(99))], token(100))
    assert numbers.last_numbers("things", there("a"), token(101)) == [None]
