"""Query plans: responses equal graphql-core's byte for byte, with errors and paths.

The documents fit the model, or do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
import strawberry
from bson import Decimal128, ObjectId
from graphql import DocumentNode, GraphQLError, parse, validate
from graphql.execution.collect_fields import FieldDetails
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from revstream.gql.engine.definitions.object_type import build_object_types
from revstream.gql.engine.definitions.value_tests import FALLBACK
from revstream.gql.engine.execution.compiled_object import compile_object
from revstream.gql.engine.execution.executor import Executor
from revstream.gql.engine.request.plan import Plans
from revstream.gql.engine.request.source import CurrentDocument
from revstream.model.definition import Model
from tests.support.exhaustive import examples
from tests.support.fuzzing import drawn_operation
from tests.support.reads import Memory

SUPPLIERS = [ObjectId(f"{n:024x}") for n in range(3)]
GOOD: dict[str, Any] = {
    "sku": "a",
    "name": "Lamp",
    "price": Decimal128("1.50"),
    "stock": 3,
    "sold": 2**60,
    "rating": 1.5,
    "listed": True,
    "colour": "RED",
    "tags": ["x", "y"],
    "sizes": [1, None, 3],
    "colours": ["RED", "GREEN"],
    "dimensions": {"width": 1.0, "height": 2, "unit": {"name": "cm", "f": 0.1}},
    "packages": [{"weight": 1, "inner": [{"weight": 2, "dimensions": None}]}, {"weight": 3}],
    "origin": {"country": "DE", "cityId": 1},
    "supplierId": SUPPLIERS[0],
    "makerId": SUPPLIERS[1],
    "attributes": {"a": [1, {"b": None}]},
    "added_at": datetime(2024, 5, 1, tzinfo=UTC),
}
BAD: list[Any] = [None, "cheap", 7, 2**40, 1.5, True, [], [None], ["x", 7], {}, {"width": "w"}]


@st.composite
def memories(draw: st.DrawFn) -> Callable[[], Memory]:
    """Draw three products with up to two unusual fields each.

    The last one is deleted and inserted again.
    """
    documents: list[dict[str, Any]] = []
    for number in range(3):
        changed = draw(
            st.dictionaries(st.sampled_from(sorted(GOOD)), st.sampled_from(BAD), max_size=2)
        )
        documents.append({"_id": f"p{number + 1}", **GOOD, **changed})
    named = draw(st.lists(st.sampled_from(["Nord", None, 7]), min_size=2, max_size=2))

    def make() -> Memory:
        memory = Memory()
        for id_, name in zip(SUPPLIERS, named, strict=False):
            memory.write("suppliers", {"_id": id_, "name": name, "country": "DE"})
        memory.write("cities", {"_id": 1, "name": "Bonn"})
        for each in documents:
            memory.write("products", each)
        memory.write("products", None, id_="p3")
        for each in documents:
            memory.write("products", {**each, "stock": 4})
        return memory

    return make


def _through(next_: Callable[..., Any], root: Any, info: Any, **given: Any) -> Any:
    """Call the next resolver: a schema with a middleware is executed by graphql-core alone."""
    return next_(root, info, **given)


def answer(
    schema: strawberry.Schema,
    memory: Memory,
    document: DocumentNode,
    variables: dict[str, Any],
    plans: Plans | None = None,
) -> bytes:
    """Execute with plans, or without any by graphql-core."""

    async def execute() -> Any:
        context = replace(memory.context(), plans=plans)
        built: Any = Executor.build(
            schema._schema,
            document,
            None,
            context,
            variables,
            middleware=None if plans else [_through],
        )
        if isinstance(built, list):
            return None, built
        result = built.execute_operation()
        result = await result if asyncio.iscoroutine(result) else result
        return result.data, result.errors

    data, errors = asyncio.run(execute())
    return orjson.dumps({"data": data, "errors": [_shown(each) for each in errors or ()]})


def _shown(error: GraphQLError) -> Any:
    return error.formatted, type(error.original_error).__name__


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(data=st.data())
def test_generated_operations_have_equal_responses(
    schema: strawberry.Schema, data: st.DataObject
) -> None:
    """They are executed for the first time, and with the stored plan."""
    make = data.draw(memories())
    text, variables = data.draw(drawn_operation(schema._schema, "query"))
    document = parse(text)
    assume(not validate(schema._schema, document))
    plans = Plans(document)
    expected = answer(schema, make(), document, variables)
    assert answer(schema, make(), document, variables, plans) == expected
    assert answer(schema, make(), document, variables, plans) == expected


PAGE = """
query Page($short: Boolean!, $names: Boolean = true, $first: Int) {
  products(first: $first) {
    __typename
    totalCount
    nodes { ...Shown id @skip(if: $short) version }
    edges { cursor node { ...Shown again: name @include(if: $names) } }
    pageInfo { hasNextPage }
  }
  none: product(id: "none") { id }
  node(nodeId: "nonsense") { nodeId }
}
fragment Shown on Product {
  sku name @include(if: $names) price stock sold rating listed colour tags sizes colours
  dimensions { width height @skip(if: $short) unit { name factor } }
  packages { weight dimensions { width } inner { weight inner { weight } } }
  origin { country city { id name } }
  supplier { id name country products(first: 1) { nodes { id } } }
  maker { ...Named }
  history(first: 2) { nodes { version operation at changedFields document { ...Past } } }
  attributes addedAt
}
fragment Named on SupplierState { name }
fragment Past on ProductState { sku supplier { ...Named } packages { weight } }
"""


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(make=memories(), flags=st.lists(st.tuples(st.booleans(), st.booleans()), max_size=4))
def test_one_document_has_equal_responses_under_all_of_its_flags(
    schema: strawberry.Schema, make: Callable[[], Memory], flags: list[tuple[bool, bool]]
) -> None:
    """Earlier flags do not matter: a plan is for one choice of them."""
    document = parse(PAGE)
    plans = Plans(document)
    for short, names in flags:
        variables = {"short": short, "names": names, "first": 2}
        expected = answer(schema, make(), document, variables)
        assert answer(schema, make(), document, variables, plans) == expected


def test_a_plan_is_stored_per_operation_and_choice_of_flags() -> None:
    """Their number is limited; other variables make no difference."""
    document = parse(PAGE)
    plans = Plans(document, most=2)
    plan = plans.plan("Page", {"short": True, "names": True, "first": 1})
    assert plans.plan("Page", {"short": True, "names": True, "first": 2}) is plan
    other = plans.plan("Page", {"short": False, "names": True})
    assert other is not plan
    assert plans.plan("Page", {"short": False, "names": False}) is not other
    # A third one is created each time.
    third = {"short": False, "names": False}
    assert plans.plan("Page", third) is not plans.plan("Page", third)
    assert plans.plan("Page", {"short": True, "names": True}) is plan


@pytest.mark.parametrize("text", ["{ __schema { queryType { name } } }", "{ __typename }"])
def test_introspection_is_executed_by_graphql_core(schema: strawberry.Schema, text: str) -> None:
    """The response is equal with plans."""
    document = parse(text)
    expected = answer(schema, Memory(), document, {})
    assert b"Query" in expected
    assert answer(schema, Memory(), document, {}, Plans(document)) == expected


async def test_a_page_is_prefetched_and_awaits_nothing(
    schema: strawberry.Schema, memory: Memory
) -> None:
    """There is one read per reference and one for the numbers, however many documents.

    Each document is one call of a generated function.
    """
    for number in range(5):
        memory.write("suppliers", {"_id": ObjectId(f"{number:024x}"), "name": f"s{number}"})
    for number in range(50):
        supplier = ObjectId(f"{number % 5:024x}")
        memory.write("products", {"_id": f"p{number}", **GOOD, "supplierId": supplier})
    text = "{ products(first: 50) { nodes { id version supplier { name version } } } }"
    document = parse(text)
    plans = Plans(document)
    found = orjson.loads(await asyncio.to_thread(answer, schema, memory, document, {}, plans))
    assert found["errors"] == []
    assert len(found["data"]["products"]["nodes"]) == 50
    reads = [(name, entity, count) for name, entity, count, _ in memory.calls]
    assert sorted(reads) == [
        ("by_ids", "Supplier", 5),
        ("numbers", "Product", 50),
        ("numbers", "Supplier", 5),
        ("page", "Product", 1),
    ]


async def test_a_selection_without_reads_is_one_function_with_a_fallback(
    model: Model, schema: strawberry.Schema, memory: Memory
) -> None:
    """The fallback is for values that do not fit; a selection with reads has no such function."""
    executor: Any = Executor.build(schema._schema, parse("{ __typename }"), None, memory.context())
    type_: Any = schema._schema.type_map["Product"]
    entity = build_object_types(model)["Product"]

    def compiled(selection: str) -> Any:
        document: Any = parse(f"{{ product {{ {selection} }} }}")
        node = document.definitions[0].selection_set.selections[0]
        return compile_object(executor, type_, [FieldDetails(node, None, None)])

    make = compiled("id n: name stock price listed tags dimensions { unit { name } }")
    assert make is not None
    context = executor.context_value
    rendered = make(CurrentDocument(entity, {"_id": "p1", **GOOD}), context)
    assert rendered == {
        "id": "p1",
        "n": "Lamp",
        "stock": 3,
        "price": "1.50",
        "listed": True,
        "tags": ["x", "y"],
        "dimensions": {"unit": {"name": "cm"}},
    }
    for changed in ({"name": None}, {"stock": 2**31}, {"tags": [7]}, {"dimensions": {"unit": 7}}):
        assert make(CurrentDocument(entity, {"_id": "p1", **GOOD, **changed}), context) is FALLBACK
    assert make(CurrentDocument(entity, {"_id": "p1", **GOOD, "stock": 3.0}), context) == rendered
    assert compiled("id blame { path }") is None
