"""Tests of `gql.schema.roots.subscription_key`: keys of broadcast groups and cached responses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from graphql import OperationDefinitionNode, parse

from revstream.gql.engine.request.plan import Plan
from revstream.gql.schema.roots.subscription_key import group_key, response_cache_key

QUERY = """
subscription {
  productChanges(after: $after, id: $id, where: {price: {lt: $below}}) {
    product { state(version: $version) { name } } product { id @include(if: $id) }
  }
}
"""
GIVEN: dict[str, Any] = {"after": "a", "id": "1", "below": 1, "version": 1}


def keys(plan: Plan, variables: dict[str, Any]) -> tuple[Any, Any]:
    (operation,) = parse(QUERY).definitions
    assert isinstance(operation, OperationDefinitionNode)
    info: Any = SimpleNamespace(
        context=SimpleNamespace(plan=plan),
        field_nodes=operation.selection_set.selections,
        operation=operation,
        fragments={},
        variable_values=variables,
    )
    return group_key(info), response_cache_key(info)


@pytest.mark.parametrize(
    ("name", "alike"),
    [
        ("after", (True, True)),
        ("below", (False, True)),
        # It also contains the selection.
        ("id", (False, False)),
        ("version", (False, False)),
    ],
)
def test_a_variable_is_in_the_key_if_it_affects_the_response(
    name: str, alike: tuple[bool, bool]
) -> None:
    """Variables of the starting point are in neither key."""
    plan = Plan()
    first, second = keys(plan, GIVEN), keys(plan, {**GIVEN, name: "other"})
    assert (first[0] == second[0], first[1] == second[1]) == alike


def test_different_plans_have_different_keys() -> None:
    """This holds even for equal documents."""
    first, second = keys(Plan(), GIVEN), keys(Plan(), GIVEN)
    assert first[0] != second[0]
    assert first[1] != second[1]
