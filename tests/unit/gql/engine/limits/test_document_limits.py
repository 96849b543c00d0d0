"""Document limits: operations beyond them are refused with both numbers."""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import pytest
from graphql import Lexer, Source, TokenKind, parse
from hypothesis import example, given, settings
from hypothesis import strategies as st

from revstream.gql.engine.execution.schema import Schema
from revstream.gql.engine.limits.document_limits import (
    Limits,
    check_cost,
    check_text,
    check_variables,
)
from revstream.resolvers.errors import BadUserInput, LimitExceeded
from tests.support.exhaustive import examples

FEW = Limits(
    max_document_bytes=2000,
    max_tokens=300,
    max_operations=2,
    max_depth=4,
    max_fields=30,
    max_root_fields=3,
    max_aliases=4,
    max_directives=4,
    max_cost=100,
    max_values=200,
    max_filter_conditions=5,
    max_nested=5,
    max_list_items=10,
    max_variable_values=25,
)
NONE = Limits(**{each: 0 for each in Limits.__slots__ if each.startswith("max_")})


def check(schema: Schema, text: str, limits: Limits) -> None:
    check_text(text, limits)
    weighed = schema.cost_calculator.calculate(parse(text), {})
    check_cost(weighed, None if len(weighed.operations) == 1 else "A", limits)


def product(body: str) -> str:
    return f'{{ product(id: "1") {{ {body} }} }}'


WITHIN = {
    "max_document_bytes": (product("id" + " " * 1900), product("id" + " " * 2000)),
    "max_tokens": (product("id " * 20), product("id" + "[" * 300)),
    "max_operations": (
        "query A { node { id } } query B { node { id } }",
        "query A { node { id } } query B { node { id } } query C { node { id } }",
    ),
    "max_depth": (
        product("supplier { products { totalCount } }"),
        product("supplier { products { nodes { id } } }"),
    ),
    "max_fields": (product("id " * 29), product("id " * 30)),
    "max_root_fields": ("{ a b c }", "{ ...F ...F } fragment F on Query { a b }"),
    "max_aliases": (product("a: id b: id c: id d: id"), product("a: id b: id c: id d: id e: id")),
    "max_directives": (
        product("id " + "@a " * 4),
        product("... @a { id @a ...F ...F }") + " fragment F on Product { id @a @a }",
    ),
    "max_cost": (
        "{ products(first: 99) { totalCount } }",
        "{ products(first: 10) { nodes { history(first: 10) { totalCount } } } }",
    ),
    "max_values": (
        "{ products(first: 60) { nodes { id } } }",
        "{ products(first: 60) { nodes { id name stock } } }",
    ),
    "max_filter_conditions": (
        "{ products(where: {or: [{stock: {gt: 1, lt: 9}}, {stock: {in: [1, 2, 3, 4, 5, 6]}}, {}]}) "
        "{ totalCount } }",
        "{ products(where: {not: {stock: {gt: 1, lt: 9}}, and: [{}, {}, {stock: {}}, {}]}) "
        "{ totalCount } }",
    ),
    "max_filter_conditions of having": (
        "{ productsAggregate(having: {or: [{count: {gt: 1, lt: 9}}, {count: {in: [1, 2, 3]}}, {}, "
        "{}]}) { count } }",
        "{ productsAggregate(having: {or: [{count: {gt: 1, lt: 9}}, {count: {in: [1, 2, 3]}}, {}, "
        "{}, {}]}) { count } }",
    ),
    "max_nested": (product("x(a: [[[{b: {}}]]])"), product("x(a: [[[{b: {c: []}}]]])")),
}


@pytest.mark.parametrize(("within", "beyond"), WITHIN.values(), ids=WITHIN)
def test_each_limit_holds_at_its_bound(
    schema: Schema, request: pytest.FixtureRequest, within: str, beyond: str
) -> None:
    """The bound itself passes, a larger number is refused with both; without limits both pass."""
    name = request.node.callspec.id.partition(" ")[0]
    check(schema, within, FEW)
    with pytest.raises(LimitExceeded) as refused:
        check(schema, beyond, FEW)
    facts = refused.value.facts
    assert facts["limit"] == name
    assert facts["bound"] == getattr(FEW, name)
    assert facts["asked"] > facts["bound"]  # type: ignore[operator]
    assert f"{facts['asked']:,}" in refused.value.message
    assert f"maximum is {facts['bound']:,}" in refused.value.message
    if name != "max_tokens":
        check(schema, beyond, NONE)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


VARIABLES = {
    "max_nested": (nested(5), nested(6)),
    "max_list_items": ([1] * 10, [1] * 11),
    "max_variable_values": ({str(n): 1 for n in range(24)}, {str(n): 1 for n in range(25)}),
}


@pytest.mark.parametrize(("within", "beyond"), VARIABLES.values(), ids=VARIABLES)
def test_variables_are_bounded(request: pytest.FixtureRequest, within: Any, beyond: Any) -> None:
    """Their depth, the length of lists, and their total size have limits."""
    check_variables({"v": within}, FEW)
    with pytest.raises(LimitExceeded) as refused:
        check_variables({"v": beyond}, FEW)
    assert refused.value.facts["limit"] == request.node.callspec.id
    check_variables({"v": beyond}, NONE)


def test_a_variable_of_any_depth_is_refused_without_recursion() -> None:
    """JSON parsers accept a thousand levels; the check uses no call stack."""
    with pytest.raises(LimitExceeded, match=r"depth of variable \$v: 101,"):
        check_variables({"v": nested(100_000)}, Limits())


def test_huge_numbers_are_cut(schema: Schema) -> None:
    """They are cut in the message and in the facts, which have to be JSON."""
    chain = " ".join(f"fragment F{n} on Product {{ ...F{n + 1} ...F{n + 1} }}" for n in range(90))
    text = product("...F0") + chain + " fragment F90 on Product { id }"
    with pytest.raises(
        LimitExceeded, match=r": over 1,000,000,000,000, maximum is 2,000"
    ) as refused:
        check(schema, text, Limits())
    assert refused.value.facts["asked"] == 10**12


@pytest.mark.parametrize(
    "text",
    [
        "{ __schema { types { name } } }",
        "{ ...F } fragment F on Query { t: __type(name: 1) { name } }",
    ],
)
def test_introspection_can_be_disabled(schema: Schema, text: str) -> None:
    """Fragments are included; __typename stays."""
    off = replace(Limits(), introspection=False)
    with pytest.raises(BadUserInput, match="introspection is disabled"):
        check(schema, text, off)
    check(schema, product("__typename"), off)


PIECES = [
    "a",
    " ",
    "{",
    "}",
    '"',
    '""',
    '"""',
    "\\",
    '\\"""',
    "\n",
    "#",
    "...",
    "..",
    "1",
    "-",
    ".5",
    "e9",
    "é",
    "$",
    ":",
    ",",
    "\ufeff",
    "_x",
]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
@settings(max_examples=examples(200), deadline=None)
@example('a{"""\\""""""')
@example('a{"""\\\\""""""')
def test_tokens_are_counted_as_by_the_lexer(text: str) -> None:
    """The number is exact for every text that the lexer accepts."""
    lexer, count = Lexer(Source(text)), 0
    try:
        while lexer.advance().kind is not TokenKind.EOF:
            count += 1
    except Exception:
        return
    if count:
        # A text no longer than the limit is not counted.
        padded = text + "," * 100
        with pytest.raises(LimitExceeded) if count > 3 else nullcontext() as refused:
            check_text(padded, replace(NONE, max_tokens=3))
        if refused is not None:
            assert refused.value.facts["asked"] == count


@pytest.mark.parametrize(
    "piece",
    ["a ", "{", '"', '""', '"""', '"""\n\\', '"\\', "#", '"\n', '"""\\', "-", "1e", "\\", "é"],
)
def test_counting_tokens_takes_linear_time(piece: str) -> None:
    """No part of the text is read twice."""
    text = piece * (1_000_000 // len(piece))
    began = time.process_time()
    with suppress(LimitExceeded):
        check_text(text, replace(NONE, max_tokens=10))
    assert time.process_time() - began < 5
