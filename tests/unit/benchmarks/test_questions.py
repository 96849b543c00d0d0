"""Queries of the benchmarks are valid for the gateway that they measure."""

from __future__ import annotations

import json

import pytest
from graphql import build_schema as parse_schema
from graphql import parse, validate

from benchmarks import as_of, fan_out, products, storm
from benchmarks.peers import shop
from benchmarks.programs import mixed
from benchmarks.steady import slope
from revstream.gql.schema import build_schema, print_sdl
from revstream.model.compiler.loader import read_model

SHOP = parse_schema(print_sdl(build_schema(read_model(shop.MODEL.read_text(encoding="utf-8")))))
GUARDED = parse_schema(print_sdl(build_schema(read_model(shop.guarded()))))
PRODUCTS = parse_schema(
    print_sdl(build_schema(read_model(products.MODEL.read_text(encoding="utf-8"))))
)


@pytest.mark.parametrize("shape", shop.SHAPES, ids=lambda each: each.name)
def test_each_form_of_query_is_valid_for_the_shop(shape: shop.Shape) -> None:
    """It is valid with and without access rules."""
    [drawn] = shape.drawn(1)
    document = parse(json.loads(shape.graphql(drawn).body)["query"])
    assert validate(SHOP, document) == []
    assert validate(GUARDED, document) == []


@pytest.mark.parametrize(
    "query",
    [
        *(case.query for case in fan_out._CASES),
        *(storm._RESUMED, storm._VERSIONS),
        *(mixed._READ, mixed._PAGE, mixed._UPDATE, mixed._AS_OF, mixed._SUBSCRIPTION),
    ],
)
def test_all_other_queries_are_valid_for_the_shop(query: str) -> None:
    """These are the queries of single benchmarks."""
    assert validate(SHOP, parse(query)) == []


@pytest.mark.parametrize("query", as_of._PAGES.values(), ids=as_of._PAGES)
def test_queries_for_pages_of_history_are_valid(query: str) -> None:
    """The schema with past products accepts them."""
    assert validate(PRODUCTS, parse(query)) == []


def test_growth_is_the_slope_of_the_regression_line() -> None:
    """Noise without a trend has a slope of 0."""
    assert slope([3.0, 5.0, 7.0, 9.0]) == pytest.approx(2)
    assert slope([4.0, 4.0, 4.0]) == 0
    assert slope([0.0, 1.0, 0.0, 1.0, 0.0]) == pytest.approx(0)
