"""Meaning of compiled predicates, as observed in MongoDB 6.0.5 (ADR 0003).

tests/integration/test_filters_agree.py compares both; these tests need no server and state the
common meaning.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.regex import Regex

from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.expression import (
    EVERYTHING,
    NOTHING,
    Compare,
    Comparison,
    Condition,
    In,
    IsList,
    Matches,
    Not,
    Size,
    Some,
    Text,
)
from revstream.resolvers.filters.predicate import compile_predicate

EQ, LT, LTE, GT, GTE = Comparison
NAN, INFINITY = float("nan"), float("inf")


def matching(condition: Condition, values: list[Any]) -> list[Any]:
    """Return those of `values` that match a condition on field `a`."""
    predicate = compile_predicate(condition)
    return [value for value in values if predicate({"a": value})]


NUMBERS = [-INFINITY, -1, -0.0, 0, Int64(0), Decimal128("-0E+3"), 0.1, 1, 1.0, INFINITY]
NANS = [NAN, Decimal128("NaN"), Decimal128("-NaN")]
OTHERS = ["0", True, False, None, {}, [], datetime(1970, 1, 1, tzinfo=UTC)]


def test_numbers_of_all_types_compare_by_value() -> None:
    """Zero is equal in every type and with either sign; no other kind of value is a number."""
    every = NUMBERS + NANS + OTHERS
    assert matching(Compare("a", EQ, 0), every) == NUMBERS[2:6]
    assert matching(Compare("a", LT, Int64(0)), every) == NUMBERS[:2]
    assert matching(Compare("a", LTE, 0.0), every) == NUMBERS[:6]
    assert matching(Compare("a", GT, Decimal128("0")), every) == NUMBERS[6:]
    assert matching(Compare("a", GTE, -0.0), every) == NUMBERS[2:]
    assert matching(In("a", (1, -1)), every) == [-1, 1, 1.0]


def test_nan_equals_nan_and_is_neither_below_nor_above() -> None:
    """The type of each side does not matter."""
    every = NUMBERS + NANS + OTHERS
    for nan in (NAN, Decimal128("NaN")):
        for comparison in (EQ, LTE, GTE):
            assert len(matching(Compare("a", comparison, nan), every)) == len(NANS)
        for comparison in (LT, GT):
            assert matching(Compare("a", comparison, nan), every) == []
    assert len(matching(In("a", (NAN, 1)), every)) == len(NANS) + 2
    assert Decimal128("NaN") not in matching(Compare("a", LT, Decimal128("Infinity")), every)


def test_numbers_compare_exactly_across_types() -> None:
    """A double is its exact binary fraction, and large integers keep their last digits."""
    double, below = 0.1, Decimal128("0.1000000000000000055511151231257827")
    assert matching(Compare("a", EQ, double), [double, below, Decimal128("0.1")]) == [double]
    assert matching(Compare("a", LT, double), [below, Decimal128("0.1"), double]) == [
        below,
        Decimal128("0.1"),
    ]
    large = [Int64(2**53), float(2**53), Int64(2**53 + 1), Decimal128("9007199254740993")]
    assert matching(Compare("a", EQ, Int64(2**53 + 1)), large) == large[2:]
    assert matching(Compare("a", GT, float(2**53)), large) == large[2:]


def test_text_compares_by_code_point() -> None:
    """The order is that of UTF-8 bytes, beyond the basic plane too.

    NUL is an ordinary character.
    """
    texts = ["", "\0", "a", "a\0", "b", "é", "\ud7ff", "\ue000", "\U00010000"]
    for index, text in enumerate(texts):
        assert matching(Compare("a", LT, text), [*texts, 1, Code("a")]) == texts[:index]
        assert matching(Compare("a", GTE, text), [*texts, 1, Code("a")]) == texts[index:]
        assert matching(Compare("a", EQ, text), [*texts, 1, Code(text)]) == [text]


def test_text_matches_literally() -> None:
    """The match is case-sensitive, and characters of regular expressions are literal."""
    texts = ["a.b", "axb", "A.b", "xa.b", "\na.b", 5, None]
    assert matching(Text("a", "a.b", at_start=True), texts) == ["a.b"]
    assert matching(Text("a", "a.b", at_start=False), texts) == ["a.b", "xa.b", "\na.b"]
    assert matching(Text("a", "", at_start=True), texts) == texts[:5]
    assert matching(Text("a", "a", at_start=True), [Regex("^a"), Regex("a"), Regex("^a", "i")]) == [
        Regex("^a")
    ]
    assert matching(Text("a", "a.b", at_end=True), [*texts, "a.b\n"]) == ["a.b", "xa.b", "\na.b"]


def test_text_without_regard_to_case_compares_character_by_character() -> None:
    """Accents count, and no character is equal to two."""
    texts = ["straße", "STRASSE", "STRA\u1e9eE", "Straße 5", "die Straße", "strasse", 5]
    whole = Text("a", "STRAßE", at_start=True, at_end=True, ignore_case=True)
    assert matching(whole, texts) == ["straße", "STRA\u1e9eE"]
    assert matching(replace(whole, at_end=False), texts) == [*texts[:3:2], "Straße 5"]
    assert matching(replace(whole, at_start=False), texts) == [*texts[:3:2], "die Straße"]
    anywhere = replace(whole, at_start=False, at_end=False)
    assert matching(anywhere, texts) == [*texts[:3:2], *texts[3:5]]
    e_acute = Text("a", "É", at_start=True, at_end=True, ignore_case=True)
    assert matching(e_acute, ["é", "É", "e", "e\u0301"]) == ["é", "É"]


def test_text_without_regard_to_accents_compares_letters() -> None:
    """Composed and decomposed letters are equal, and their case does not count."""
    texts = ["Łódź", "LO\u0301DZ\u0301", "lodz", "lod", "\u0301lodz!", "日", 5]
    whole = Text("a", "łodź", at_start=True, at_end=True, ignore_accents=True)
    assert matching(whole, texts) == texts[:3]
    assert matching(replace(whole, at_end=False), texts) == [*texts[:3], texts[4]]
    assert matching(replace(whole, at_start=False), texts) == texts[:3]
    assert matching(Text("a", "OD", ignore_accents=True), texts) == texts[:5]


def test_a_regular_expression_is_refused() -> None:
    """Only MongoDB evaluates it."""
    with pytest.raises(BadUserInput, match=r"T\.a\.matches: a regular expression, which"):
        compile_predicate(Not(Matches("a", "T.a.matches", "a")))


def test_dates_compare_by_millisecond_beyond_python_s_years_too() -> None:
    """The driver decodes near and far dates to different classes; they compare as one type."""
    near, far = datetime(2024, 5, 1, tzinfo=UTC), DatetimeMS(10**15)
    assert matching(Compare("a", LT, far), [near, far, 0, None]) == [near]
    assert matching(Compare("a", GT, near), [near, far, 10**16]) == [far]
    assert matching(Compare("a", EQ, near), [near, DatetimeMS(near), near.isoformat()]) == [
        near,
        DatetimeMS(near),
    ]


def test_dates_without_a_zone_are_utc() -> None:
    """Fast reads return dates without a zone, and row rules are applied to those."""
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    for comparison, meets in ((EQ, True), (LT, False), (GTE, True)):
        matches = compile_predicate(Compare("at", comparison, noon))
        for date in (noon, noon.replace(tzinfo=None)):
            assert matches({"at": date}) is meets
            assert matches({"at": [date]}) is meets
    assert not compile_predicate(Compare("at", LT, noon))({"at": datetime(2024, 5, 1, 12, 1)})


def test_booleans_ids_and_uuids_equal_their_own_kind_only() -> None:
    """True is not 1, an id is not its digits, and a legacy UUID is another value."""
    assert matching(Compare("a", EQ, True), [True, 1, 1.0, "true"]) == [True]
    some = ObjectId("64a000000000000000000001")
    assert matching(Compare("a", EQ, some), [some, str(some), ObjectId()]) == [some]
    uuid = UUID(int=1)
    binary = Binary(uuid.bytes, 4)
    assert matching(
        Compare("a", EQ, binary), [uuid, binary, Binary(uuid.bytes, 3), uuid.bytes, str(uuid)]
    ) == [uuid, binary]


def test_a_missing_field_is_null_and_different_from_all_values() -> None:
    """A missing field equals null, and is not equal to any value."""
    is_null = compile_predicate(Compare("a", EQ, None))
    assert is_null({})
    assert is_null({"a": None})
    assert not is_null({"a": 0})
    for condition in (Compare("a", EQ, 1), Compare("a", LTE, 1), In("a", (1, 2))):
        assert not compile_predicate(condition)({})
        assert compile_predicate(Not(condition))({})


def test_a_list_matches_if_one_of_its_items_does() -> None:
    """Lists inside lists are not entered."""
    lists: list[Any] = [[], [1], [2, 1], [[1]], [None], 1]
    assert matching(Compare("a", EQ, 1), lists) == [[1], [2, 1], 1]
    assert matching(Compare("a", GT, 1), lists) == [[2, 1]]
    assert matching(Compare("a", EQ, None), lists) == [[None]]
    assert matching(Size("a", 0), lists) == [[]]
    assert matching(Size("a", 2), lists) == [[2, 1]]
    assert matching(IsList("a"), lists) == lists[:5]


def test_a_path_leads_through_documents_and_lists_of_them() -> None:
    """A path enters each document of a list; a list without documents has no such path."""
    held: list[Any] = [
        None,
        5,
        {},
        {"b": 1},
        [{"b": 1}],
        [{"b": 2}, {"b": [1]}],
        {"$ref": "things", "$id": 1, "b": 1},
        [[{"b": 1}]],
        [],
        [5],
        [{}],
    ]
    assert matching(Compare("a.b", EQ, 1), held) == held[3:7]
    assert matching(Compare("a.b", EQ, None), held) == [None, 5, {}, [{}]]
    assert matching(Not(Compare("a.b", EQ, None)), held) == [*held[3:10]]
    assert matching(IsList("a.b"), held) == [held[5]]


def test_some_means_one_item_that_matches_all_conditions() -> None:
    """Conditions on a path may be met by different items."""
    items: list[Any] = [
        [{"x": 1, "y": 2}],
        [{"x": 1}, {"y": 2}],
        {"x": 1, "y": 2},
        [[1, 2], {"x": 1}],
        [None, 5],
        [],
    ]
    both = compile_predicate(Some("a", Compare("x", EQ, 1)))
    assert [each for each in items if both({"a": each})] == [items[0], items[1], items[3]]
    assert matching(Some("a", EVERYTHING), items) == [items[0], items[1], items[3]]
    assert matching(Some("a", NOTHING), items) == []
    assert matching(Some("a", Compare("1", EQ, 2)), items) == [items[3]]
    assert matching(Some("a", Not(Compare("x", EQ, 1))), items) == [items[1], items[3]]


@pytest.mark.parametrize("condition", [EVERYTHING, Not(NOTHING)])
def test_the_empty_filter_matches_every_document(condition: Condition) -> None:
    """An absent filter excludes nothing."""
    assert compile_predicate(condition)({})
    assert not compile_predicate(Not(condition))({})
