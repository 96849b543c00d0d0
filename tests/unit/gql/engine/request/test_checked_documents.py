"""Checks of operations before and during execution: limits, cost, time."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from graphql import get_introspection_query
from strawberry.types.execution import PreExecutionError

from revstream.gql.endpoint.example_queries import examples_of
from revstream.gql.engine.execution.schema import Schema
from revstream.gql.engine.limits.concurrency import ConcurrencyLimiter
from revstream.gql.engine.limits.document_limits import Limits
from revstream.gql.schema import build_schema
from revstream.model.compiler.loader import read_model
from revstream.model.definition import Model
from revstream.resolvers.subscriptions.event_enrichment import Change
from revstream.streams.core import resume_tokens
from tests.support.eventually import eventually
from tests.support.reads import Memory, at

SHOP = read_model((Path(__file__).parents[5] / "schema.graphql").read_text(encoding="utf-8"))
READING = {"_id": "r", "sequence": 1, "value": 1.5}
ONE = '{ reading(id: "r") { value } }'


async def answer(schema: Schema, query: str, memory: Memory, **more: Any) -> Any:
    return await schema.execute(query, more, memory.context(), operation_extensions={"cost": True})


# At a fixed time, because each process of a parallel run collects the same tests.
EXAMPLES = [each.query for each in examples_of(SHOP, datetime(2024, 1, 1, tzinfo=UTC))]


@pytest.mark.parametrize("query", EXAMPLES)
async def test_the_examples_are_within_the_limits(query: str) -> None:
    """They are GraphiQL's tabs as they are opened."""
    schema = build_schema(SHOP)
    stream = await schema.stream(
        query, context_value=Memory().context(), operation_extensions={"cost": True}
    )
    async for result in stream:
        assert not isinstance(result, PreExecutionError), result.errors
        break


async def test_introspection_is_within_the_limits() -> None:
    """The query is the complete one that clients send."""
    query = get_introspection_query(
        specified_by_url=True, directive_is_repeatable=True, input_value_deprecation=True
    )
    assert (await build_schema(SHOP).execute(query)).errors is None


async def test_a_refusal_has_the_operations_cost(model: Model, memory: Memory) -> None:
    """A response has it as well, if the client requests it."""
    schema = build_schema(model, Limits(max_cost=30))
    query = "query($n: Int) { readings(first: $n) { nodes { value } } }"
    for number in (30, 31, 30):
        result = await answer(schema, query, memory, n=number)
        assert result.extensions["cost"]["cost"] == number
        assert bool(result.errors) == (number > 30)
    refused = await answer(schema, query, memory, n=31)
    assert "conditions to evaluate: 31" in refused.errors[0].message
    assert "maximum is 30;" in refused.errors[0].message
    assert refused.errors[0].extensions["code"] == "LIMIT_EXCEEDED"


async def test_a_known_document_is_checked_with_other_variables(
    model: Model, memory: Memory
) -> None:
    """Its last cost is not reused."""
    schema = build_schema(model, Limits(max_cost=30))
    query = "query($n: Int) { readings(first: $n) { nodes { value } } }"
    assert (await answer(schema, query, memory, n=1)).errors is None
    assert (await answer(schema, query, memory, n=100)).errors is not None
    assert (await answer(schema, query, memory, n=30)).errors is None


async def test_a_fragment_that_spreads_itself_is_a_client_error(
    model: Model, memory: Memory
) -> None:
    """This holds for every transport."""
    query = '{ reading(id: "r") { ...F } } fragment F on Reading { ...F }'
    schema = build_schema(model)
    stream = await schema.stream(query, context_value=memory.context())
    results = [await schema.execute(query, context_value=memory.context())]
    results += [each async for each in stream]
    for result in results:
        assert isinstance(result, PreExecutionError)
        [error] = result.errors or ()
        assert (error.extensions or {})["code"] == "BAD_USER_INPUT"


async def test_a_document_with_too_many_tokens_is_refused_over_every_transport(
    model: Model, memory: Memory
) -> None:
    """It is not parsed."""
    schema = build_schema(model, Limits(max_tokens=10))
    query = '{ reading(id: "r") { value ' + "id " * 10 + "} }"
    stream = await schema.stream(query, context_value=memory.context())
    results = [await schema.execute(query, context_value=memory.context())]
    for result in [*results, *[each async for each in stream]]:
        [error] = result.errors or ()
        assert "tokens of the document: 21, maximum is 10;" in error.message
        assert (error.extensions or {})["code"] == "LIMIT_EXCEEDED"


class Stuck(Memory):
    """Reads that never end."""

    ended = 0

    def context(self) -> Any:
        context = super().context()

        async def by_ids(*_: Any) -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                self.ended += 1

        context.services.current.by_ids = by_ids  # type: ignore[method-assign]
        return context


async def test_an_operation_that_takes_too_long_is_ended(model: Model) -> None:
    """This holds for every transport; concurrent operations continue."""
    schema, stuck = build_schema(model, limiter=ConcurrencyLimiter(limit_s=0.05)), Stuck()
    result = await schema.execute(ONE, context_value=stuck.context())
    stream = await schema.stream(ONE, context_value=stuck.context())
    for each in (result, *[each async for each in stream]):
        [error] = each.errors or ()
        assert "more than 0.05 s" in error.message
        assert (error.extensions or {})["code"] == "TIMEOUT"
    assert schema.limiter.executing == 0


async def test_a_subscription_takes_no_slot_and_has_no_time_limit(
    model: Model, memory: Memory
) -> None:
    """It runs while every slot is taken, and for longer than an operation may."""
    schema = build_schema(model, limiter=ConcurrencyLimiter(executing=1, waiting=0, limit_s=30))
    stuck = asyncio.create_task(schema.execute(ONE, context_value=Stuck().context()))
    await eventually(lambda: schema.limiter.executing == 1)
    entity = model.entity("Reading")
    change = Change(
        entity=entity, kind="CHANGE", token=resume_tokens.token_from_time(at(0)), document=READING
    )
    memory.changes.append(change)
    stream = await schema.stream(
        "subscription { readingChanges { kind } }", context_value=memory.context()
    )
    assert [each.data async for each in stream] == [{"readingChanges": {"kind": "CHANGE"}}]
    refused = await schema.execute(ONE, context_value=memory.context())
    assert (refused.errors or ())[0].extensions == {
        "code": "UNAVAILABLE",
        "retryAfterSeconds": 1,
    }
    stuck.cancel()
    await asyncio.wait([stuck])
    memory.write("readings", READING)
    served = await schema.execute(ONE, context_value=memory.context())
    assert served.data == {"reading": {"value": 1.5}}


async def test_an_authenticated_caller_has_a_limit_of_operations(model: Model) -> None:
    """All kinds of operations count; other callers are not affected."""
    schema = build_schema(model, limiter=ConcurrencyLimiter(per_principal=1))
    stuck = Stuck()

    def context_of(principal: str | None, memory: Memory) -> Any:
        context = memory.context()
        context.principal = principal
        return context

    waiting = asyncio.create_task(schema.execute(ONE, context_value=context_of("ann", stuck)))
    await eventually(lambda: schema.limiter.executing == 1)
    refused = await schema.execute(ONE, context_value=context_of("ann", Memory()))
    assert (refused.errors or ())[0].extensions["code"] == "LIMIT_EXCEEDED"  # type: ignore[index]
    stream = await schema.stream(ONE, context_value=context_of("ann", Memory()))
    [streamed] = [each async for each in stream]
    assert (streamed.errors or ())[0].extensions["code"] == "LIMIT_EXCEEDED"
    for other in ("bob", None):
        assert (await schema.execute(ONE, context_value=context_of(other, Memory()))).errors is None
    waiting.cancel()
    await asyncio.wait([waiting])
    stream = await schema.stream(ONE, context_value=context_of("ann", Memory()))
    assert [each.errors async for each in stream] == [None]
    assert (await schema.execute(ONE, context_value=context_of("ann", Memory()))).errors is None
