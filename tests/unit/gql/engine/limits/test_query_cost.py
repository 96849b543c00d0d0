"""Operation cost, computed without expanding fragments."""

from __future__ import annotations

import time
from typing import Any

import pytest
from graphql import (
    FieldNode,
    FragmentSpreadNode,
    InlineFragmentNode,
    SelectionSetNode,
    get_introspection_query,
    parse,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from revstream.gql.engine.execution.schema import Schema
from revstream.gql.engine.limits.query_cost import OperationCost
from revstream.resolvers.errors import BadUserInput
from tests.support.exhaustive import examples


def cost_of(schema: Schema, text: str, **variables: Any) -> OperationCost:
    """Return the cost of the only operation."""
    found = schema.cost_calculator.calculate(parse(text), variables).operation(None)
    assert found is not None
    return found


HISTORY = "{ products(first: %s) { nodes { history(first: %s) { nodes { version } } } } }"
COSTS: dict[str, tuple[str, dict[str, Any], int]] = {
    "a document": ('{ product(id: "1") { name stock } }', {}, 1),
    "with what it refers to": ('{ product(id: "1") { supplier { name } maker { name } } }', {}, 3),
    "pages multiply": (HISTORY % (100, 50), {}, 100 + 100 * 50),
    "from the end, too": ("{ products(last: 7) { nodes { id } } }", {}, 7),
    "as long as pages usually are": ("{ products { nodes { id } } }", {}, 20),
    "and within one another": ("{ suppliers { nodes { products { nodes { id } } } } }", {}, 420),
    "through edges": (
        "{ products(first: 3) { edges { node { history { nodes { v: version } } } } } }",
        {},
        3 + 3 * 20,
    ),
    "none": ("{ products(first: 0) { nodes { id } } }", {}, 1),
    "no page at all": ("{ products(first: 5000) { nodes { id } } }", {}, 1),
    "too many digits": ("{ products(first: %s) { nodes { id } } }" % ("9" * 4000), {}, 1),
    "a variable": ("query($n: Int) { products(first: $n) { nodes { id } } }", {"n": 9}, 9),
    "one that is not given": ("query($n: Int) { products(first: $n) { nodes { id } } }", {}, 20),
    "one with a default": ("query($n: Int = 5) { products(first: $n) { nodes { id } } }", {}, 5),
    "null": ("query($n: Int = 5) { products(first: $n) { nodes { id } } }", {"n": None}, 20),
    "no number": ("query($n: Int) { products(first: $n) { nodes { id } } }", {"n": "9"}, 20),
    "beyond numbers": ("query($n: Int) { products(first: $n) { nodes { id } } }", {"n": 1e999}, 1),
    "in a fragment": (
        "query($n: Int) { products(first: 2) { ...F } } fragment F on ProductConnection "
        "{ nodes { history(first: $n) { nodes { version } } } }",
        {"n": 9},
        2 + 2 * 9,
    ),
    "drafts and their comments": (
        '{ product(id: "1") { drafts(first: 5) { nodes { comments(first: 3) { totalCount } } } } }',
        {},
        1 + 5 + 5 * 3,
    ),
    "a mutation": ('mutation { a: deleteProduct(id: "1") { __typename } }', {}, 1),
    "conditions of a filter": (
        "{ products(first: 9, where: {stock: {gt: 1, lt: 9}}) { nodes { id } } }",
        {},
        9 + 2,
    ),
    "a regular expression": (
        "query($m: String) { products(first: 9, where: {sku: {matches: $m}}) { nodes { id } } }",
        {"m": "a"},
        9 + 10,
    ),
    "a regular expression in a variable": (
        "query($w: ProductWhere) { products(first: 9, where: $w) { nodes { id } } }",
        {"w": {"sku": {"matches": "a"}, "stock": {"gt": 1}}},
        9 + 10 + 1,
    ),
    "a reference in a filter": (
        "{ products(first: 9, where: {supplier: {name: {eq: 1}}}) { nodes { id } } }",
        {},
        9 + 1 + 100,
    ),
    "conditions on related documents": (
        "{ suppliers(first: 9, where: {products: {some: {}, none: {stock: {gt: 1}}}}) "
        "{ nodes { id } } }",
        {},
        9 + 2 + 2 * 100,
    ),
    "values of related documents in an order": (
        "query($o: [ProductOrder!]) { products(first: 9, orderBy: $o) { nodes { id } } }",
        {"o": [{"stock": "ASC"}, {"supplier": {"name": "ASC"}}]},
        9 + 1000,
    ),
    "and in the orders of many pages, which are read together": (
        "{ suppliers(first: 3, orderBy: [{products: {count: ASC}}]) { nodes { "
        "products(first: 4, orderBy: [{supplier: {name: DESC}}]) { totalCount } } } }",
        {},
        3 + 1000 + 3 * 4 + 1000,
    ),
    "references in groups": (
        "query($g: ProductAggregateGroupBy) { productsAggregate(groupBy: $g, first: 9) "
        "{ groups { count } } }",
        {"g": {"supplier": {"name": True}, "stock": True}},
        9 + 100,
    ),
    "references in variables, and in embedded documents": (
        "query($w: ProductWhere = {origin: {city: {name: {eq: 1}}}}, $v: ProductWhere) "
        "{ a: products(first: 2, where: $w) { totalCount } "
        "b: products(first: 3, where: {or: [$v, {not: $v}]}) { totalCount } }",
        {"v": {"and": [{"supplier": {}}, {"dimensions": {"width": {"eq": 1}}}]}},
        2 + 1 + 100 + 3 + 2 * 2 + 2 * 100,
    ),
    "and at each place that names them": (
        "query($w: ProductWhere) { a: products(first: 2, where: $w) { nodes { id } } "
        "suppliers(first: 3) { nodes { products(first: 4, where: {and: [$w, $w]}) { totalCount } } "
        "} }",
        {"w": {"or": [{"stock": {"eq": 1}}, {"sku": {"in": ["1", "2", "3"]}}]}},
        2 + 2 + 3 + 3 * (4 + 2 * 2),
    ),
    "fields that are none": ("{ nope { products(first: 9) { nodes { id } } } }", {}, 0),
}


@pytest.mark.parametrize(("text", "variables", "cost"), COSTS.values(), ids=COSTS)
def test_the_cost_is_the_number_of_documents_that_may_be_read(
    schema: Schema, text: str, variables: dict[str, Any], cost: int
) -> None:
    """Page sizes are literals, variables or defaults."""
    assert cost_of(schema, text, **variables).cost == cost


def test_values_are_counted_as_often_as_pages_repeat_them(schema: Schema) -> None:
    """The response may have that many."""
    weight = cost_of(schema, "{ products(first: 10) { nodes { id name supplier { name } } } }")
    assert weight.values == 1 + 10 * (1 + 2 + 1 + 1)


def test_an_operation_is_looked_up_by_its_name(schema: Schema) -> None:
    """Without a name, the document must have a single operation."""
    found = schema.cost_calculator.calculate(
        parse("query A { streams { name } } query B { a: node(nodeId: 1) { nodeId } }"), {}
    )
    assert found.operation("A") is not None
    b = found.operation("B")
    assert b is not None
    assert b.aliases == 1
    assert found.operation(None) is None
    assert not found.varies


def test_a_cost_that_depends_on_variables_is_marked(schema: Schema) -> None:
    """Other costs need not be computed again."""
    text = (
        "query($n: Int, $id: ID!) { product(id: $id) { history(first: %s) { nodes { version } } } }"
    )
    assert schema.cost_calculator.calculate(parse(text % "$n"), {}).varies
    assert not schema.cost_calculator.calculate(parse(text % "5"), {}).varies


@pytest.mark.parametrize(
    "text",
    [
        "{ products(where: {stock: {eq: #}}) { nodes { id } } }",
        "{ product(id: #) { id } }",
        "{ product(id: 1) @skip(if: #) { id } }",
        "query($n: Int = #) { products(first: $n) { nodes { id } } }",
        "{ ...F } fragment F on Query { products(first: [#]) { nodes { id } } }",
    ],
)
def test_a_number_that_python_does_not_parse_is_refused(schema: Schema, text: str) -> None:
    """It may be anywhere; validation would fail with an internal error."""
    cost_of(schema, text.replace("#", "9" * 4300))
    with pytest.raises(BadUserInput, match="digits of a number: 4,301, maximum is 4,300"):
        cost_of(schema, text.replace("#", "9" * 4301))


@pytest.mark.parametrize("length", [2, 3, 500])
def test_a_fragment_that_spreads_itself_is_refused_with_its_path(
    schema: Schema, length: int
) -> None:
    """It does so directly or through any number of others."""
    ring = " ".join(f"fragment F{n} on Product {{ ...F{(n + 1) % length} }}" for n in range(length))
    with pytest.raises(BadUserInput, match=r"spread one another in a circle: F\d+ → F\d+ → "):
        cost_of(schema, f'{{ product(id: "1") {{ ...F0 }} }} {ring}')


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{ a } { b }", "operations: 2 or more, expected a name"),
        ("query A { a } { b }", "operations: 2 or more, expected a name"),
        ("{ b } query A { a }", "operations: 2 or more, expected a name"),
        ("query A { a } mutation A { b }", "operations named 'A': 2 or more"),
        ("{ a } fragment F on Query { a } fragment F on Query { b }", "fragments named"),
    ],
)
def test_operations_with_a_duplicate_name_are_refused(
    schema: Schema, text: str, message: str
) -> None:
    """Validation would run for those that are not counted."""
    with pytest.raises(BadUserInput, match=message):
        cost_of(schema, text)


def test_nested_fragments_take_linear_time(schema: Schema) -> None:
    """2^1000 fields are a number like any other; chains do not recurse."""
    chain = " ".join(f"fragment F{n} on Product {{ ...F{n + 1} ...F{n + 1} }}" for n in range(1000))
    text = f'{{ product(id: "1") {{ ...F0 }} }} {chain} fragment F1000 on Product {{ name: id }}'
    document = parse(text)
    began = time.process_time()
    weight = schema.cost_calculator.calculate(document, {}).operation(None)
    assert time.process_time() - began < 2
    assert weight is not None
    assert weight.fields == 1 + 2**1000
    assert weight.aliases == 2**1000
    assert weight.depth == 2


def test_the_query_of_graphiql_is_within_the_limits(schema: Schema) -> None:
    """This holds for any schema: lists of the schema are counted with the sizes of an example."""
    query = get_introspection_query(
        specified_by_url=True,
        directive_is_repeatable=True,
        schema_description=True,
        input_value_deprecation=True,
    )
    weight = cost_of(schema, query)
    assert weight.introspects
    assert 10_000 < weight.values < 100_000


def expanded(node: SelectionSetNode, fragments: dict[str, Any], depth: int = 1) -> list[int]:
    """Yield the depth of every field, with fragments in place of their spreads."""
    found: list[int] = []
    for each in node.selections:
        if isinstance(each, FieldNode):
            found.append(depth)
            if each.selection_set:
                found += expanded(each.selection_set, fragments, depth + 1)
        elif isinstance(each, FragmentSpreadNode):
            found += expanded(fragments[each.name.value].selection_set, fragments, depth)
        elif isinstance(each, InlineFragmentNode):
            found += expanded(each.selection_set, fragments, depth)
    return found


def bodies(names: list[str]) -> st.SearchStrategy[str]:
    leaves = st.sampled_from(["id", *(f"...{each}" for each in names)])

    def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        body = st.lists(inner, min_size=1, max_size=3).map(" ".join)
        return body.map(lambda text: f"x {{ {text} }}") | body.map(lambda t: f"... {{ {t} }}")

    return st.lists(st.recursive(leaves, nested, max_leaves=5), min_size=1, max_size=3).map(
        " ".join
    )


@given(st.data())
@settings(max_examples=examples(30), deadline=None)
def test_fields_and_depth_are_those_of_the_expanded_document(schema: Schema, data: Any) -> None:
    """Execution would have them."""
    names = ["A", "B", "C"]
    text = f"{{ {data.draw(bodies(names))} }}"
    for place, name in enumerate(names):
        text += f" fragment {name} on Query {{ {data.draw(bodies(names[place + 1 :]))} }}"
    document = parse(text)
    fragments = {each.name.value: each for each in document.definitions[1:]}  # type: ignore[attr-defined]
    depths = expanded(document.definitions[0].selection_set, fragments)  # type: ignore[attr-defined]
    weight = cost_of(schema, text)
    assert weight.fields == len(depths)
    assert weight.depth == max(depths)
    assert weight.root_fields == depths.count(1)
