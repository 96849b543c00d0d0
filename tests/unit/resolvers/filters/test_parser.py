"""Parsing of `where` arguments, and the ones that are refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId

from revstream.model.definition import Field, Scalar
from revstream.resolvers.errors import BadUserInput, LimitExceeded
from revstream.resolvers.filters.expression import (
    EVERYTHING,
    NOTHING,
    All,
    AnyOf,
    Compare,
    Comparison,
    Condition,
    HasValue,
    In,
    IsList,
    Matches,
    Not,
    Size,
    Some,
    Text,
)
from revstream.resolvers.filters.parser import operators, parse_where
from tests.support.shapes import SHAPES, SINGLE, THING

EQ, LT, LTE, GT, GTE = Comparison
HEX = "64a000000000000000000001"
NULL_TEXT = Compare("t", EQ, None)
PATTERN = Matches("t", "Thing.text.matches", "(*LIMIT_MATCH=200000)\\A(?:\\Aab{0,1})")
NO_LIST = All((Compare("ts", EQ, None), Not(IsList("ts"))))


def parse(where: dict[str, Any] | None) -> Condition:
    return parse_where(SHAPES, THING, where)


@pytest.mark.parametrize(
    ("where", "condition"),
    [
        (None, EVERYTHING),
        ({}, EVERYTHING),
        ({"text": {}}, EVERYTHING),
        ({"text": {"eq": "a"}}, Compare("t", EQ, "a")),
        ({"text": {"eq": None}}, NULL_TEXT),
        ({"text": {"ne": None}}, Not(NULL_TEXT)),
        ({"text": {"ne": "a"}}, Not(Compare("t", EQ, "a"))),
        ({"text": {"in": ["a", "b"]}}, In("t", ("a", "b"))),
        ({"text": {"in": ["a"]}}, Compare("t", EQ, "a")),
        ({"text": {"in": []}}, NOTHING),
        ({"text": {"notIn": ["a", "b"]}}, Not(In("t", ("a", "b")))),
        ({"text": {"notIn": []}}, EVERYTHING),
        ({"text": {"startsWith": "a.*"}}, Text("t", "a.*", True)),
        ({"text": {"contains": ""}}, Text("t", "", False)),
        ({"text": {"endsWith": "a"}}, Text("t", "a", at_end=True)),
        (
            {"text": {"eqIgnoreCase": "a"}},
            Text("t", "a", at_start=True, at_end=True, ignore_case=True),
        ),
        (
            {"text": {"matches": "^ab?"}},
            All((Text("t", "a", at_start=True), PATTERN)),
        ),
        ({"attributes": {"path": "a.b", "eq": 1}}, Compare("attributes.a.b", EQ, 1)),
        ({"attributes": {"path": "a", "eq": None}}, Not(HasValue("attributes.a"))),
        ({"attributes": {"path": "a", "ne": None}}, HasValue("attributes.a")),
        ({"attributes": {"path": "a", "exists": False}}, Not(HasValue("attributes.a"))),
        ({"attributes": {"exists": True}}, HasValue("attributes")),
        ({"attributes": {"path": "a", "in": [1, True]}}, In("attributes.a", (1, True))),
        ({"attributes": {"path": "a", "contains": "b"}}, Text("attributes.a", "b")),
        ({"attributes": {"path": "a", "size": 1}}, Size("attributes.a", 1)),
        ({"attributes": {"path": "a", "isEmpty": True}}, Size("attributes.a", 0)),
        ({"text": {"startsWithIgnoreCase": "a"}}, Text("t", "a", at_start=True, ignore_case=True)),
        ({"text": {"endsWithIgnoreCase": "a"}}, Text("t", "a", at_end=True, ignore_case=True)),
        ({"text": {"containsIgnoreCase": "a"}}, Text("t", "a", ignore_case=True)),
        (
            {"text": {"eqIgnoreCaseAndAccents": "a"}},
            Text("t", "a", at_start=True, at_end=True, ignore_accents=True),
        ),
        (
            {"text": {"startsWithIgnoreCaseAndAccents": "a"}},
            Text("t", "a", at_start=True, ignore_accents=True),
        ),
        (
            {"text": {"endsWithIgnoreCaseAndAccents": "a"}},
            Text("t", "a", at_end=True, ignore_accents=True),
        ),
        ({"text": {"containsIgnoreCaseAndAccents": "a"}}, Text("t", "a", ignore_accents=True)),
        ({"text": {"exists": True}}, Not(NULL_TEXT)),
        ({"text": {"exists": False}}, NULL_TEXT),
        ({"whole": {"gte": 1, "lt": 5}}, All((Compare("whole", GTE, 1), Compare("whole", LT, 5)))),
        ({"long": {"gt": "5"}}, Compare("long", GT, Int64(5))),
        ({"ratio": {"lte": 1}}, Compare("ratio", LTE, 1.0)),
        ({"price": {"gt": "10.5"}}, Compare("price", GT, Decimal128("10.5"))),
        (
            {"at": {"lt": "2024-05-01T00:00:00Z"}},
            Compare("at_time", LT, datetime(2024, 5, 1, tzinfo=UTC)),
        ),
        ({"flag": {"eq": True}}, Compare("flag", EQ, True)),
        ({"colour": {"in": ["RED", "BLUE"]}}, In("colour", ("RED", "BLUE"))),
        ({"id": {"eq": "7"}}, Compare("_id", EQ, 7)),
        ({"ownerId": {"eq": HEX}}, Compare("owner", EQ, ObjectId(HEX))),
        ({"object": {"eq": ObjectId(HEX)}}, Compare("object", EQ, ObjectId(HEX))),
        ({"version": {"gt": 3}}, Compare("version", GT, 3)),
        ({"textList": {"has": "a"}}, Compare("ts", EQ, "a")),
        ({"textList": {"hasSome": ["a", "b"]}}, In("ts", ("a", "b"))),
        ({"textList": {"hasSome": []}}, NOTHING),
        (
            {"textList": {"hasEvery": ["a", "b"]}},
            All((Compare("ts", EQ, "a"), Compare("ts", EQ, "b"))),
        ),
        ({"textList": {"hasEvery": []}}, EVERYTHING),
        ({"textList": {"size": 2}}, Size("ts", 2)),
        ({"lines": {"size": 0}}, Size("lines", 0)),
        ({"textList": {"isEmpty": True}}, Size("ts", 0)),
        ({"textList": {"isEmpty": False}}, All((IsList("ts"), Not(Size("ts", 0))))),
        ({"textList": {"exists": False}}, NO_LIST),
        ({"textList": {"exists": True}}, Not(NO_LIST)),
        ({"size": {"width": {"lt": 3}}}, Compare("size.w", LT, 3.0)),
        ({"size": {"corner": {"x": {"eq": 1}}}}, Compare("size.corner.x", EQ, 1)),
        ({"size": {"exists": False}}, Compare("size", EQ, None)),
        ({"size": {"not": {"width": {"eq": 3}}}}, Not(Compare("size.w", EQ, 3.0))),
        ({"lines": {"some": {"sku": {"eq": "a"}}}}, Some("lines", Compare("sku", EQ, "a"))),
        ({"lines": {"none": {"sku": {"eq": "a"}}}}, Not(Some("lines", Compare("sku", EQ, "a")))),
        (
            {"lines": {"every": {"sku": {"eq": "a"}}}},
            Not(Some("lines", Not(Compare("sku", EQ, "a")))),
        ),
        ({"lines": {"every": {}}}, Not(Some("lines", NOTHING))),
        (
            {"lines": {"some": {"size": {"width": {"gt": 1}}}}},
            Some("lines", Compare("size.w", GT, 1.0)),
        ),
        ({"lines": {"isEmpty": True}}, Size("lines", 0)),
        ({"and": None, "or": None, "not": None}, EVERYTHING),
        ({"and": []}, EVERYTHING),
        ({"or": []}, NOTHING),
        ({"not": {}}, NOTHING),
        (
            {"or": [{"text": {"eq": "a"}}, {"text": {"eq": "b"}, "flag": {"eq": True}}]},
            AnyOf((Compare("t", EQ, "a"), All((Compare("t", EQ, "b"), Compare("flag", EQ, True))))),
        ),
        (
            {"and": [{"text": {"eq": "a"}}], "not": {"flag": {"eq": True}}},
            All((Compare("t", EQ, "a"), Not(Compare("flag", EQ, True)))),
        ),
    ],
)
def test_each_operator_has_one_meaning(where: dict[str, Any] | None, condition: Condition) -> None:
    """Conditions are over stored names and stored values."""
    assert parse(where) == condition


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"txt": {"eq": "a"}}, "Thing: 'txt', expected a field to filter by"),
        ({"size": {"depth": {"eq": 1}}}, "Thing.size: 'depth', expected a field to filter by"),
        ({"exists": True}, "Thing: 'exists', expected a field to filter by"),
        (
            {"flag": {"gt": True}},
            "Thing.flag: 'gt', expected one of eq, ne, exists",
        ),
        (
            {"textList": {"eq": "a"}},
            "Thing.textList: 'eq', expected one of has, hasEvery, hasSome, size, isEmpty, exists",
        ),
        (
            {"attributes": {"path": "a"}},
            "Thing.attributes: path alone, expected an operator; add one, such as exists",
        ),
        (
            {"lines": {"every": {"not": {"sku": {"matches": "a"}}}}},
            "Thing.lines.every.sku.matches: a regular expression for items of a list, which is "
            "not supported; use startsWith, endsWith or contains",
        ),
        ({"text": {"matches": 5}}, "Thing.text.matches: 5, expected a String: text"),
        ({"attributes": {"path": 5, "eq": 1}}, "Thing.attributes.path: 5, expected text"),
        (
            {"attributes": {"path": "a..b", "eq": 1}},
            "Thing.attributes.path: 'a..b', expected names with one dot between them; remove the "
            "empty name",
        ),
        (
            {"attributes": {"path": "a.$where", "eq": 1}},
            "Thing.attributes.path: 'a.$where', expected names without $ at the start, which "
            "MongoDB reads as operators; filter by another",
        ),
        (
            {"attributes": {"path": "a.0", "eq": 1}},
            "Thing.attributes.path: 'a.0', expected names that are no numbers, which MongoDB reads "
            "as indexes; leave an index out to find any item of a list",
        ),
        (
            {"attributes": {"path": "a\0", "eq": 1}},
            "Thing.attributes.path: 'a\\x00', expected Unicode text without NUL; no field has this "
            "name",
        ),
        (
            {"attributes": {"path": ".".join("a" * 21), "eq": 1}},
            "Thing.attributes.path: 'a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a', expected at most "
            "20 names; shorten it",
        ),
        (
            {"attributes": {"eq": {"$where": "true"}}},
            "Thing.attributes.eq: {'$where': 'true'}, expected text, a number, true or false; name "
            "the field inside of it by path",
        ),
        (
            {"attributes": {"in": [["a"]]}},
            "Thing.attributes.in: ['a'], expected text, a number, true or false; name the field "
            "inside of it by path",
        ),
        ({"attributes": {"path": None, "eq": 1}}, "Thing.attributes.path: null, expected text"),
        ({"attributes": {"lt": True}}, "Thing.attributes.lt: true, expected text or a number"),
        ({"attributes": {"contains": 5}}, "Thing.attributes.contains: 5, expected text"),
        (
            {"attributes": {"lt": None}},
            "Thing.attributes.lt: null, expected a value; remove the operator",
        ),
        (
            {"attributes": {"eq": 2**63}},
            "Thing.attributes.eq: 9223372036854775808, expected a JSON: JSON with numbers of at "
            "most 64 bits and at most 80 levels",
        ),
        (
            {"text": None},
            "Thing.text: null, expected an object of operators; to find null "
            "values, pass {exists: false}",
        ),
        (
            {"size": None},
            "Thing.size: null, expected an object of operators; to find null "
            "values, pass {exists: false}",
        ),
        ({"text": "a"}, "Thing.text: 'a', expected an object of operators"),
        ({"size": "a"}, "Thing.size: 'a', expected an object of conditions"),
        ({"not": ["a"]}, "Thing: ['a'], expected an object of conditions"),
        ({"and": {"text": {}}}, "Thing.and: {'text': {}}, expected a list"),
        ({"text": {"lt": None}}, "Thing.text.lt: null, expected a value; remove the operator"),
        ({"text": {"in": None}}, "Thing.text.in: null, expected a value; remove the operator"),
        ({"text": {"in": "a"}}, "Thing.text.in: 'a', expected a list"),
        (
            {"text": {"in": ["a", None]}},
            "Thing.text.in: null in the list, expected values; to find null values, pass "
            "exists: false",
        ),
        (
            {"text": {"exists": None}},
            "Thing.text.exists: null, expected a value; remove the operator",
        ),
        ({"text": {"exists": "yes"}}, "Thing.text.exists: 'yes', expected true or false"),
        ({"size": {"exists": 1}}, "Thing.size.exists: 1, expected true or false"),
        ({"textList": {"size": -1}}, "Thing.textList.size: -1, expected a number of items, from 0"),
        ({"lines": {"size": "2"}}, "Thing.lines.size: '2', expected a number of items, from 0"),
        ({"lines": {"size": True}}, "Thing.lines.size: true, expected a number of items, from 0"),
        ({"textList": {"isEmpty": 1}}, "Thing.textList.isEmpty: 1, expected true or false"),
        (
            {"lines": {"some": None}},
            "Thing.lines.some: null, expected a value; remove the operator",
        ),
        ({"lines": {"some": 1}}, "Thing.lines.some: 1, expected an object of conditions"),
        (
            {"lines": {"some": {"sku": {"eq": 1}}}},
            "Thing.lines.some.sku.eq: 1, expected a String: text",
        ),
        (
            {"price": {"gt": "cheap"}},
            "Thing.price.gt: 'cheap', expected a Decimal: a decimal number of at most 34 digits",
        ),
        (
            {"ownerId": {"eq": "abc"}},
            "Thing.ownerId.eq: 'abc', expected an ObjectID: 24 hexadecimal digits",
        ),
        ({"colour": {"eq": "red"}}, "Thing.colour.eq: 'red', expected one of RED, GREEN, BLUE"),
        (
            {"text": {"startsWith": "x" * 10_001}},
            "Thing.text.startsWith: 10,001 characters, maximum is 10,000; shorten the text",
        ),
        (
            {"text": {"contains": "x" * 1_001}},
            "Thing.text.contains: 1,001 characters, maximum is 1,000; shorten the text",
        ),
        (
            {"text": {"eqIgnoreCase": "x" * 1_001}},
            "Thing.text.eqIgnoreCase: 1,001 characters, maximum is 1,000; shorten the text",
        ),
        (
            {"text": {"eqIgnoreCaseAndAccents": "x" * 201}},
            "Thing.text.eqIgnoreCaseAndAccents: 201 characters, maximum is 200; shorten the text",
        ),
        (
            {"text": {"eqIgnoreCase": None}},
            "Thing.text.eqIgnoreCase: null, expected a value; remove the operator",
        ),
    ],
)
def test_an_invalid_filter_is_refused(where: dict[str, Any], message: str) -> None:
    """The error names the field, the operator and the value."""
    with pytest.raises(BadUserInput) as caught:
        parse(where)
    assert caught.value.message == message


def test_nesting_is_bounded() -> None:
    """A filter that the server would refuse for its depth is refused before."""
    where: dict[str, Any] = {"text": {"eq": "a"}}
    for _ in range(20):
        where = {"not": where}
    assert parse(where) == Compare("t", EQ, "a")
    with pytest.raises(BadUserInput, match="nested more than 20 deep"):
        parse({"not": where})


def test_a_collection_without_version_field_has_no_version_to_filter_by() -> None:
    """Its documents have no such field."""
    bare = replace(THING, version=None)
    with pytest.raises(BadUserInput, match="Thing: 'version', expected a field to filter by"):
        parse_where(SHAPES, bare, {"version": {"eq": 1}})


def test_a_number_as_stored_name_below_another_is_refused() -> None:
    """MongoDB would take it for a list index; at the top level no list is possible."""
    number = Field(name="first", stored="0", type=Scalar.INT)
    size = replace(SHAPES.embedded("Size"), fields=(number,))
    thing = replace(THING, fields=(*THING.fields, number))
    model = replace(SHAPES, entities=(thing,), embeddeds=(size, *SHAPES.embeddeds))
    assert parse_where(model, thing, {"first": {"eq": 1}}) == Compare("0", EQ, 1)
    with pytest.raises(BadUserInput, match=r"Thing\.size\.first: its stored name is a number"):
        parse_where(model, thing, {"size": {"first": {"eq": 1}}})


def test_a_filter_has_few_regular_expressions() -> None:
    """MongoDB looks at its time limit between documents only."""
    alternatives: list[dict[str, Any]] = [{"text": {"matches": "a"}}] * 3
    parse({"or": alternatives})
    with pytest.raises(LimitExceeded, match="regular expressions in a filter: 4, maximum is 3"):
        parse({"or": [*alternatives, {"not": {"text": {"matches": "b"}}}]})


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        # The longest list that a variable may be, with values as long as ids.
        ({"text": {"in": ["5f1c0a9b7e3d2c4b6a8f9e01"] * 20_000}}, 2),
        ({"text": {"eq": "a" * 1_000_000}}, 4),
        ({"text": {"containsIgnoreCaseAndAccents": "a" * 200}}, 160),
    ],
)
def test_the_values_of_a_filter_are_bounded_together(condition: dict[str, Any], most: int) -> None:
    """A variable stands in a filter many times, and MongoDB takes commands of 16 MB."""
    parse({"or": [condition] * most})
    with pytest.raises(
        LimitExceeded, match=r"size of the values of a filter: [\d,]+, maximum is 4,194"
    ):
        parse({"or": [{"not": condition}] * (most + 1)})


def test_alternatives_have_one_list_of_values_for_a_path() -> None:
    """MongoDB's planner takes seconds for the union of two long lists."""
    lists: list[dict[str, Any]] = [{"text": {"in": [each, "z"]}} for each in "abc"]
    inner = {"or": [lists[1], {"text": {"eq": "y"}}, lists[2]]}
    assert parse({"or": [lists[0], inner]}) == AnyOf(
        (In("t", ("a", "z", "b", "z", "c", "z")), Compare("t", EQ, "y"))
    )


def test_every_operator_of_the_schema_is_parsed() -> None:
    """The API's input types are built from the same table that the parser uses."""
    for field in THING.fields:
        for operator in operators(field):
            if operator in ("and", "or", "not"):
                continue
            with pytest.raises(BadUserInput) as caught:
                parse({field.name: {operator: object()}})
            assert f"{field.name}: {operator!r}" not in caught.value.message
            assert "expected a field" not in caught.value.message
    assert {len(operators(each)) for each in SINGLE} == {3, 5, 9, 21}
