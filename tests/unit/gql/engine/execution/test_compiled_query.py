"""Compiled queries and their arguments against graphql-core.

The documents fit the model, or do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest
import strawberry
from graphql import parse, validate
from graphql.execution.values import VariableValues, get_argument_values, get_variable_values
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from revstream.gql.engine.definitions.arguments import compile_arguments
from revstream.gql.engine.definitions.code_generator import RowGenerator
from revstream.gql.engine.execution import field_steps
from revstream.gql.engine.execution.compiled_documents import CompiledDocuments
from revstream.gql.engine.execution.compiled_query import CompiledQuery, compile_coercion
from revstream.gql.engine.execution.executor import Executor
from revstream.gql.observability import fallback_metrics
from revstream.gql.schema import build_schema
from revstream.model.definition import Model
from revstream.resolvers.errors import BadUserInput
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind
from revstream.streams.core.log_throttle import LogThrottle
from tests.support.exhaustive import examples
from tests.support.fuzzing import drawn_operation
from tests.support.reads import DEPLOYMENT, Memory, MemoryHistory, at
from tests.unit.gql.engine.request.test_plan import GOOD, SUPPLIERS, _shown, _through, memories


def by_graphql_core(schema: Any, memory: Memory, text: str, variables: dict[str, Any]) -> bytes:
    """Execute without a plan; errors are finished by the error table."""

    async def execute() -> Any:
        built: Any = Executor.build(
            schema._schema,
            parse(text),
            None,
            memory.context(),
            variables,
            middleware=[_through],
        )
        if isinstance(built, list):
            schema.finish_errors(built, "query", memory.context())
            return None, built
        result = built.execute_operation()
        result = await result if asyncio.iscoroutine(result) else result
        if result.errors:
            schema.finish_errors(result.errors, "query", memory.context())
        return result.data, result.errors

    data, errors = asyncio.run(execute())
    return response_json(data, errors)


def response_json(data: Any, errors: Any) -> bytes:
    """Return a response as JSON; root fields run concurrently, so that errors have no order."""
    formatted = sorted((_shown(each) for each in errors or ()), key=repr)
    return orjson.dumps({"data": data, "errors": formatted})


def by_the_schema(schema: Any, memory: Memory, text: str, variables: dict[str, Any]) -> bytes:
    counts = schema.operations.fallbacks.counts
    before = counts.copy()
    result = asyncio.run(schema.execute(text, variables, memory.context()))
    # Generated code raises no other exceptions than those of unusual data.
    assert not [each for each in counts - before if each[1] == "exception"]
    return response_json(result.data, result.errors)


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(data=st.data())
def test_generated_queries_have_equal_responses(schema: Any, data: st.DataObject) -> None:
    """They are new, known, and compiled; version numbers are known or not."""
    make = data.draw(memories())
    text, variables = data.draw(drawn_operation(schema._schema, "query"))
    assume(not validate(schema._schema, parse(text)))
    first = by_the_schema(schema, make(), text, variables)
    # A document that is invalid or beyond the limits is never cached.
    assume(schema._documents.known.get(text) is not None)
    expected = by_graphql_core(schema, make(), text, variables)
    assert first == expected
    for knowing in (False, False, True, True):
        memory = make()
        memory.knowing = knowing
        assert by_the_schema(schema, memory, text, variables) == expected


PAGE = """
query Page($first: Int, $name: String, $id: ID!, $more: Boolean!) {
  products(first: $first, where: {name: {eq: $name}}) {
    nodes { id version name supplier { name } tags price addedAt }
    edges @include(if: $more) { cursor node { sku dimensions { width } } }
    pageInfo { hasNextPage endCursor }
    totalCount
  }
  one: product(id: $id) { id version name supplier { id name country } }
  version: productVersion(id: $id, version: 1) { version operation document { name } }
}
"""


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    make=memories(),
    requests=st.lists(
        st.fixed_dictionaries(
            {
                "first": st.sampled_from([1, 2, 20, None]),
                "name": st.sampled_from(["Lamp", "", "é", None]),
                "id": st.sampled_from(["p1", "p2", "p3", "none", 7]),
                "more": st.booleans(),
            }
        ),
        max_size=4,
    ),
)
def test_one_query_has_equal_responses_for_all_variables(
    schema: strawberry.Schema, make: Callable[[], Memory], requests: list[dict[str, Any]]
) -> None:
    """Invalid ones are included: names beyond ASCII, numbers for ids."""
    for variables in requests:
        expected = by_graphql_core(schema, make(), PAGE, variables)
        memory = make()
        memory.knowing = True
        assert by_the_schema(schema, memory, PAGE, variables) == expected


THEN = """
query Then($token: ResumeToken!, $now: TimePoint, $first: Int) {
  past: productsAsOf(asOf: {token: $token}, first: $first) {
    edges { node { id version document { ...row } } }
  }
  states: productStates(asOf: {token: $token}, first: $first) { nodes { ...row } totalCount }
  either: productStates(asOf: $now) { nodes { id supplier { id name } } }
  one: productState(id: "p2", asOf: {token: $token}) { ...row }
  latest: productState(id: "p2") { ...row }
}
fragment row on ProductState {
  __typename id documentId version name stock addedAt
  supplier { __typename id version name country } other: supplier { documentId }
}
"""


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    make=memories(),
    requests=st.lists(
        st.tuples(st.integers(0, 12), st.booleans(), st.sampled_from([0, 1, 20])),
        min_size=2,
        max_size=4,
    ),
)
def test_states_have_equal_responses_for_all_moments(
    schema: strawberry.Schema,
    make: Callable[[], Memory],
    requests: list[tuple[int, bool, int]],
) -> None:
    """References of the past are compiled: their documents fit, do not fit, or are not there."""
    for second, past, first in requests:
        token = resume_tokens.encode(resume_tokens.token_from_time(at(second)), DEPLOYMENT)
        now = {"token": token} if past else None
        variables = {"token": token, "now": now, "first": first}
        expected = by_graphql_core(schema, make(), THEN, variables)
        assert by_the_schema(schema, make(), THEN, variables) == expected


PAST = """
query Past($id: ID!, $first: Int, $author: String, $more: Boolean!) {
  product(id: $id) {
    id
    history(first: $first) {
      nodes { id version operation at author changedFields resumeToken diff { ...change } }
      pageInfo { hasNextPage endCursor }
    }
    last: history(first: 1, where: {author: {eq: $author}}) {
      edges { cursor node { documentId until document { id name stock tags addedAt } } } totalCount
    }
    supplier @include(if: $more) { name history { nodes { version diff { ...change } } } }
  }
  products { nodes { history(first: 1) { nodes { version diff { path } } } } }
  trail: productVersions(first: $first) { nodes { documentId changedFields diff { ...change } } }
  told: productVersions(first: $first) {
    nodes { __typename n: version comment restoredFrom fromDraft gap document { __typename i: id } }
  }
}
fragment change on FieldChange { path kind before after }
"""


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    make=memories(),
    requests=st.lists(
        st.fixed_dictionaries(
            {
                "id": st.sampled_from(["p1", "p2", "none"]),
                "first": st.sampled_from([0, 1, 2, 20, None]),
                "author": st.sampled_from(["ann", None]),
                "more": st.booleans(),
            }
        ),
        min_size=2,
        max_size=5,
    ),
)
def test_histories_have_equal_responses_for_all_variables(
    schema: strawberry.Schema,
    make: Callable[[], Memory],
    requests: list[dict[str, Any]],
) -> None:
    """Histories are prefetched under several aliases and below references.

    Some versions have predecessors that were not read with them.
    """
    for variables in requests:
        expected = by_graphql_core(schema, make(), PAST, variables)
        memory = make()
        assert by_the_schema(schema, memory, PAST, variables) == expected


async def test_a_history_is_prefetched_with_its_document_and_diffs(schema: Any) -> None:
    """Valid documents need no further read."""
    memory = Memory()
    for stock in range(3):
        memory.write("products", {"_id": "p1", **GOOD, "stock": stock})
    text = '{ product(id: "p1") { history(first: 2) { nodes { diff { path after } } } } }'
    for _ in range(3):
        memory.calls.clear()
        result = await schema.execute(text, None, memory.context())
        assert result.errors is None
        assert result.data["product"]["history"]["nodes"] == [
            {"diff": [{"path": "stock", "after": 2}]},
            {"diff": [{"path": "stock", "after": 1}]},
        ]
    assert sorted(name for name, *_ in memory.calls) == ["by_ids", "pages_of"]


async def test_a_failed_prefetch_is_an_error_of_its_field_and_not_repeated(
    schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the document, its history is not read and has no error."""
    memory = Memory()
    memory.write("products", {"_id": "p1", **GOOD})
    text = "query($id: ID!) { product(id: $id) { id history { nodes { version } } } }"
    for _ in range(3):
        assert (await schema.execute(text, {"id": "p1"}, memory.context())).errors is None
    tried = 0

    async def late(*_: Any, **__: Any) -> Any:
        nonlocal tried
        tried += 1
        raise ArchiveBehind("not yet", lagSeconds=1.0)

    monkeypatch.setattr(MemoryHistory, "pages_of", late)
    result = await schema.execute(text, {"id": "p1"}, memory.context())
    assert (result.data, tried) == ({"product": None}, 1)
    assert [each.path for each in result.errors] == [["product", "history"]]
    assert isinstance(result.errors[0].original_error, ArchiveBehind)
    result = await schema.execute(text, {"id": "none"}, memory.context())
    assert (result.data, result.errors) == ({"product": None}, None)


async def test_an_invalid_page_of_history_is_an_error_of_its_field(
    schema: Any,
) -> None:
    """The error has the path with the alias."""
    memory = Memory()
    memory.write("products", {"_id": "p1", **GOOD})
    text = 'query($n: Int) { product(id: "p1") { p: history(first: $n) { nodes { version } } } }'
    for _ in range(3):
        assert (await schema.execute(text, {"n": 1}, memory.context())).errors is None
    result = await schema.execute(text, {"n": -1}, memory.context())
    [error] = result.errors
    assert isinstance(error.original_error, BadUserInput)
    assert (error.path, result.data) == (["product", "p"], {"product": None})


async def test_prefetched_data_is_not_read_again_by_the_fallback(schema: Any) -> None:
    """graphql-core reports the invalid document with the data read before."""
    memory = Memory()
    memory.knowing = True
    memory.write("products", {"_id": "p1", **GOOD})
    text = '{ product(id: "p1") { id name stock } products { nodes { name } } }'
    for _ in range(3):
        assert (await schema.execute(text, None, memory.context())).errors is None
    memory.write("products", {"_id": "p1", **GOOD, "stock": "many"})
    memory.calls.clear()
    result = await schema.execute(text, None, memory.context())
    assert [each.path for each in result.errors] == [["product", "stock"]]
    assert result.data == {"product": None, "products": {"nodes": [{"name": "Lamp"}]}}
    assert [name for name, *_ in memory.calls] == ["by_ids", "page"]


async def test_an_error_of_a_root_field_is_reported_as_by_graphql_core(schema: Any) -> None:
    """It has path and location."""
    memory = Memory()
    text = "query($first: Int) { products(first: $first) { nodes { name } } }"
    for _ in range(3):
        await schema.execute(text, {"first": 1}, memory.context())
    result = await schema.execute(text, {"first": -1}, memory.context())
    [error] = result.errors
    assert isinstance(error.original_error, BadUserInput)
    assert (error.path, result.data) == (["products"], None)


@pytest.mark.parametrize(
    ("stored", "variables", "expected"),
    [
        ({"stock": 4}, {"n": 1}, {}),
        ({"stock": "many"}, {"n": 1}, {("query", "value"): 1, ("object", "value"): 1}),
        ({"stock": 4}, {"n": -1}, {("query", "error"): 1}),
    ],
)
async def test_each_fallback_is_counted_with_its_location_and_reason(
    schema: Any,
    stored: dict[str, Any],
    variables: dict[str, Any],
    expected: dict[tuple[str, str], int],
) -> None:
    """Valid documents need none; an unusual value and a refused argument need one."""
    memory = Memory()
    memory.knowing = True
    memory.write("products", {"_id": "p1", **GOOD})
    text = 'query($n: Int) { products(first: $n) { totalCount } product(id: "p1") { id stock } }'
    for _ in range(3):
        await schema.execute(text, {"n": 1}, memory.context())
    memory.write("products", {"_id": "p1", **GOOD, **stored})
    before = schema.operations.fallbacks.counts.copy()
    await schema.execute(text, variables, memory.context())
    assert dict(schema.operations.fallbacks.counts - before) == expected


@pytest.mark.parametrize(
    ("where", "place"), [("root", "query"), ("reference", "query"), ("object", "object")]
)
async def test_an_exception_in_generated_code_is_counted_and_logged(
    schema: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    place: str,
) -> None:
    """A bug is never silent, and the response is graphql-core's."""
    memory = Memory()
    memory.knowing = True
    memory.write("suppliers", {"_id": SUPPLIERS[0], "name": "Nord", "country": None})
    memory.write("products", {"_id": "p1", **GOOD})
    text = f'{{ product(id: "p1") {{ name {where}: tags supplier {{ name }} }} }}'
    render = CompiledDocuments.render

    def fail(*_: object) -> Any:
        raise RuntimeError("a fault of the generated code")

    def compile_failing(_: Any, type_: Any, __: Any) -> Any:
        return fail if type_.name == "Product" else None

    def fail_in_reference(rendering: CompiledDocuments, *given: Any) -> Any:
        return fail() if rendering.shape.name == "Supplier" else render(rendering, *given)

    if where == "object":
        monkeypatch.setattr(field_steps, "compile_object", compile_failing)
    else:
        for _ in range(2):
            await schema.execute(text, None, memory.context())
    if where == "root":
        monkeypatch.setattr(CompiledQuery, "_data", fail)
    if where == "reference":
        monkeypatch.setattr(CompiledDocuments, "render", fail_in_reference)
    fallbacks = schema.operations.fallbacks
    monkeypatch.setattr(fallbacks, "_faults", LogThrottle(fallback_metrics.logger, "failed"))
    before = fallbacks.counts.copy()
    result = await schema.execute(text, None, memory.context())
    expected = {
        "product": {"name": "Lamp", where: GOOD["tags"], "supplier": {"name": "Nord"}},
    }
    assert (result.data, result.errors) == (expected, None)
    assert dict(fallbacks.counts - before)[place, "exception"] == 1
    [record] = [each for each in caplog.records if each.message == "failed"]
    assert record.__dict__["place"] == place
    assert "RuntimeError: a fault of the generated code" in record.__dict__["detail"]


@pytest.mark.parametrize("text", [PAST, PAGE])
async def test_a_usual_page_has_no_unusual_row(
    model: Model, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A stale name in generated code makes each row unusual, which is slow but gives the same
    response.
    """
    # Of its own: it keeps the code that is generated here.
    schema: Any = build_schema(model)
    memory = Memory()
    memory.knowing = True
    memory.write("suppliers", {"_id": SUPPLIERS[0], "name": "Nord", "country": "DE"})
    for number in range(3):
        memory.write("products", {"_id": f"p{number + 1}", **GOOD, "sold": 7})
    compile_rows = RowGenerator.compile_rows

    def fail() -> Any:
        raise AssertionError("a usual row is unusual")

    def compile_usual_rows(code: RowGenerator, parameters: str, *, unusual: str) -> Any:
        code.names["fail"] = fail
        return compile_rows(code, parameters, unusual="fail()")

    monkeypatch.setattr(RowGenerator, "compile_rows", compile_usual_rows)
    variables = {"id": "p1", "first": 2, "more": True}
    for _ in range(2):
        await schema.execute(text, variables, memory.context())
    before = schema.operations.fallbacks.counts.copy()
    result = await schema.execute(text, variables, memory.context())
    assert (result.errors, schema.operations.fallbacks.counts - before) == (None, {})


async def test_a_record_that_is_no_version_is_an_error_of_its_field(
    schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no fault of the generated code, and is not counted as one."""
    memory = Memory()
    memory.knowing = True
    memory.write("products", {"_id": "p1", **GOOD})
    text = '{ trail: productVersions { nodes { version author } } product(id: "p1") { name } }'
    for _ in range(2):
        assert (await schema.execute(text, None, memory.context())).errors is None
    # The author makes the row unusual; the record has no time.
    monkeypatch.setattr(memory, "record", lambda version: {"v": version.number, "by": 7})
    before = schema.operations.fallbacks.counts.copy()
    result = await schema.execute(text, None, memory.context())
    [error] = result.errors
    assert error.path == ["trail"]
    assert result.data is None
    assert dict(schema.operations.fallbacks.counts - before) == {("query", "value"): 1}


ARGUMENTS = """
query($first: Int, $name: String, $names: [String!], $where: ProductWhere, $price: Decimal) {
  a: products(first: $first, where: {name: {eq: $name, in: $names}, price: {lt: $price}}) {
    totalCount
  }
  b: products(where: {or: [{name: {eq: $name}}, {stock: {gt: 3}}], not: null}) { totalCount }
  c: products(where: $where, orderBy: [{name: ASC}, {sku: DESC}], first: 3) { totalCount }
  d: products(where: {and: {listed: {eq: true}}}, orderBy: {name: ASC}) { totalCount }
  e: products(where: {tags: {has: $name}, colour: {eq: RED}}, last: $first) { totalCount }
}
"""


@settings(max_examples=examples(150), deadline=None)
@given(
    variables=st.fixed_dictionaries(
        {},
        optional={
            "first": st.none() | st.integers(-5, 5),
            "name": st.none() | st.text(max_size=3),
            "names": st.none() | st.lists(st.text(max_size=3), max_size=2),
            "where": st.sampled_from([None, {}, {"name": {"eq": "x"}}, {"or": [{}]}]),
            "price": st.sampled_from([None, "1.50"]),
        },
    )
)
def test_arguments_are_coerced_as_by_graphql_core(schema: Any, variables: dict[str, Any]) -> None:
    """Arguments are literals, variables, both together, or missing."""
    document: Any = parse(ARGUMENTS)
    assert not validate(schema._schema, document)
    [operation] = document.definitions
    coerced = get_variable_values(schema._schema, operation.variable_definitions, variables)
    assume(isinstance(coerced, VariableValues))
    for node in operation.selection_set.selections:
        field = schema._schema.query_type.fields[node.name.value]
        strawberry_field = field.extensions["strawberry-definition"]
        names = {each.graphql_name: each.python_name for each in strawberry_field.arguments}
        expected = get_argument_values(field, node, coerced)
        found = compile_arguments(field, node, strawberry_field)(coerced.coerced)
        assert found == {names[name]: value for name, value in expected.items()}


@pytest.mark.parametrize("variables", [{"id": "p1"}, {"id": "p1", "more": 1}, {}, {"id": 7}])
async def test_variables_of_other_types_are_coerced_by_graphql_core(
    schema: Any, variables: dict[str, Any]
) -> None:
    """The response is equal."""
    memory = Memory()
    memory.write("products", {"_id": "p1", **GOOD})
    text = "query($id: ID!) { product(id: $id) { id } }"
    expected = await asyncio.to_thread(by_graphql_core, schema, memory, text, variables)
    for _ in range(4):
        found = await schema.execute(text, variables, memory.context())
        assert response_json(found.data, found.errors) == expected


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just([])
MOMENTS = st.dictionaries(st.sampled_from(["token", "time", "x"]), VALUES, max_size=2)


@settings(max_examples=examples(300), deadline=None)
@given(
    variables=st.dictionaries(
        st.sampled_from(["id", "name", "first", "flag", "at"]), VALUES | MOMENTS
    )
)
def test_fast_coercion_equals_graphql_cores_or_is_none(
    schema: Any, variables: dict[str, Any]
) -> None:
    """This includes ids sent as numbers, and time points."""
    declared = "$id: ID!, $name: String, $first: Int, $flag: Boolean, $at: TimePoint!"
    document: Any = parse(f"query({declared}) {{ __typename }}")
    [operation] = document.definitions
    found = compile_coercion(operation)(variables)
    coerced = get_variable_values(schema._schema, operation.variable_definitions, variables)
    if found is not None:
        assert isinstance(coerced, VariableValues)
        assert found == coerced.coerced
    full = {"id": 7, "name": "x", "first": 1, "flag": True, "at": {"token": "82.here"}}
    expected = get_variable_values(schema._schema, operation.variable_definitions, full)
    assert isinstance(expected, VariableValues)
    assert compile_coercion(operation)(full) == expected.coerced == {**full, "id": "7"}
