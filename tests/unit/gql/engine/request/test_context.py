"""Request context: state of a request, and state of one response."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

import pytest

from revstream.gql.engine.request import context as context_module
from revstream.gql.engine.request.plan import Plan
from revstream.gql.schema import build_schema
from revstream.model.compiler.loader import read_model
from revstream.streams.core.errors import ResumeTokenInvalid
from tests.support.reads import DEPLOYMENT, Memory
from tests.unit.gql.conftest import SHOP


def test_a_fresh_context_has_the_services_and_no_data(memory: Memory) -> None:
    """It has no problems of another response either."""
    context = memory.context()
    context.principal = "ann"
    fresh = context.fresh(Plan())
    assert fresh.services is context.services
    assert fresh.principal == "ann"
    assert fresh.loads is not context.loads
    assert fresh.problems is not context.problems


def test_tokens_have_the_deployments_tag_only_in_the_api(memory: Memory) -> None:
    """A token of another deployment is refused."""
    context = memory.context()
    token = "66322EC000000001~"
    assert context.token_out(token) == f"{token}.{DEPLOYMENT}"
    assert context.token_in(context.token_out(token)) == token
    with pytest.raises(ResumeTokenInvalid):
        context.token_in(f"{token}.elsewhere")


async def test_a_filter_is_parsed_once_for_all_its_uses(memory: Memory) -> None:
    """A variable may be used at fifty places of one operation."""
    names = [f"a{number}" for number in range(9)]
    places = " ".join(f"{each}: products(where: $w, first: 1) {{ totalCount }}" for each in names)
    text = f"query($w: ProductWhere) {{ {places} }}"
    where = {"or": [{"stock": {"eq": number}} for number in range(9)]}
    schema = build_schema(read_model(SHOP))
    with patch.object(context_module, "parse_where", wraps=context_module.parse_where) as parse:
        result = await schema.execute(text, {"w": where}, memory.context())
        assert result.data == {each: {"totalCount": 0} for each in names}
        assert parse.call_count == 1


async def test_large_filters_yield_to_other_tasks(memory: Memory) -> None:
    """One is parsed per loop iteration, however many an operation has."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    where = {"or": [{"stock": {"eq": number}} for number in range(60)]}
    names = [f"a{number}" for number in range(20)]
    places = " ".join(
        f"{each}: products(where: {{and: [$w]}}, first: 1) {{ totalCount }}" for each in names
    )
    text = f"query($w: ProductWhere!) {{ {places} }}"
    schema, parsed_at = build_schema(read_model(SHOP)), []
    parse_where = context_module.parse_where

    def parse(*arguments: Any) -> Any:
        parsed_at.append(turns)
        return parse_where(*arguments)

    others = asyncio.create_task(count())
    with patch.object(context_module, "parse_where", side_effect=parse):
        result = await schema.execute(text, {"w": where}, memory.context())
    others.cancel()
    assert result.data == {each: {"totalCount": 0} for each in names}
    assert len(set(parsed_at)) == len(parsed_at) == len(names)
