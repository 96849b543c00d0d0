"""gql.openings: a subscription of a plan that is known begins as any other."""

from __future__ import annotations

from typing import Any

import pytest
import strawberry

from gql.context import Context
from model.entities import Model
from resolvers.completion import Change
from streams import tokens
from tests.support.reads import Memory, at

CHANGES = """
subscription ($after: ResumeToken, $id: ID, $sku: String, $operations: [Operation!], $all: Boolean!)
{
  productChanges(after: $after, id: $id, where: {sku: {eq: $sku}}, operations: $operations) {
    kind
    resumeToken @include(if: $all)
    product { id sku }
  }
}
"""
TOKEN = tokens.encode(tokens.moment(at(0)), "test")


@pytest.fixture
def context(model: Model, memory: Memory) -> Context:
    for second in (1, 2):
        document = {"_id": str(second), "sku": "A-1", "name": "Chair"}
        memory.changes.append(
            Change(
                entity=model.entity("Product"),
                kind="CHANGE",
                token=tokens.moment(at(second)),
                document_id=document["_id"],
                document=document,
            )
        )
    return memory.context()


@pytest.mark.parametrize("name", [None, "Other"])
@pytest.mark.parametrize(
    "variables",
    [
        None,
        {},
        {"all": True},
        {"all": False, "sku": "A-1"},
        {"all": True, "sku": "A-1", "after": TOKEN, "id": "1", "operations": ["INSERT"]},
        {"all": True, "after": ""},
        {"all": True, "after": "no token"},
        {"all": True, "after": 1},
        {"all": None},
        {"all": "true"},
        {"all": True, "sku": "\ud800"},
        {"all": True, "sku": None, "unknown": 1},
        {"all": True, "operations": ["NONE"]},
    ],
)
async def test_it_is_told_the_same_whoever_begins_it(
    schema: strawberry.Schema, context: Context, variables: dict[str, Any] | None, name: str | None
) -> None:
    """By Strawberry, by graphql-core for the first of its plan, or by what that has left."""
    usual = await _told(strawberry.Schema.stream, schema, context, variables, name)
    # Compiled for both of its plans.
    for all_ in (True, False):
        await _told(type(schema).stream, schema, context, {"all": all_, "sku": "A-1"}, None)
    for _ in range(2):
        assert await _told(type(schema).stream, schema, context, variables, name) == usual


async def _told(
    stream: Any,
    schema: strawberry.Schema,
    context: Context,
    variables: dict[str, Any] | None,
    name: str | None,
) -> list[Any]:
    results = await stream(
        schema, CHANGES, variable_values=variables, context_value=context, operation_name=name
    )
    return [
        (type(each).__name__, each.data, [error.formatted for error in each.errors or ()])
        async for each in results
    ]
