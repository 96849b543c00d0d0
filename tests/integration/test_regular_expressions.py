"""Regular expressions of filters: what MongoDB finds with them, and how long it searches."""

from __future__ import annotations

import re
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.resolvers.filters.mongo_query import to_query
from revstream.resolvers.filters.parser import parse_where
from revstream.resolvers.filters.pattern import LONGEST_PATTERN
from tests.integration.test_filters_agree import Things, quickly
from tests.support.drawn import patterns
from tests.support.exhaustive import examples
from tests.support.shapes import SHAPES, THING

TEXTS = st.text("aab1 é\n.-", max_size=8)


@pytest.fixture
def things(client: MongoClient[dict[str, Any]], database_name: str) -> Things:
    return client.get_database(database_name).get_collection("things")


def query_for(pattern: str, prefix: str = "") -> dict[str, Any]:
    return to_query(parse_where(SHAPES, THING, {"text": {"matches": pattern}}), prefix=prefix)


def in_python(pattern: str, value: Any) -> bool:
    """Return whether Python finds the pattern in a text, or in one of a list."""
    python = pattern.replace("[^", "[~").replace("^", "\\A").replace("[~", "[^")
    found = re.compile(python.replace("$", "\\Z"), re.ASCII).search
    items = value if isinstance(value, list) else [value]
    return any(isinstance(each, str) and found(each) is not None for each in items)


@settings(quickly, max_examples=examples(30))
@given(
    st.lists(TEXTS, min_size=20, max_size=40, unique=True),
    st.lists(
        patterns().filter(lambda each: len(each) <= LONGEST_PATTERN), min_size=10, max_size=20
    ),
)
def test_a_pattern_finds_what_it_finds_in_python(
    things: Things, texts: list[str], drawn: list[str]
) -> None:
    """Current and archived texts match, and lists with one of them; other values do not."""
    held: list[Any] = [*texts, [texts[0], 5], [], None, 5, {"t": texts[0]}]
    things.delete_many({})
    things.insert_many([{"t": each, "full": {"t": each}} for each in held])
    for pattern in drawn:
        expected = [each for each in held if in_python(pattern, each)]
        for prefix in ("", "full."):
            found = things.find(query_for(pattern, prefix)).sort("_id")
            assert [each["t"] for each in found] == expected, pattern


@pytest.mark.parametrize("pattern", ["a*a*b", "(a|b){0,10}[ab]*d", "a{200}a{200}a{200}b"])
def test_a_search_of_a_hostile_text_ends(things: Things, pattern: str) -> None:
    """One attempt has a limit of steps. Without it MongoDB searches for minutes, and looks at its
    time limit afterwards.
    """
    things.insert_many([{"_id": 1, "t": "a" * 1_000_000}, {"_id": 2, "t": "aaab" + "c" * 50_000}])
    began = perf_counter()
    assert 1 not in [each["_id"] for each in things.find(query_for(pattern))]
    assert perf_counter() - began < 10


def test_a_long_text_is_searched_to_its_end(things: Things) -> None:
    """Ordinary patterns need a few steps a character."""
    end = "8 joe@example.com"
    things.insert_many([{"_id": n, "t": "lorem ipsum " * n + end} for n in (1, 2000)])
    for pattern in ("[a-z]+@[a-z]+\\.com$", "joe|jim", "8.*joe"):
        assert [each["_id"] for each in things.find(query_for(pattern))] == [1, 2000]


def test_a_pattern_finds_its_prefix_in_an_index(things: Things) -> None:
    """Characters after `^` are bounds; MongoDB would not see them after the limit of steps."""
    things.create_index("t")
    things.insert_many([{"t": f"{each:04}"} for each in range(1000)])
    plan = things.find(query_for("^012[0-4]")).explain()
    assert plan["executionStats"]["nReturned"] == 5
    assert plan["executionStats"]["totalKeysExamined"] <= 12
