"""Routing of an event to the subscribers of a collection, by hash where possible.

A subscriber may follow single documents, or documents with certain values of a field. Such an index
is looked up with the values of the pre-image and the post-image. A filter is evaluated on both, so
that a subscriber is not woken in vain. The result is never too small: where an image is missing,
all subscribers are returned.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

from revstream.streams.changefeed.event import ChangeEvent, identity

__all__ = ["EVERYTHING", "Interest", "Routing", "RoutingIndex"]


class RoutingIndex(Hashable, Protocol):
    """A function from documents to values; equal to others that give the same values."""

    def values_in(self, document: Mapping[str, Any]) -> set[Hashable]: ...


State = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Interest:
    """The events of a collection that a subscriber wants; events of the whole collection always
    match.

    Attributes:
        keys: The `_id`s that the document may have.
        index: Index in which the pre-image or the post-image must have one of `values`.
        filter: Predicate that the pre-image or the post-image must satisfy.
    """

    keys: tuple[Any, ...] = ()
    index: RoutingIndex | None = None
    values: frozenset[Hashable] = frozenset()
    filter: Callable[[State], bool] | None = field(default=None, compare=False)

    def matches(self, event: ChangeEvent) -> bool:
        """Return False if the event surely does not match."""
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
        """Return whether one of these states satisfies the filter."""
        meets = self.filter
        if meets is None:
            return True
        try:
            # A loop takes half the time of any() and a generator.
            for each in states:
                if meets(each):
                    return True
        except Exception:
            # The subscription evaluates its filter again, and reports the error.
            return True
        return False


EVERYTHING = Interest()


class RoutingTarget(Hashable, Protocol):
    @property
    def interest(self) -> Interest: ...


T = TypeVar("T", bound=RoutingTarget)


class Routing(Generic[T]):
    """The subscribers of one collection, indexed by interest."""

    def __init__(self) -> None:
        self._whole: set[T] = set()
        self._filtered: set[T] = set()
        self._by_key: dict[Hashable, set[T]] = {}
        self._by_value: dict[RoutingIndex, dict[Hashable, set[T]]] = {}

    def __iter__(self) -> Iterator[T]:
        """Yield each subscriber once."""
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
        """Return the subscribers that an event matches, each once.

        Returns: none where no version is made of the event, since a replay does not send it either.
        """
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
    """Return the states after and before an event; None where one of them is not known.

    The state after comes first, because most filters accept it.
    """
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
