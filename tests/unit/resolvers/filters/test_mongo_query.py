"""Forms of MongoDB queries: simple where possible, so that indexes serve them."""

from __future__ import annotations

from typing import Any

import pytest

from revstream.resolvers.filters.accent_folding import MARK
from revstream.resolvers.filters.expression import (
    EVERYTHING,
    NOTHING,
    AnyOf,
    Compare,
    Comparison,
    Condition,
    In,
    IsList,
    Not,
    Size,
    Some,
    Text,
    all_of,
)
from revstream.resolvers.filters.mongo_query import regular_expression, to_query

EQ, LT, LTE, GT, GTE = Comparison
A = Compare("a", EQ, 1)
B = Compare("b", GT, 2)


@pytest.mark.parametrize(
    ("condition", "query"),
    [
        (EVERYTHING, {}),
        (NOTHING, {"_id": {"$in": []}}),
        (A, {"a": {"$eq": 1}}),
        (Not(A), {"a": {"$ne": 1}}),
        (Not(B), {"b": {"$not": {"$gt": 2}}}),
        (In("a", (1, 2)), {"a": {"$in": [1, 2]}}),
        (Not(In("a", (1, 2))), {"a": {"$nin": [1, 2]}}),
        (Text("a", "x.y", True), {"a": {"$regex": "^x\\.y"}}),
        (Not(Text("a", "x", False)), {"a": {"$not": {"$regex": "x"}}}),
        (Size("a", 0), {"a": {"$size": 0}}),
        (IsList("a"), {"a": {"$type": "array"}}),
        (Some("a", B), {"a": {"$elemMatch": {"b": {"$gt": 2}}}}),
        (Some("a", EVERYTHING), {"a": {"$elemMatch": {}}}),
        (Not(Some("a", Not(B))), {"a": {"$not": {"$elemMatch": {"b": {"$not": {"$gt": 2}}}}}}),
        (all_of([A, B]), {"a": {"$eq": 1}, "b": {"$gt": 2}}),
        (all_of([B, Compare("b", LT, 5)]), {"b": {"$gt": 2, "$lt": 5}}),
        (all_of([IsList("a"), Not(Size("a", 0))]), {"a": {"$type": "array", "$not": {"$size": 0}}}),
        (
            all_of([B, Compare("b", GT, 5), A]),
            {"$and": [{"b": {"$gt": 2}}, {"a": {"$eq": 1}}, {"b": {"$gt": 5}}]},
        ),
        (
            all_of([AnyOf((A, B)), AnyOf((B, A))]),
            {
                "$and": [
                    {"$or": [{"a": {"$eq": 1}}, {"b": {"$gt": 2}}]},
                    {"$or": [{"b": {"$gt": 2}}, {"a": {"$eq": 1}}]},
                ]
            },
        ),
        (Not(AnyOf((A, B))), {"$nor": [{"a": {"$eq": 1}}, {"b": {"$gt": 2}}]}),
        (Not(all_of([A, B])), {"$nor": [{"a": {"$eq": 1}, "b": {"$gt": 2}}]}),
        (Not(Not(A)), {"$nor": [{"a": {"$ne": 1}}]}),
        (Not(NOTHING), {"$nor": [{"_id": {"$in": []}}]}),
    ],
)
def test_a_condition_becomes_the_simplest_query(
    condition: Condition, query: dict[str, Any]
) -> None:
    """Conditions on several fields share one document; only conflicting ones need `$and`."""
    assert to_query(condition) == query


def test_a_prefix_is_put_before_the_paths_of_documents() -> None:
    """Paths inside a list's documents begin there, without the prefix."""
    condition = all_of([A, Not(In("b", (1,))), AnyOf((Some("c", A), Not(B)))])
    assert to_query(condition, prefix="full.") == {
        "full.a": {"$eq": 1},
        "full.b": {"$nin": [1]},
        "$or": [
            {"full.c": {"$elemMatch": {"a": {"$eq": 1}}}},
            {"full.b": {"$not": {"$gt": 2}}},
        ],
    }


def test_a_long_list_to_exclude_is_no_alternative() -> None:
    """The planner takes seconds for the union of its bounds; `$nor` has none."""
    values = tuple(range(2001))
    either = AnyOf((Not(In("a", values)), Compare("b", Comparison.EQ, 1)))
    listed = {"a": {"$in": [*values]}}
    assert to_query(either) == {"$nor": [{**listed, "b": {"$ne": 1}}]}
    few = AnyOf((Not(In("a", (1,))), Compare("b", Comparison.EQ, 1)))
    assert to_query(few) == {"$or": [{"a": {"$nin": [1]}}, {"b": {"$eq": 1}}]}


def test_text_never_becomes_an_expression() -> None:
    """Special characters are escaped, and characters that MongoDB rejects are spelled out."""
    assert regular_expression(Text("t", "^(a|b)*[c].{2}+?\\$")) == (
        r"\^\(a\|b\)\*\[c\]\.\{2\}\+\?\\\$"
    )
    assert regular_expression(Text("t", "a\0b", at_start=True)) == r"^a\x00b"
    assert regular_expression(Text("t", "\né日🙂 #-/")) == "\né日🙂 #-/"


def test_text_without_regard_to_case_lists_the_variants() -> None:
    """The server needs no table of characters of its own."""
    whole = Text("t", "Kn.é日", at_start=True, at_end=True, ignore_case=True)
    assert regular_expression(whole) == "^[kK\u212a][nN]\\.[éÉ]日\\z"


def test_text_without_regard_to_accents_allows_marks_after_each_letter() -> None:
    """Composed letters are in the class, and decomposed ones have marks behind them."""
    whole = Text("t", "Q\u0301.日", at_start=True, at_end=True, ignore_accents=True)
    marks = f"{MARK}*+"
    assert regular_expression(whole) == f"^{marks}[Qq]{marks}\\.{marks}日{marks}\\z"
    anywhere = Text("t", "q日", ignore_accents=True)
    assert regular_expression(anywhere) == f"[Qq]{marks}日"
