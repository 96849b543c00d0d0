"""Routing: an event reaches each interested subscriber once."""

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
    """The value of one field, or the items of its list."""

    name: str

    def values_in(self, document: Mapping[str, Any]) -> set[Hashable]:
        value = document.get(self.name)
        return set(value) if isinstance(value, list) else {value}


@dataclass(frozen=True)
class NamedSubscriber:
    name: str
    interest: Interest


WHOLE = NamedSubscriber("whole", EVERYTHING)
ONE = NamedSubscriber("one", Interest(keys=(1,)))
LAMPS = NamedSubscriber("lamps", Interest(index=Field("kind"), values=frozenset({"lamp", "light"})))
CHAIRS = NamedSubscriber("chairs", Interest(index=Field("kind"), values=frozenset({"chair"})))
RED = NamedSubscriber("red", Interest(index=Field("colour"), values=frozenset({"red"})))
DEAR = NamedSubscriber("dear", Interest(filter=lambda state: state.get("price", 0) > 9))
RED_AND_DEAR = NamedSubscriber("red and dear", replace(RED.interest, filter=DEAR.interest.filter))
ALL = [WHOLE, ONE, LAMPS, CHAIRS, RED, DEAR, RED_AND_DEAR]


def receivers(change: ChangeEvent) -> set[str]:
    routing: Routing[NamedSubscriber] = Routing()
    for each in ALL:
        routing.add(each)
    found = routing.route(change)
    assert len(found) == len(set(found))
    assert set(found) == {each for each in ALL if each.interest.matches(change)}
    return {each.name for each in found}


@pytest.mark.parametrize(
    ("before", "after", "concerned"),
    [
        ({"kind": "lamp"}, {"kind": "lamp"}, {"lamps"}),
        # Documents that leave a filter are events for it, as are those that enter.
        ({"kind": "lamp"}, {"kind": "chair"}, {"lamps", "chairs"}),
        ({"kind": "lamp"}, {"kind": "light"}, {"lamps"}),
        ({"kind": ["lamp", "chair"]}, {}, {"lamps", "chairs"}),
        ({"colour": "red"}, {"colour": "blue", "kind": "chair"}, {"red", "chairs"}),
        ({}, {}, set()),
        ({"price": 10}, {"price": 9}, {"dear"}),
        ({"price": 9}, {"price": 10}, {"dear"}),
        ({"price": 9, "colour": "red"}, {"price": 9}, {"red"}),
        ({"price": 10, "colour": "red"}, {"price": 9}, {"red", "red and dear", "dear"}),
        # An unknown state may have any value.
        (None, {"kind": "lamp"}, {"lamps", "chairs", "red", "dear", "red and dear"}),
        ({"kind": "lamp"}, None, {"lamps", "chairs", "red", "dear", "red and dear"}),
    ],
)
def test_values_before_and_after_a_change_decide(
    before: dict[str, Any] | None, after: dict[str, Any] | None, concerned: set[str]
) -> None:
    """A subscriber of the document itself is added."""
    change = event(key=2, before=before, after=after)
    assert receivers(change) == {"whole", *concerned}
    assert receivers(event(key=1, before=before, after=after)) == {"whole", "one", *concerned}


def test_a_missing_state_has_no_values() -> None:
    """An insert has no state before, and a delete none after."""
    assert receivers(event(key=2, operation="insert", after={"kind": "chair"})) == {
        "whole",
        "chairs",
    }
    assert receivers(event(key=2, operation="delete", before={"colour": "red"})) == {"whole", "red"}


def test_a_filter_that_fails_routes_the_event_to_its_subscriber() -> None:
    """The subscriber gets the error itself, and the others get their events."""

    def fails(state: Mapping[str, Any]) -> bool:
        raise RecursionError

    routing: Routing[NamedSubscriber] = Routing()
    failing = NamedSubscriber("failing", Interest(filter=fails))
    for each in (failing, DEAR, WHOLE):
        routing.add(each)
    change = event(key=2, before={}, after={"price": 10})
    assert set(routing.route(change)) == {failing, DEAR, WHOLE}


def test_collection_events_reach_all() -> None:
    """A drop concerns every subscriber."""
    assert receivers(event(key=None, operation="drop")) == {each.name for each in ALL}


@pytest.mark.parametrize("operation", ["insert", "update", "delete"])
def test_an_event_that_becomes_no_version_reaches_none(operation: str) -> None:
    """The driver cannot represent the document's id, whatever else is known of the event."""
    change = event(key=1, operation=operation, after={"kind": "lamp"}, before={"price": 10})
    assert receivers(change)
    assert receivers(replace(change, fault=InexactKey("bytes that drivers change"))) == set()


def test_a_removed_subscriber_leaves_no_trace() -> None:
    """Removal may be repeated."""
    routing: Routing[NamedSubscriber] = Routing()
    for each in ALL:
        routing.add(each)
    assert set(routing) == set(ALL)
    for each in (*ALL, *ALL):
        routing.discard(each)
    assert list(routing) == []
    assert not any((routing._whole, routing._filtered, routing._by_key, routing._by_value))
