"""Routing keys: routing by hash finds the same subscribers as their filters do."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from revstream.resolvers.access.row_filter import ALL_ROWS, RowFilter
from revstream.resolvers.filters.expression import (
    EVERYTHING,
    Compare,
    Comparison,
    In,
    Not,
    all_of,
    any_of,
)
from revstream.resolvers.filters.number_filters import asks_for_number
from revstream.resolvers.filters.parser import parse_where
from revstream.resolvers.filters.predicate import compile_predicate
from revstream.resolvers.subscriptions.routing_key import interest_in, routing_key
from revstream.resolvers.subscriptions.start import ChangeRequest
from revstream.streams.changefeed.routing import EVERYTHING as EVERY_EVENT
from revstream.streams.changefeed.routing import Interest
from tests.support.drawn import batches
from tests.support.exhaustive import examples
from tests.support.shapes import SHAPES, THING
from tests.support.streams import event

EQ = Comparison.EQ
OPERATIONS = st.sampled_from(["insert", "update", "delete"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(60))
@given(batches(), OPERATIONS, st.data())
def test_no_event_that_matches_a_filter_is_missed(
    batch: tuple[list[dict[str, Any]], list[dict[str, Any]]], operation: str, data: st.DataObject
) -> None:
    """Pure equalities are routed by hash alone, and no other subscriber is found."""
    documents, filters = batch
    drawn = st.sampled_from(documents or [{}])
    before = None if operation == "insert" else data.draw(drawn)
    after = None if operation == "delete" else data.draw(drawn)
    change = event(operation=operation, before=before, after=after)
    states = [each for each in (change.document_before, change.document) if each is not None]
    for where in filters:
        condition = parse_where(SHAPES, THING, where)
        matches = any(map(compile_predicate(condition), states))
        # The routing does not depend on the event's number.
        expected = matches or asks_for_number(THING, condition)
        request = ChangeRequest(where=condition)
        assert routing_key(THING, request, ALL_ROWS).matches(change) == expected, where
        assert (
            routing_key(THING, ChangeRequest(), RowFilter(condition)).matches(change) == expected
        ), where
        found = interest_in(condition).matches(change)
        assert found or not matches, where
        if isinstance(condition, In) or (
            isinstance(condition, Compare)
            and condition.comparison is EQ
            and condition.value is not None
        ):
            assert found == matches, where


@pytest.mark.parametrize(
    ("condition", "by_hash"),
    [
        (Compare("a", EQ, 1), True),
        (In("a", ("x", "y")), True),
        (all_of([Compare("b", Comparison.GT, 1), Compare("a", EQ, True)]), True),
        (Compare("a", EQ, None), False),
        (Compare("a", Comparison.GTE, 1), False),
        (any_of([Compare("a", EQ, 1), Compare("a", EQ, 2)]), False),
        (Not(Compare("a", EQ, 1)), False),
        (EVERYTHING, False),
    ],
)
def test_equalities_are_routed_by_hash(condition: Any, by_hash: bool) -> None:
    """Other conditions are tested for every event."""
    assert (interest_in(condition).index is not None) == by_hash


def test_equal_fields_share_one_lookup() -> None:
    """The type of the value matters: true is not 1."""
    one, two, true = (interest_in(Compare("a", EQ, each)) for each in (1, 2.5, True))
    assert one.index == two.index != true.index
    assert interest_in(Compare("a", EQ, 1.0)) == one


def test_row_rules_are_routed_and_conditions_on_time_are_not() -> None:
    """A filter on time is tested for every event."""
    rows, where = RowFilter(Compare("owner", EQ, "ann")), Compare("a", EQ, 1)
    assert routing_key(THING, ChangeRequest(), ALL_ROWS) == EVERY_EVENT
    assert routing_key(THING, ChangeRequest(), rows) == interest_in(rows.condition)
    assert routing_key(THING, ChangeRequest(where=where), ALL_ROWS) == interest_in(where)
    assert routing_key(THING, ChangeRequest(where=where, ids=("p",)), rows) == Interest(keys=("p",))
    since = datetime(2024, 1, 1, tzinfo=UTC)
    assert routing_key(THING, ChangeRequest(where=where, since=since), rows) == EVERY_EVENT
