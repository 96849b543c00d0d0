"""Merge patches as applied by Python, and as expressions for MongoDB."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from revstream.resolvers.mutations.merge_patch import (
    REMOVED,
    Merge,
    apply_merge,
    field_expression,
    merge_from_paths,
)

# MongoDB's own names, and characters that would end a path or a name elsewhere.
ODD = ("$a", "$literal", "a.b", "", "é", "0", "a b", "$$ROOT", "k", "__proto__")


@pytest.mark.parametrize(
    ("merge", "target", "expected"),
    [
        (Merge(), {"a": 1}, {"a": 1}),
        (Merge({"a": 2}), {"a": 1, "b": 1}, {"a": 2, "b": 1}),
        (Merge({"a": REMOVED}), {"a": 1, "b": 1}, {"b": 1}),
        (Merge({"a": REMOVED}), {"b": 1}, {"b": 1}),
        (Merge({"a": None}), {"a": 1}, {"a": None}),
        (Merge({"a": [1, {"b": None}]}), {"a": [0]}, {"a": [1, {"b": None}]}),
        (Merge({"a": Merge({"b": 2})}), {"a": {"b": 1, "c": 1}}, {"a": {"b": 2, "c": 1}}),
        (Merge({"a": Merge({"b": REMOVED})}), {"a": {"b": 1}}, {"a": {}}),
        (Merge({"a": {"b": 2}}), {"a": {"c": 1}}, {"a": {"b": 2}}),
    ],
)
def test_a_merge_changes_only_the_fields_that_it_names(
    merge: Merge, target: dict[str, Any], expected: dict[str, Any]
) -> None:
    """A field is removed, set, or merged below; a plain object is a value like any other."""
    before = copy.deepcopy(target)
    assert apply_merge(merge, target) == expected
    assert target == before


@pytest.mark.parametrize("target", [None, 5, "text", [], [{"b": 1}], True])
def test_a_target_that_is_no_object_is_replaced_by_an_empty_one(target: Any) -> None:
    """RFC 7396 requires it, at the top level and below."""
    merge = Merge({"b": 1, "c": REMOVED, "d": Merge({"e": REMOVED})})
    assert apply_merge(merge, target) == {"b": 1, "d": {}}
    assert apply_merge(Merge({"a": merge}), {"a": target}) == {"a": {"b": 1, "d": {}}}


@pytest.mark.parametrize("name", ODD)
def test_no_name_or_value_of_a_patch_can_be_read_as_an_operator(name: str) -> None:
    """They are only literals in the expression."""
    assert set(_computed(_odd(name))) == set(_computed(_odd("plain")))


def test_more_values_are_expressions_over_the_object_before() -> None:
    """They are added to the merged fields and take precedence."""
    merge = Merge({"a": 1})
    expression = merge.expression(more={"n": {"$add": [field_expression("$$old", "n"), 1]}})
    parts = expression["$let"]["in"]["$mergeObjects"]
    assert expression["$let"]["vars"] == {"old": "$$ROOT"}
    assert parts[0] == "$$old"
    assert parts[1] == {"$literal": {"a": 1}}
    assert parts[-1] == {
        "$arrayToObject": [
            [{"k": {"$literal": "n"}, "v": {"$add": [field_expression("$$old", "n"), 1]}}],
        ]
    }


def test_a_merge_of_paths_joins_those_with_a_common_start() -> None:
    """Values of one object are in one merge."""
    merge = merge_from_paths(
        [(("a",), 1), (("b", "c"), 2), (("b", "d", "e"), REMOVED), (("x.y", "$z"), {"q": 1})]
    )
    assert merge == Merge(
        {
            "a": 1,
            "b": Merge({"c": 2, "d": Merge({"e": REMOVED})}),
            "x.y": Merge({"$z": {"q": 1}}),
        }
    )
    assert merge_from_paths([]) == Merge()


def _odd(name: str) -> Any:
    value = {name: f"${name}", "x": ["$$ROOT", f"$${name}"]}
    merge = Merge({name: value, f"{name}1": REMOVED, f"{name}2": Merge({name: value, "x": name})})
    return merge.expression(more={"version": {"$add": ["$$old", 1]}})


def _computed(expression: Any) -> Iterator[str]:
    """Yield all texts of an expression that MongoDB evaluates."""
    if isinstance(expression, Mapping):
        for name, value in expression.items():
            yield name
            if name != "$literal":
                yield from _computed(value)
    elif isinstance(expression, list):
        for each in expression:
            yield from _computed(each)
    elif isinstance(expression, str):
        yield expression
