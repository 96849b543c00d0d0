"""Two implementations of one filter language: MongoDB queries and in-memory predicates match the
same documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR
from itertools import pairwise
from typing import Any
from unicodedata import decomposition, normalize

import pytest
from bson.decimal128 import Decimal128
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection

from revstream.model.definition import EnumType, Field, ObjectType, Scalar
from revstream.resolvers.filters.accent_folding import fold_accents
from revstream.resolvers.filters.mongo_query import to_query
from revstream.resolvers.filters.operations import (
    LONGEST_TEXT,
    LONGEST_TEXT_INSIDE,
    LONGEST_TEXT_WITHOUT_ACCENTS,
)
from revstream.resolvers.filters.parser import DEEPEST, operators, parse_where
from revstream.resolvers.filters.predicate import compile_predicate
from revstream.streams.mongo.driver.codecs import DECODED, RAW, decode
from tests.support.drawn import (
    ACCENTS,
    ANY,
    CASES,
    NOTABLE,
    batches,
    decimal_beside,
    documents,
    wheres,
)
from tests.support.exhaustive import examples, representatives
from tests.support.shapes import LISTS, SHAPES, SINGLE, THING

Things = Collection[dict[str, Any]]
Batch = tuple[list[dict[str, Any]], list[dict[str, Any]]]


@pytest.fixture
def things(client: MongoClient[dict[str, Any]], database_name: str) -> Things:
    """Return a collection with fast writes (w=1, j=False): its documents need not be durable."""
    return client.get_database(
        database_name, codec_options=DECODED, write_concern=WriteConcern(w=1, j=False)
    ).get_collection("things")


def stored_paths(kind: ObjectType, prefix: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the paths of a filter, without `_id`, in documents two levels deep."""
    for field in kind.fields:
        if field.stored != "_id":
            yield prefix + field.stored
        if isinstance(field.type, str) and depth < 1:
            embedded = SHAPES.embedded(field.type)
            yield from stored_paths(embedded, f"{prefix}{field.stored}.", depth + 1)


def check(
    things: Things, drawn: Sequence[Mapping[str, Any]], filters: Sequence[Mapping[str, Any]]
) -> None:
    """Store the documents, current and archived, and compare both sides for every filter."""
    things.delete_many({})
    things.insert_many([{"_id": number, **each} for number, each in enumerate(drawn)])
    things.insert_many(
        [
            {"_id": f"{number}@1", "full": {"_id": number, **each}}
            for number, each in enumerate(drawn)
        ]
    )
    current = {"full": {"$exists": False}}
    raw = list(things.with_options(codec_options=RAW).find(current))
    held = [decode(each.raw) for each in raw]
    for where in filters:
        condition = parse_where(SHAPES, THING, where)
        query = to_query(condition)
        predicate = compile_predicate(condition)
        found = {each["_id"] for each in things.find({"$and": [current, query]}, {"_id": 1})}
        archived = {
            int(each["_id"].partition("@")[0])
            for each in things.find(
                {"$and": [{"full": {"$exists": True}}, to_query(condition, prefix="full.")]},
                {"_id": 1},
            )
        }
        for side, ids in (
            ("the predicate", {each["_id"] for each in held if predicate(each)}),
            ("the predicate on raw documents", {each["_id"] for each in raw if predicate(each)}),
            ("the server in the archive", archived),
        ):
            differing = [each for each in held if each["_id"] in ids ^ found]
            assert not differing, f"{side} differs: {where}\n{condition}\n{query}"


quickly = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    # The failure names the filter and the documents; shrinking would take minutes.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


@settings(quickly, max_examples=examples(80))
@given(batches())
def test_server_and_predicate_match_the_same_documents(things: Things, batch: Batch) -> None:
    """A collection scan agrees with the predicate for any documents and filters."""
    check(things, *batch)


@settings(quickly, max_examples=examples(30))
@given(batches())
def test_index_scans_and_predicates_agree(things: Things, batch: Batch) -> None:
    """The server uses indexes on every path, on lists and missing values, too."""
    if len(things.index_information()) == 1:
        index(things)
    check(things, *batch)


def index(things: Things) -> None:
    for path in stored_paths(THING):
        things.create_index(path)


def operands(field: Field, operator: str) -> list[Any]:
    """Return the notable operands for a field's operator."""
    if operator in ("exists", "isEmpty"):
        return [True, False]
    if operator == "size":
        return [0, 1, 2, 2**31 - 1]
    if isinstance(field.type, EnumType):
        values: list[Any] = list(field.type.values)
    else:
        values = list(NOTABLE[field.stored_scalar or field.type])  # type: ignore[index]
        if field.type is Scalar.ID:
            values = [str(each) for each in values]
    if operator in ("eq", "ne"):
        return [*values, None]
    if "IgnoreCase" in operator:
        # They have tests of their own below.
        return values[::4]
    if operator in ("in", "notIn", "hasEvery", "hasSome"):
        return [[], values, values[:1], values[-2:]]
    return values


def filters_of(field: Field) -> Iterator[dict[str, Any]]:
    for operator in set(operators(field)) - {"matches"}:
        for operand in operands(field, operator):
            yield {operator: operand}


@pytest.mark.parametrize("indexed", representatives([False, True], True))
@pytest.mark.parametrize("field", [*SINGLE, *LISTS], ids=lambda each: each.name)
def test_both_sides_agree_on_every_notable_value_and_filter(
    things: Things, field: Field, indexed: bool
) -> None:
    """Each operator with each operand, on each value: alone, in a list, and in a nested list."""
    if indexed:
        things.create_index(field.stored)
    drawn = [
        {field.stored: held}
        for value in ANY
        for held in (value, [value], [None, value], [[value]], {"0": value})
    ]
    check(things, [*drawn, {}], [{field.name: each} for each in filters_of(field)])


JSON_FIELD = replace(THING, fields=(THING.id, *(f for f in THING.fields if f.type is Scalar.JSON)))


@settings(quickly, max_examples=examples(20))
@given(
    st.lists(documents(JSON_FIELD), min_size=20, max_size=30),
    st.lists(wheres(JSON_FIELD), min_size=5, max_size=15),
)
def test_both_sides_agree_on_paths_into_json(
    things: Things, drawn: list[dict[str, Any]], filters: list[dict[str, Any]]
) -> None:
    """A path leads through documents and lists to the same values, whatever they are."""
    if len(things.index_information()) == 1:
        things.create_index("attributes.a.b")
        things.create_index("attributes")
    check(things, drawn, filters)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("operator", ["some", "every", "none", "embedded"])
def test_both_sides_agree_on_every_nesting_of_documents(
    things: Things, operator: str, indexed: bool
) -> None:
    """Documents, lists of them, lists of lists, and other values in their place."""
    name, path = ("size", "label") if operator == "embedded" else ("lines", "sku")
    if indexed:
        things.create_index(f"{name}.{path}")
    values: list[Any] = ["a", "b", None, ["a"], ["b", "a"], [["a"]], [], {}, 5]
    drawn = [
        {name: held}
        for value in values
        for inner in ({path: value},)
        for held in (
            inner,
            [inner],
            [inner, {}],
            [{path: "c"}, inner],
            [[inner]],
            [[value], inner],
            [value, inner],
            [value],
            value,
            {"$ref": "things", "$id": 1, **inner},
            [{"$ref": "things", "$id": 1, **inner}],
            {"0": inner},
        )
    ]
    filters: list[dict[str, Any]] = [
        {"eq": "a"},
        {"ne": "a"},
        {"eq": None},
        {"ne": None},
        {"gte": "a", "lt": "b"},
        {"in": ["a", "c"]},
        {"notIn": ["a", "c"]},
        {"startsWith": "a"},
        {"exists": True},
        {"exists": False},
    ]
    wheres = [{path: each} for each in filters] + [{"not": {path: each}} for each in filters]
    if operator == "embedded":
        others = [{"exists": True}, {"exists": False}, {}]
        check(things, [*drawn, {}], [{name: each} for each in wheres + others])
    else:
        others = [
            {"size": 1},
            {"size": 2},
            {"isEmpty": True},
            {"isEmpty": False},
            {"exists": True},
            {"exists": False},
        ]
        wheres += [{}, {"marks": {"exists": False}}, {"size": {"width": {"eq": None}}}]
        check(
            things,
            [*drawn, {}],
            [{name: {operator: each}} for each in wheres] + [{name: each} for each in others],
        )


def test_one_item_meets_all_conditions(things: Things) -> None:
    """`some` asks for one item with both values, not for two items with one each."""
    lines = [
        [{"sku": "x", "n": 3}],
        [{"sku": "x", "n": 1}, {"sku": "y", "n": 5}],
        [{"sku": "y", "n": 1}, {"sku": "x", "n": 4}],
        [],
    ]
    both = {"sku": {"eq": "x"}, "count": {"gt": 2}}
    expected = {"some": {0, 2}, "none": {1, 3}, "every": {0, 3}}
    wheres = [{"lines": {quantifier: both}} for quantifier in expected]
    check(things, [{"lines": each} for each in lines], wheres)
    for where, ids in zip(wheres, expected.values(), strict=True):
        query = to_query(parse_where(SHAPES, THING, where))
        found = things.find({"$and": [{"full": {"$exists": False}}, query]})
        assert {each["_id"] for each in found} == ids, where


NEIGHBOURS: list[Any] = [
    each
    for double in (0.1, 1 / 3, 1e22 + 2**22, 2.0**53 + 2, 5e-324, 1.7976931348623157e308, -0.7)
    for each in (
        decimal_beside(double, ROUND_FLOOR),
        double,
        decimal_beside(double, ROUND_CEILING),
    )
]


def test_both_sides_agree_on_doubles_and_nearby_decimals(things: Things) -> None:
    """34 digits are too few for most doubles: the server compares exact values."""
    filters: list[dict[str, Any]] = [
        {"price": {operator: each}}
        for each in NEIGHBOURS
        if isinstance(each, Decimal128)
        for operator in ("eq", "lt", "gte")
    ]
    filters += [
        {"ratio": {operator: each}}
        for each in NEIGHBOURS
        if isinstance(each, float)
        for operator in ("eq", "lt", "gte")
    ]
    check(things, [{"price": each, "ratio": each} for each in NEIGHBOURS], filters)


def test_both_sides_ignore_the_case_of_the_same_characters(things: Things) -> None:
    """Each character whose case is special meets each other one, alone and inside a text."""
    operators_ = [f"{each}IgnoreCase" for each in ("eq", "startsWith", "endsWith", "contains")]
    check(
        things,
        [{"t": held} for each in CASES for held in (each, f"a{each}", f"{each}a", f"{each}\n")],
        [
            {"text": {operator: each}}
            for operator in operators_
            for each in [*CASES, "SS", "i\u0307"]
        ],
    )


def test_both_sides_ignore_the_same_accents(things: Things) -> None:
    """Each letter meets each other one, alone, inside a text, and before and after a mark."""
    letters = [*ACCENTS, *("".join(pair) for pair in pairwise(ACCENTS))]
    drawn = [
        {"t": held}
        for each in letters
        for held in (each, f"a{each}", f"{each}a", f"{each}\n", f"\u0301{each}\u0301")
    ]
    operators_ = ("eq", "startsWith", "endsWith", "contains")
    check(
        things,
        drawn,
        [
            {"text": {f"{operator}IgnoreCaseAndAccents": each}}
            for operator in operators_
            for each in ["", *letters]
        ],
    )


def is_compatible(letter: str) -> bool:
    """Return whether a letter is another form of a letter, beside its accents."""
    return normalize("NFKD", letter) != normalize("NFD", letter)


def test_letters_with_accents_are_those_of_the_collation(things: Things) -> None:
    """MongoDB's collation of strength 1 finds the same letters of Latin and Greek."""
    scripts = map(chr, [*range(0xC0, 0x250), *range(0x370, 0x400), *range(0x1E00, 0x2000)])
    letters = [each for each in scripts if decomposition(each) and not is_compatible(each)]
    stored = {form for each in [*letters, *"łøđħ"] for form in (each, normalize("NFD", each))}
    things.insert_many([{"_id": each, "t": each} for each in stored])
    for letter in {fold_accents(each) for each in stored if len(fold_accents(each)) == 1}:
        condition = parse_where(SHAPES, THING, {"text": {"eqIgnoreCaseAndAccents": letter}})
        found = {each["_id"] for each in things.find(to_query(condition))}
        collated = things.find({"t": letter}, collation={"locale": "en", "strength": 1})
        assert found == {each["_id"] for each in collated}, letter


def test_the_longest_text_and_the_deepest_filter_are_accepted_by_the_server(
    things: Things,
) -> None:
    """The server accepts every filter that the parser accepts."""
    letters = ("a", "(", "\0", "é", "日", "🙂", "k", "\u03b8", "\U00010400")
    texts = [letter * LONGEST_TEXT for letter in letters]
    shorter = [letter * LONGEST_TEXT_INSIDE for letter in letters]
    shortest = [letter * LONGEST_TEXT_WITHOUT_ACCENTS for letter in "o\u03c5(🙂"]
    deepest: dict[str, Any] = {"sku": {"eq": "a"}, "count": {"eq": 1}}
    for _ in range(DEEPEST):
        deepest = {"lines": {"every": deepest}}
    alternating: dict[str, Any] = {"text": {"eq": "a"}, "whole": {"eq": 1}}
    for _ in range(DEEPEST // 2):
        alternating = {"not": {"or": [alternating, {"flag": {"eq": True}}]}}
    check(
        things,
        [{"t": "a" + each} for each in [*texts, *shorter, *shortest]] + [{"lines": [{}]}],
        [{"text": {"startsWith": each}} for each in texts]
        + [{"text": {operator: each}} for each in shorter for operator in ("contains", "endsWith")]
        + [
            {"text": {f"{operator}IgnoreCase": each}}
            for each in shorter
            for operator in ("contains", "startsWith", "endsWith", "eq")
        ]
        + [
            {"text": {f"{operator}IgnoreCaseAndAccents": each}}
            for each in shortest
            for operator in ("contains", "eq")
        ]
        + [deepest, alternating],
    )


@pytest.mark.parametrize(
    "where",
    [
        {"text": {"eq": "a"}},
        {"text": {"in": ["a", "b"]}},
        {"text": {"gte": "a", "lt": "c"}},
        {"text": {"startsWith": "a.b"}},
        {"text": {"exists": False}},
        {"text": {"eq": "a"}, "or": [{"flag": {"eq": True}}, {"whole": {"gt": 1}}]},
        {"textList": {"has": "a"}},
        {"textList": {"hasSome": ["a", "b"]}},
        {"textList": {"exists": False}},
        {"size": {"width": {"gt": 1}}},
        {"lines": {"some": {"sku": {"eq": "a"}}}},
        {"text": {"in": []}},
    ],
)
def test_ordinary_filters_use_indexes(things: Things, where: dict[str, Any]) -> None:
    """The form of a query allows the planner to use an index with tight bounds."""
    for path in ("t", "ts", "size.w", "lines.sku"):
        things.create_index(path)
    things.insert_many([{"t": f"x{n}", "ts": [f"x{n}"], "size": {"w": -n}} for n in range(50)])
    query = to_query(parse_where(SHAPES, THING, where))
    plan = things.find(query).explain()
    assert "COLLSCAN" not in str(plan["queryPlanner"]["winningPlan"])
    assert plan["executionStats"]["totalKeysExamined"] <= 2
