"""Schema execution: a context per response, finished errors, named problems."""

from __future__ import annotations

from typing import Any

import pytest
import strawberry

from revstream.gql.engine.request.context import RequestContext
from revstream.model.definition import Model
from revstream.resolvers.subscriptions.event_enrichment import Change
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import SlowConsumer
from tests.support.reads import Memory, at
from tests.unit.gql.conftest import Ask

READING = {"_id": "r", "sequence": 1, "value": 1.5}


@pytest.fixture
def context(memory: Memory) -> RequestContext:
    return memory.context()


async def test_no_data_is_shared_between_operations(
    schema: strawberry.Schema, memory: Memory, context: RequestContext
) -> None:
    """Strawberry shares one context among all operations of a WebSocket."""
    memory.write("readings", READING)
    query = '{ reading(id: "r") { value } }'
    first = await schema.execute(query, context_value=context)
    memory.write("readings", {**READING, "value": 2.5})
    second = await schema.execute(query, context_value=context)
    assert first.data == {"reading": {"value": 1.5}}
    assert second.data == {"reading": {"value": 2.5}}


async def test_no_data_is_shared_between_events(
    schema: strawberry.Schema, model: Model, memory: Memory, context: RequestContext
) -> None:
    """Each event of a subscription reads again."""
    entity = model.entity("Reading")
    for second in (0, 1):
        memory.changes.append(
            Change(
                entity=entity,
                kind="CHANGE",
                token=resume_tokens.token_from_time(at(second)),
                document=READING,
            )
        )
    memory.write("readings", READING)
    stream: Any = await schema.subscribe(
        "subscription { readingChanges { reading { state(version: 1) { document { value } } } } }",
        context_value=context,
    )
    seen = []
    async for result in stream:
        seen.append(result.data["readingChanges"]["reading"]["state"]["document"]["value"])
        memory.versions["readings"].clear()
        memory.documents["readings"].clear()
        memory.write("readings", {**READING, "value": 2.5})
    assert seen == [1.5, 2.5]


async def test_the_same_document_is_read_once_for_one_response(ask: Ask, memory: Memory) -> None:
    """Two concurrent fields share the read."""
    memory.write("readings", READING)
    result = await ask('{ a: reading(id: "r") { value } b: reading(id: "r") { value } }')
    assert result.data == {"a": {"value": 1.5}, "b": {"value": 1.5}}
    assert memory.calls == [("by_ids", "Reading", 1, frozenset({"value"}))]


async def test_unexpected_errors_are_masked_in_results(ask: Ask, memory: Memory) -> None:
    """They are masked in the result itself, whatever their origin."""
    memory.failure = RuntimeError("mongodb://user:secret@host")
    result = await ask('{ reading(id: "r") { value } }')
    assert result.errors is not None
    assert result.errors[0].formatted["extensions"]["code"] == "INTERNAL"
    assert "secret" not in str(result.errors[0].formatted)


async def test_an_error_that_ends_a_subscription_is_its_last_result(
    schema: strawberry.Schema, model: Model, memory: Memory, context: RequestContext
) -> None:
    """It has its code, and the facts with which a client resumes."""
    entity = model.entity("Reading")
    memory.changes.append(
        Change(entity=entity, kind="CHECKPOINT", token=resume_tokens.token_from_time(at(0)))
    )
    memory.failure = SlowConsumer("256 events behind")
    stream: Any = await schema.subscribe(
        "subscription { readingChanges { kind } }", context_value=context
    )
    results = [each async for each in stream]
    assert results[0].data == {"readingChanges": {"kind": "CHECKPOINT"}}
    assert results[-1].errors[0].extensions == {
        "code": "SLOW_CONSUMER",
        "resumeToken": f"{resume_tokens.token_from_time(at(0))}.tests",
    }


@pytest.mark.parametrize(
    "variables",
    [{"id": "\ud800"}, {"id": "r", "where": {"and": [{"id": {"in": ["a", "b\udfff"]}}]}}],
)
async def test_half_of_a_surrogate_pair_is_refused(ask: Ask, variables: dict[str, Any]) -> None:
    """It is valid in JSON, and can be neither stored nor found, at any depth."""
    result = await ask(
        "query($id: ID!, $where: ReadingWhere) { reading(id: $id) { id }"
        " readings(where: $where) { totalCount } }",
        **variables,
    )
    assert result.data is None
    assert result.errors is not None
    name = "id" if len(variables) == 1 else "where"
    assert result.errors[0].message.startswith(f"Variable '${name}': half of a surrogate pair")


async def test_whole_surrogate_pairs_are_text(ask: Ask) -> None:
    """Any valid Unicode is an id."""
    result = await ask("query($id: ID!) { reading(id: $id) { id } }", id="🙂")
    assert result.errors is None


async def test_the_schema_can_be_introspected_without_a_context(
    schema: strawberry.Schema,
) -> None:
    """Introspection needs no services."""
    assert schema.introspect()["__schema"]["queryType"]["name"] == "Query"
