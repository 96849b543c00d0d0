"""Reads for the selected fields."""

from __future__ import annotations

import time
from typing import Any

import pytest
import strawberry
from graphql import GraphQLResolveInfo, execute_sync, parse

from revstream.gql.engine.definitions.object_type import ObjectTypeInfo, build_object_types
from revstream.gql.engine.execution.executor import Executor
from revstream.gql.engine.request.selection import Selections
from revstream.model.definition import Model


@pytest.fixture(scope="module")
def shapes(model: Model) -> dict[str, ObjectTypeInfo]:
    return dict(build_object_types(model))


def info_of(
    schema: strawberry.Schema, query: str, variables: dict[str, Any] | None = None
) -> GraphQLResolveInfo[Any]:
    """Return the resolve info of a query's first field."""
    found: list[GraphQLResolveInfo[Any]] = []

    def resolve(_next: Any, _root: Any, info: GraphQLResolveInfo[Any], **_: Any) -> None:
        found.append(info)

    graphql_schema = schema._schema
    execute_sync(
        graphql_schema,
        parse(query),
        variable_values=variables,
        middleware=[resolve],
        executor_class=Executor,
    )
    return found[0]


def stored(
    schema: strawberry.Schema, shapes: dict[str, ObjectTypeInfo], selection: str, **variables: Any
) -> set[str]:
    """Return the paths that a selection on a product needs; definitions may follow after a bar."""
    fields, _, fragments = selection.partition("|")
    declared = "".join(f"${name}: Boolean! " for name in variables)
    head = f"query({declared})" if declared else "query"
    info = info_of(schema, f'{head} {{ product(id: "1") {{ {fields} }} }} {fragments}', variables)
    selections = Selections(info)
    return set(selections.stored(info.field_nodes, shapes["Product"], "Product"))


@pytest.mark.parametrize(
    ("selection", "paths"),
    [
        ("id nodeId __typename", {"_id"}),
        ("sku addedAt", {"sku", "added_at"}),
        ("version", {"version"}),
        ("a: name b: name", {"name"}),
        ("dimensions { width unit { factor } }", {"dimensions.width", "dimensions.unit.f"}),
        ("dimensions { __typename }", {"dimensions"}),
        # Null and misfits in a list would be missing from a projection inside of it.
        ("packages { inner { weight } }", {"packages"}),
        ("parcel { weight inner { weight } }", {"parcel.weight", "parcel.inner"}),
        ("supplier { name country }", {"supplierId"}),
        ("origin { city { name } }", {"origin.cityId"}),
        ("history { nodes { version } } blame { path }", set()),
        ("... on Product { sku } ... on Node { nodeId } ... { name }", {"sku", "name"}),
        ("... on ProductState { stock }", {"stock"}),
        (
            "...F | fragment F on Product { sku ...G } fragment G on ProductState { name }",
            {"sku", "name"},
        ),
    ],
)
def test_a_field_needs_its_stored_paths(
    schema: strawberry.Schema, shapes: dict[str, ObjectTypeInfo], selection: str, paths: set[str]
) -> None:
    """Paths are dotted inside embedded documents; fields that depend only on the id need none."""
    assert stored(schema, shapes, selection) - {"_id"} == paths - {"_id"}


def test_skip_and_include_are_applied(
    schema: strawberry.Schema, shapes: dict[str, ObjectTypeInfo]
) -> None:
    """The conditions are literals and variables."""
    selection = (
        "sku @skip(if: true) name @include(if: $yes) stock @include(if: $no) price @skip(if: $no)"
        " ... @include(if: $no) { rating }"
    )
    assert stored(schema, shapes, selection, yes=True, no=False) == {"name", "price"}


def test_a_fragment_on_another_type_needs_nothing(
    schema: strawberry.Schema, shapes: dict[str, ObjectTypeInfo]
) -> None:
    """A node may be of several types, and each reads its own fields."""
    info = info_of(
        schema,
        '{ node(nodeId: "x") { ... on Product { sku } ... on ProductSnapshot { name }'
        " ... on ProductState { stock } ... on Supplier { country } } }",
    )
    selections = Selections(info)
    product = shapes["Product"]
    assert selections.stored(info.field_nodes, product, "Product") == {"sku", "stock"}
    assert selections.stored(info.field_nodes, product, "ProductSnapshot") == {"name", "stock"}


def test_a_connection_has_the_selected_items_and_figures(
    schema: strawberry.Schema, shapes: dict[str, ObjectTypeInfo]
) -> None:
    """Items are selected under nodes and under edges alike."""
    info = info_of(
        schema, "{ products { nodes { sku } edges { node { name } cursor } totalCount } }"
    )
    selections = Selections(info)
    found = selections.connection(info.field_nodes, "ProductConnection", "ProductEdge")
    assert found.total
    assert not found.token
    assert selections.stored(found.items, shapes["Product"], "Product") == {"sku", "name"}


@pytest.mark.parametrize(
    ("selection", "fields"),
    [
        ("version author previous { document { sku } }", None),
        ("document { __typename }", frozenset()),
        ("document { sku }", frozenset({"sku"})),
    ],
)
def test_a_version_reads_its_document_only_if_selected(
    schema: strawberry.Schema,
    shapes: dict[str, ObjectTypeInfo],
    selection: str,
    fields: frozenset[str] | None,
) -> None:
    """The read has the selected fields."""
    info = info_of(schema, f'{{ productVersion(id: "1", version: 1) {{ {selection} }} }}')
    assert Selections(info).version(info.field_nodes, shapes["Product"]).fields == fields


def test_a_diff_reads_everything(
    schema: strawberry.Schema, shapes: dict[str, ObjectTypeInfo]
) -> None:
    """Two whole states are compared."""
    info = info_of(schema, '{ productVersion(id: "1", version: 1) { diff { path } } }')
    product = shapes["Product"]
    assert Selections(info).version(info.field_nodes, product).fields == product.everything


def test_fragments_in_fragments_take_linear_time(
    schema: strawberry.Schema, shapes: dict[str, ObjectTypeInfo]
) -> None:
    """Each of forty levels spreads the next one twice, which is 2^40 paths."""
    levels = 40
    fragments = [
        f"fragment F{n} on Package {{ a: outer {{ ...F{n + 1} }} b: outer {{ ...F{n + 1} }} }}"
        for n in range(levels)
    ]
    fragments.append(f"fragment F{levels} on Package {{ weight }}")
    started = time.perf_counter()
    found = stored(schema, shapes, f"parcel {{ ...F0 }} | {' '.join(fragments)}")
    assert found == {"parcel." + "outer." * levels + "weight"}
    assert time.perf_counter() - started < 20
