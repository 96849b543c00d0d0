"""Which subscribers of one collection an event concerns, found by hash where that can be told.

A subscriber may be of one document, or of those that have certain values at a place: such an index
is looked up with the values of the states before and after an event. Who has a filter is found
where one of the two meets it, so that nobody wakes in vain. What is found is never too little;
where an image is missing, that is everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

from revstream.streams.changefeed.event import ChangeEvent, identity

__all__ = ["EVERYTHING", "Interest", "Routing", "RoutingIndex"]


class RoutingIndex(Hashable, Protocol):
    """Equal to others that lead to the same values."""

    def values_in(self, document: Mapping[str, Any]) -> set[Hashable]: ...


State = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Interest:
    """What somebody wants to be told of. Writes to one document: `keys`, the `_id`s that it may
    have. Those of which the state before or after meets a `filter`, and has one of these `values`
    in an index. Or all; and whatever befalls the collection as a whole."""

    keys: tuple[Any, ...] = ()
    index: RoutingIndex | None = None
    values: frozenset[Hashable] = frozenset()
    filter: Callable[[State], bool] | None = field(default=None, compare=False)

    def matches(self, event: ChangeEvent) -> bool:
        """False where an event does not concern it."""
        if not event.is_write:
            return True
        if not event.has_version:
            return False
        if self.keys:
            return identity(event.key) in map(identity, self.keys)
        if self.index is None and self.filter is None:
            return True
        states = _states(event)
        if states is None:
            return True
        if self.index is not None and self.values.isdisjoint(_values(self.index, states)):
            return False
        return self.accepts_any(states)

    def accepts_any(self, states: Iterable[State]) -> bool:
        """Whether one of these states meets the filter."""
        meets = self.filter
        if meets is None:
            return True
        try:
            # A loop takes half the time of any() and a generator.
            for each in states:
                if meets(each):
                    return True
        except Exception:
            # Whoever wants it judges it as well, and is told what is wrong.
            return True
        return False


EVERYTHING = Interest()


class RoutingTarget(Hashable, Protocol):
    @property
    def interest(self) -> Interest: ...


T = TypeVar("T", bound=RoutingTarget)


class Routing(Generic[T]):
    """Of one collection."""

    def __init__(self) -> None:
        self._whole: set[T] = set()
        self._filtered: set[T] = set()
        self._by_key: dict[Hashable, set[T]] = {}
        self._by_value: dict[RoutingIndex, dict[Hashable, set[T]]] = {}

    def __iter__(self) -> Iterator[T]:
        """Each once."""
        yield from self._whole
        yield from self._filtered
        yield from _union(self._by_key)
        for groups in self._by_value.values():
            yield from _union(groups)

    def add(self, one: T) -> None:
        interest = one.interest
        if interest.keys:
            for key in interest.keys:
                self._by_key.setdefault(identity(key), set()).add(one)
        elif interest.index is not None:
            groups = self._by_value.setdefault(interest.index, {})
            for value in interest.values:
                groups.setdefault(value, set()).add(one)
        elif interest.filter is not None:
            self._filtered.add(one)
        else:
            self._whole.add(one)

    def discard(self, one: T) -> None:
        interest = one.interest
        if interest.keys:
            for key in interest.keys:
                _discard(self._by_key, identity(key), one)
        elif interest.index is not None:
            groups = self._by_value.get(interest.index, {})
            for value in interest.values:
                _discard(groups, value, one)
            if not groups:
                self._by_value.pop(interest.index, None)
        else:
            self._filtered.discard(one)
            self._whole.discard(one)

    def route(self, event: ChangeEvent) -> list[T]:
        """Those whom it concerns, each once; nobody where no version is made of it, which a replay
        has not either."""
        if not event.is_write:
            return list(self)
        if not event.has_version:
            return []
        found = [*self._whole, *self._by_key.get(identity(event.key), ())]
        if not (self._filtered or self._by_value):
            return found
        states = _states(event)
        if states is None:
            return [*found, *self._filtered, *chain(*map(_union, self._by_value.values()))]
        judged = list(self._filtered)
        for index, groups in self._by_value.items():
            values = _values(index, states)
            if len(values) == 1:
                judged += groups.get(next(iter(values)), ())
            else:
                judged += set().union(*(groups.get(each, ()) for each in values))
        return found + [each for each in judged if each.interest.accepts_any(states)]


def _states(event: ChangeEvent) -> Sequence[State] | None:
    """The one after, which is looked for most, and the one before; None where one of them is not
    known."""
    after, before = event.document, event.document_before
    if after is None:
        return None if before is None or event.operation != "delete" else (before,)
    if before is None:
        return (after,) if event.operation == "insert" else None
    return after, before


def _values(index: RoutingIndex, states: Sequence[State]) -> set[Hashable]:
    first, *others = map(index.values_in, states)
    return first.union(*others)


def _union(groups: Mapping[Hashable, set[T]]) -> set[T]:
    return set().union(*groups.values())


def _discard(groups: dict[Hashable, set[T]], key: Hashable, one: T) -> None:
    group = groups.get(key)
    if group is not None:
        group.discard(one)
        if not group:
            del groups[key]
