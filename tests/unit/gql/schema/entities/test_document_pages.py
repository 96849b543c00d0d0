"""Tests of `gql.schema.entities.document_pages`: the cache of page queries."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from revstream.gql.engine.request import context as context_module
from revstream.gql.schema import build_schema
from revstream.model.definition import Model
from revstream.resolvers.access.permissions import Scope
from tests.support.reads import Memory
from tests.unit.gql.engine.request.test_plan import GOOD

PAGE = """query($below: Int, $first: Int, $after: String, $order: [ProductOrder!]) {
  products(where: {stock: {lt: $below}}, first: $first, after: $after, orderBy: $order) {
    nodes { id stock } pageInfo { endCursor }
  }
}"""


@pytest.fixture
def memory() -> Memory:
    memory = Memory()
    for number in range(4):
        memory.write("products", {"_id": f"p{number}", **GOOD, "stock": number})
    return memory


async def test_equal_arguments_are_parsed_once(model: Model, memory: Memory) -> None:
    """Other arguments and other callers are parsed again; each query reads current documents."""
    schema = build_schema(model)

    async def execute_page(context: Any, **variables: Any) -> list[int]:
        result = await schema.execute(PAGE, variables, context)
        assert result.errors is None
        assert result.data is not None
        return [each["stock"] for each in result.data["products"]["nodes"]]

    given: Any = {"below": 3, "first": 2, "after": None, "order": None}
    # graphql-core executes it until it is compiled.
    for _ in range(2):
        assert await execute_page(memory.context(), **given) == [0, 1]
    with patch.object(context_module, "parse_where", wraps=context_module.parse_where) as parse:
        for _ in range(3):
            assert await execute_page(memory.context(), **given) == [0, 1]
        assert parse.call_count == 1
        assert await execute_page(memory.context(), **{**given, "below": 1}) == [0]
        assert await execute_page(memory.context(), **{**given, "first": 3}) == [0, 1, 2]
        descending = {**given, "order": [{"stock": "DESC"}]}
        assert await execute_page(memory.context(), **descending) == [2, 1]
        assert parse.call_count == 4

        another = memory.context()
        another.scope = Scope(model)
        assert await execute_page(another, **given) == [0, 1]
        assert await execute_page(another, **given) == [0, 1]
        assert parse.call_count == 5

        memory.write("products", None, id_="p0")
        assert await execute_page(memory.context(), **given) == [1, 2]
        assert parse.call_count == 5


async def test_arguments_without_a_json_form_are_parsed_each_time(
    model: Model, memory: Memory
) -> None:
    """A number beyond JSON's range is refused each time."""
    schema = build_schema(model)
    text = "query($sold: Long) { products(where: {sold: {lt: $sold}}) { nodes { id } } }"
    for _ in range(3):
        result = await schema.execute(text, {"sold": 2**70}, memory.context())
        assert result.errors is not None
    for sold, found in ((2**62, 4), (2**62, 4), (0, 0)):
        result = await schema.execute(text, {"sold": sold}, memory.context())
        assert result.data is not None
        assert len(result.data["products"]["nodes"]) == found
