"""Hypothesis strategies for updates: operators and pipelines on few paths, so that they often
overlap.

They contain numeric names beside arrays, names with dots, and updates that MongoDB refuses: the
server decides.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.bson_values import VALUES

# Few and nested; each has several interpretations.
PATHS = st.sampled_from(
    [
        "a",
        "b",
        "a.b",
        "a.0",
        "a.1",
        "a.b.0",
        "a.0.b",
        "a.5",
        "0",
        "b.0",
        "b.1.a",
        "a.b.b",
        "b.a.0.1",
    ]
)
# Initial documents: nested objects and arrays under these names.
CONTENT: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([0, 1, "x", None]),
    lambda inside: (
        st.dictionaries(st.sampled_from(["a", "b", "0", "1", "a.b", "b.0"]), inside, max_size=3)
        | st.lists(inside, max_size=4)
    ),
    max_leaves=10,
)
BEGINNINGS = st.fixed_dictionaries({}, optional={"a": CONTENT, "b": CONTENT, "0": CONTENT})
PLAIN_VALUES = CONTENT | VALUES.filter(lambda value: "$" not in repr(value))


def _paths(values: st.SearchStrategy[Any], size: int = 2) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(PATHS, values, min_size=1, max_size=size)


OPERATORS: st.SearchStrategy[Any] = st.one_of(
    st.fixed_dictionaries({"$set": _paths(PLAIN_VALUES, 3)}),
    st.fixed_dictionaries({"$unset": _paths(st.just(1))}),
    st.fixed_dictionaries({"$inc": _paths(st.sampled_from([1, -1, 0.5]))}),
    st.fixed_dictionaries({"$push": _paths(CONTENT)}),
    st.fixed_dictionaries(
        {
            "$push": _paths(
                st.fixed_dictionaries(
                    {"$each": st.lists(CONTENT, max_size=3), "$slice": st.integers(-2, 2)},
                    optional={"$position": st.integers(0, 2)},
                ),
                1,
            )
        }
    ),
    st.fixed_dictionaries({"$pop": _paths(st.sampled_from([1, -1]))}),
    st.fixed_dictionaries({"$pull": _paths(st.sampled_from([0, 1, "x", None]))}),
    st.fixed_dictionaries({"$rename": _paths(st.sampled_from(["a", "b", "c", "a.c", "0"]), 1)}),
    st.fixed_dictionaries({"$set": _paths(CONTENT), "$unset": _paths(st.just(1))}),
)


def _set_field(name: str, value: Any) -> list[dict[str, Any]]:
    """Return a stage that sets a field of exactly this name, dots included."""
    field = {
        "field": {"$literal": name},
        "input": "$$ROOT",
        "value": value if value == "$$REMOVE" else {"$literal": value},
    }
    return [{"$replaceWith": {"$setField": field}}]


PIPELINES: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        _set_field,
        st.sampled_from(["a.b", "a.0", "0", "b.0", "a"]),
        CONTENT | st.just("$$REMOVE"),
    ),
    _paths(CONTENT.map(lambda value: {"$literal": value})).map(lambda fields: [{"$set": fields}]),
    st.lists(PATHS, min_size=1, max_size=2).map(lambda paths: [{"$unset": paths}]),
    # Another order of fields, and nested fields moved to the top.
    st.just([{"$replaceWith": {"b": "$b", "a": "$a", "_id": "$_id"}}]),
    st.just([{"$set": {"a": "$b", "b": "$a"}}]),
    # Arrays shortened, lengthened, and changed in the middle.
    st.sampled_from(
        [
            [{"$set": {"a": {"$cond": [{"$isArray": "$a"}, stage, "$a"]}}}]
            for stage in (
                {"$slice": ["$a", 1]},
                {"$concatArrays": ["$a", [9]]},
                {"$reverseArray": "$a"},
                {"$concatArrays": [{"$slice": ["$a", 1]}, [{"b": 1}]]},
            )
        ]
    ),
)

UPDATES = OPERATORS | PIPELINES
# The initial document and the updates that are applied to it.
LIVES = st.tuples(BEGINNINGS, st.lists(UPDATES, min_size=1, max_size=6))
