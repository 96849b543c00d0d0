"""gql.lookups: what is answered without a task is what is answered with one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gql.admission import Admission
from gql.context import Context
from gql.http_requests import GraphQLRequest
from gql.lookups import Lookup
from gql.schema import build_schema
from model.entities import Model
from resolvers.rows import ALL_ROWS
from resolvers.shown import Asked
from streams.errors import DatabaseError
from tests.support.eventually import eventually
from tests.support.fuzzing import examples
from tests.support.reads import Memory, MemoryCurrent
from tests.unit.gql.test_direct import by_graphql_core, by_the_schema, told
from tests.unit.gql.test_plans import GOOD, memories

ONE = """query One($id: ID!, $more: Boolean! = false) {
  found: product(id: $id) { __typename id version name stock tags addedAt
    sold @include(if: $more) }
}"""


async def looked_up(schema: Any, context: Context, variables: dict[str, Any]) -> Any:
    """The result, and whether it took a task; None where it was not begun."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def answered(lookup: Lookup, data: dict[str, Any] | None) -> None:
        future.set_result((lookup, data))

    if not schema.lookups.begin(GraphQLRequest(ONE, variables), context, answered):
        return None
    lookup, data = await future
    return (data, None) if data is not None else await schema.go_on(lookup)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    make=memories(),
    asked=st.lists(
        st.fixed_dictionaries(
            {"id": st.sampled_from(["p1", "p2", "p3", "none", "é", 7])},
            optional={"more": st.booleans()},
        ),
        min_size=2,
        max_size=6,
    ),
    knowing=st.booleans(),
)
def test_a_lookup_is_answered_as_by_an_executor(
    schema: Any, make: Callable[[], Memory], asked: list[dict[str, Any]], knowing: bool
) -> None:
    """Documents that do not fit, or are not there; numbers that are known, or not. Nothing is left
    behind."""
    for more in (False, True):
        for _ in range(2):
            by_the_schema(schema, good(), ONE, {"id": "p1", "more": more})
    begun = 0
    for variables in asked:
        expected, memory = by_graphql_core(schema, make(), ONE, variables), make()
        memory.knowing = knowing
        found = asyncio.run(looked_up(schema, memory.context(), variables))
        if found is not None:
            begun += 1
            data, errors = found if isinstance(found, tuple) else (found.data, found.errors)
            assert told(data, errors) == expected
            assert [name for name, *_ in memory.calls].count("by_ids") == 1
    # A variable that was left out takes a closer look, and text that may be no UTF-8.
    assert begun == sum("more" in each and each["id"] != "é" for each in asked)
    assert schema.admission.executing == 0


def good() -> Memory:
    memory = Memory(knowing=True)
    memory.write("products", {"_id": "p1", **GOOD})
    return memory


@pytest.fixture
async def warm(model: Model) -> tuple[Any, Memory]:
    """A schema that knows the query, and what it reads."""
    schema, memory = build_schema(model, admission=Admission(limit_s=0.2, per_principal=1)), good()
    for _ in range(2):
        await schema.execute(ONE, {"id": "p1", "more": False}, memory.context())
    return schema, memory


P1 = {"id": "p1", "more": False}


async def test_what_fits_takes_no_task(warm: tuple[Any, Memory]) -> None:
    schema, memory = warm
    before = dict(schema.operations.begun)
    data, _ = await looked_up(schema, memory.context(), P1)
    assert data["found"]["name"] == "Lamp"
    assert schema.operations.begun == before | {"known": before["known"] + 1}
    data, _ = await looked_up(schema, memory.context(), {**P1, "id": "none"})
    assert data == {"found": None}


async def test_what_cannot_be_read_is_an_error_of_its_field(warm: tuple[Any, Memory]) -> None:
    schema, memory = warm
    memory.failure = DatabaseError("the primary is gone")
    memory.calls.clear()
    result = await looked_up(schema, memory.context(), P1)
    assert (result.data, [each.path for each in result.errors]) == ({"found": None}, [["found"]])
    assert schema.admission.executing == 0
    assert len(memory.calls) == 1


class Unread(MemoryCurrent):
    """Of which nothing ever comes."""

    readings: list[asyncio.Future[Any]]

    def ask_by_ids(self, *_: Any) -> Asked:
        self.readings.append(asyncio.get_running_loop().create_future())
        return Asked(self.readings[-1], ALL_ROWS)


def unread(memory: Memory, name: str | None = None) -> tuple[Context, list[asyncio.Future[Any]]]:
    context, current = memory.context(), Unread(memory)
    current.readings = []
    context.current, context.principal = current, name  # type: ignore[assignment]
    return context, current.readings


async def test_one_that_takes_too_long_is_ended(warm: tuple[Any, Memory]) -> None:
    schema, memory = warm
    context, readings = unread(memory)
    result = await looked_up(schema, context, P1)
    [error] = result.errors
    assert (error.extensions["code"], error.path, result.data) == ("TIMEOUT", None, None)
    assert readings[0].cancelled()
    assert schema.admission.executing == 0


async def test_one_who_is_known_has_so_many_at_once(warm: tuple[Any, Memory]) -> None:
    """Whoever executes what is one too many says so."""
    schema, memory = warm
    context, readings = unread(memory, "ann")
    first = asyncio.create_task(looked_up(schema, context, P1))
    await eventually(lambda: bool(readings))
    assert await looked_up(schema, context, P1) is None
    readings[0].set_result([None])
    assert await first == ({"found": None}, None)
    again = asyncio.create_task(looked_up(schema, context, P1))
    await eventually(lambda: len(readings) == 2)
    readings[1].set_exception(DatabaseError("the primary is gone"))
    assert (await again).errors
    assert schema.admission._of == {}


async def test_where_all_places_are_taken_it_waits_as_all_do(model: Model) -> None:
    schema, memory = build_schema(model, admission=Admission(executing=1)), good()
    for _ in range(2):
        await schema.execute(ONE, P1, memory.context())
    context, readings = unread(memory)
    first = asyncio.create_task(looked_up(schema, context, P1))
    await eventually(lambda: bool(readings))
    assert await looked_up(schema, context, P1) is None
    # One that is gone on with has kept its place.
    document = {"_id": "p1", **GOOD}
    readings[0].set_result([(document, None, context.current.seen())])
    second = asyncio.create_task(schema.execute(ONE, P1, memory.context()))
    assert (await first).data["found"]["name"] == "Lamp"
    assert (await second).data["found"]["name"] == "Lamp"
    assert schema.admission.executing == 0


async def test_a_number_is_not_of_a_version_after_what_was_read(
    warm: tuple[Any, Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was seen before the read is what its number is looked for with."""
    schema, memory = warm
    asked: list[str] = []

    class Numbered(Unread):
        def seen(self) -> Any:
            return {"products": "after"}

        def known_numbers(self, entity: Any, documents: Any, seen: str) -> Any:
            asked.append(seen)
            return [None for _ in documents]

        async def numbers(self, entity: Any, documents: Any, seen: str) -> Any:
            asked.append(seen)
            return [1 for _ in documents]

    context, current = memory.context(), Numbered(memory)
    current.readings = []
    context.current = current  # type: ignore[assignment]
    lookup = asyncio.create_task(looked_up(schema, context, P1))
    await eventually(lambda: bool(current.readings))
    read = {"_id": "p1", **GOOD}, None, {"products": "before"}
    current.readings[0].set_result([read])
    assert (await lookup).data["found"]["version"] == 1
    assert set(asked) == {"before"}


@pytest.mark.parametrize(
    "request_",
    [
        GraphQLRequest(ONE, P1, None, {"cost": True}),
        GraphQLRequest(ONE, P1, "Another"),
        GraphQLRequest(ONE, {"more": False}),
        GraphQLRequest(ONE, {**P1, "id": None}),
        GraphQLRequest("{ products { nodes { id } } }"),
        GraphQLRequest("mutation { }"),
        GraphQLRequest(None),
    ],
)
async def test_anything_else_is_left_alone(
    warm: tuple[Any, Memory], request_: GraphQLRequest
) -> None:
    schema, memory = warm
    memory.calls.clear()
    for _ in range(2):
        await schema.execute("{ products { nodes { id } } }", None, memory.context())
    memory.calls.clear()
    assert not schema.lookups.begin(request_, memory.context(), lambda *_: None)
    assert (memory.calls, schema.admission.executing) == ([], 0)
