"""streams.changefeed.routing: an event reaches those whom it concerns, each once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.changefeed.routing import EVERYTHING, Interest, Routing
from revstream.streams.core.errors import InexactKey
from tests.support.streams import event


@dataclass(frozen=True)
class Field:
    """The value of one field, or its items."""

    name: str

    def values_in(self, document: Mapping[str, Any]) -> set[Hashable]:
        value = document.get(self.name)
        return set(value) if isinstance(value, list) else {value}


@dataclass(frozen=True)
class Somebody:
    name: str
    interest: Interest


WHOLE = Somebody("whole", EVERYTHING)
ONE = Somebody("one", Interest(keys=(1,)))
LAMPS = Somebody("lamps", Interest(index=Field("kind"), values=frozenset({"lamp", "light"})))
CHAIRS = Somebody("chairs", Interest(index=Field("kind"), values=frozenset({"chair"})))
RED = Somebody("red", Interest(index=Field("colour"), values=frozenset({"red"})))
DEAR = Somebody("dear", Interest(filter=lambda state: state.get("price", 0) > 9))
RED_AND_DEAR = Somebody("red and dear", replace(RED.interest, filter=DEAR.interest.filter))
ALL = [WHOLE, ONE, LAMPS, CHAIRS, RED, DEAR, RED_AND_DEAR]


def told(made: ChangeEvent) -> set[str]:
    routing: Routing[Somebody] = Routing()
    for each in ALL:
        routing.add(each)
    found = routing.route(made)
    assert len(found) == len(set(found))
    assert set(found) == {each for each in ALL if each.interest.matches(made)}
    return {each.name for each in found}


@pytest.mark.parametrize(
    ("before", "after", "concerned"),
    [
        ({"kind": "lamp"}, {"kind": "lamp"}, {"lamps"}),
        # What leaves is told, and what comes.
        ({"kind": "lamp"}, {"kind": "chair"}, {"lamps", "chairs"}),
        ({"kind": "lamp"}, {"kind": "light"}, {"lamps"}),
        ({"kind": ["lamp", "chair"]}, {}, {"lamps", "chairs"}),
        ({"colour": "red"}, {"colour": "blue", "kind": "chair"}, {"red", "chairs"}),
        ({}, {}, set()),
        ({"price": 10}, {"price": 9}, {"dear"}),
        ({"price": 9}, {"price": 10}, {"dear"}),
        ({"price": 9, "colour": "red"}, {"price": 9}, {"red"}),
        ({"price": 10, "colour": "red"}, {"price": 9}, {"red", "red and dear", "dear"}),
        # Where a state is not known, it may be anything.
        (None, {"kind": "lamp"}, {"lamps", "chairs", "red", "dear", "red and dear"}),
        ({"kind": "lamp"}, None, {"lamps", "chairs", "red", "dear", "red and dear"}),
    ],
)
def test_values_before_and_after_decide(
    before: dict[str, Any] | None, after: dict[str, Any] | None, concerned: set[str]
) -> None:
    made = event(key=2, before=before, after=after)
    assert told(made) == {"whole", *concerned}
    assert told(event(key=1, before=before, after=after)) == {"whole", "one", *concerned}


def test_what_was_not_there_before_or_is_not_after_has_no_values() -> None:
    assert told(event(key=2, operation="insert", after={"kind": "chair"})) == {"whole", "chairs"}
    assert told(event(key=2, operation="delete", before={"colour": "red"})) == {"whole", "red"}


def test_who_has_a_filter_that_fails_finds_out_himself() -> None:
    """And nobody else is kept from what he is told."""

    def fails(state: Mapping[str, Any]) -> bool:
        raise RecursionError

    routing: Routing[Somebody] = Routing()
    failing = Somebody("failing", Interest(filter=fails))
    for each in (failing, DEAR, WHOLE):
        routing.add(each)
    made = event(key=2, before={}, after={"price": 10})
    assert set(routing.route(made)) == {failing, DEAR, WHOLE}


def test_what_befalls_the_collection_concerns_all() -> None:
    assert told(event(key=None, operation="drop")) == {each.name for each in ALL}


@pytest.mark.parametrize("operation", ["insert", "update", "delete"])
def test_what_becomes_no_version_concerns_nobody(operation: str) -> None:
    """An event of a document whose id no driver keeps, whatever is known of it."""
    made = event(key=1, operation=operation, after={"kind": "lamp"}, before={"price": 10})
    assert told(made)
    assert told(replace(made, fault=InexactKey("no driver keeps it"))) == set()


def test_who_is_gone_leaves_nothing_behind() -> None:
    """And is gone for good, however often that is said."""
    routing: Routing[Somebody] = Routing()
    for each in ALL:
        routing.add(each)
    assert set(routing) == set(ALL)
    for each in (*ALL, *ALL):
        routing.discard(each)
    assert list(routing) == []
    assert not any((routing._whole, routing._filtered, routing._by_key, routing._by_value))
