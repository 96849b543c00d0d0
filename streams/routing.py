"""Which subscribers of one collection an event concerns, found by hash where that can be told.

A subscriber may be of one document, or of those that have certain values at a place: such an index
is looked up with the values of the states before and after an event. What it finds is never too
little; where an image is missing, that is everybody.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from streams.events import ChangeEvent, identity

__all__ = ["EVERYTHING", "Index", "Interest", "Routing"]


class Index(Hashable, Protocol):
    """Equal to others that lead to the same values."""

    def values_in(self, document: Mapping[str, Any]) -> set[Hashable]: ...


@dataclass(frozen=True, slots=True)
class Interest:
    """What somebody wants to be told of. Writes to one document: `key`, its `_id`. Those of which
    the state before or after has one of these `values` in an index. Or all; and whatever befalls
    the collection as a whole."""

    key: Any = None
    index: Index | None = None
    values: frozenset[Hashable] = frozenset()

    def meets(self, event: ChangeEvent) -> bool:
        """False where an event does not concern it."""
        if not event.is_write:
            return True
        if self.key is not None:
            return bool(identity(event.key) == identity(self.key))
        if self.index is None:
            return True
        found = _values(self.index, event)
        return found is None or not self.values.isdisjoint(found)


EVERYTHING = Interest()


class Interested(Hashable, Protocol):
    @property
    def interest(self) -> Interest: ...


T = TypeVar("T", bound=Interested)


class Routing(Generic[T]):
    """Of one collection."""

    def __init__(self) -> None:
        self._whole: set[T] = set()
        self._by_key: dict[Hashable, set[T]] = {}
        self._by_value: dict[Index, dict[Hashable, set[T]]] = {}

    def __iter__(self) -> Iterator[T]:
        """Each once."""
        yield from self._whole
        for group in self._by_key.values():
            yield from group
        for groups in self._by_value.values():
            yield from _together(groups)

    def add(self, one: T) -> None:
        interest = one.interest
        if interest.key is not None:
            self._by_key.setdefault(identity(interest.key), set()).add(one)
        elif interest.index is not None:
            groups = self._by_value.setdefault(interest.index, {})
            for value in interest.values:
                groups.setdefault(value, set()).add(one)
        else:
            self._whole.add(one)

    def discard(self, one: T) -> None:
        interest = one.interest
        if interest.key is not None:
            _discard(self._by_key, identity(interest.key), one)
        elif interest.index is not None:
            groups = self._by_value.get(interest.index, {})
            for value in interest.values:
                _discard(groups, value, one)
            if not groups:
                self._by_value.pop(interest.index, None)
        else:
            self._whole.discard(one)

    def of(self, event: ChangeEvent) -> list[T]:
        """Those whom it concerns, each once."""
        if not event.is_write:
            return list(self)
        found = [*self._whole, *self._by_key.get(identity(event.key), ())]
        for index, groups in self._by_value.items():
            values = _values(index, event)
            if values is None:
                found += _together(groups)
            elif len(values) == 1:
                found += groups.get(next(iter(values)), ())
            else:
                found += set().union(*(groups.get(each, ()) for each in values))
        return found


def _values(index: Index, event: ChangeEvent) -> set[Hashable] | None:
    """Of the states before and after; None where one of them is not known."""
    before, after = event.document_before, event.document
    if before is None and event.operation != "insert":
        return None
    if after is None and event.operation != "delete":
        return None
    found: set[Hashable] = set() if before is None else index.values_in(before)
    return found if after is None else found | index.values_in(after)


def _together(groups: Mapping[Hashable, set[T]]) -> set[T]:
    return set().union(*groups.values())


def _discard(groups: dict[Hashable, set[T]], key: Hashable, one: T) -> None:
    group = groups.get(key)
    if group is not None:
        group.discard(one)
        if not group:
            del groups[key]
