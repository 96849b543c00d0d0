"""Validation of field merging: the result of graphql-core's rule, in less time."""

from __future__ import annotations

import time

import pytest
from graphql import OverlappingFieldsCanBeMergedRule, build_schema, parse, validate
from hypothesis import example, given, settings
from hypothesis import strategies as st

from revstream.gql.engine.limits.field_merging import MergeableFields
from tests.support.exhaustive import examples

SCHEMA = build_schema("""
interface Being { name: String! being: Being other(a: Int, b: Deep): Being any: Any }
input Deep { x: Int, y: Int }
union Any = Cat | Dog
type Cat implements Being {
  name: String! being: Cat other(a: Int, b: Deep): Being any: Any size: Int many: [Cat] one: Cat!
}
type Dog implements Being {
  name: String! being: Being other(a: Int, b: Deep): Dog any: Any size: Float many: [Dog!] one: Dog!
}
type Query { being: Being cat: Cat dog: Dog any: Any }
""")

NAMES = ["name", "being", "other", "any", "size", "many", "one", "__typename", "cat", "dog"]
TYPES = ["Being", "Cat", "Dog", "Any", "Query"]
ARGUMENTS = ["", "(a: 1)", "(a: 2)", "(b: {x: 1, y: 2})", "(b: {y: 2, x: 1})", "(a: 1, b: null)"]
FRAGMENTS = 4


def selections(fragments: list[str]) -> st.SearchStrategy[str]:
    """Draw fields, inline fragments and spreads; some are invalid for other reasons."""
    spreads = [st.sampled_from([f"...{each}" for each in fragments])] if fragments else []
    alias = st.sampled_from(["", "", "x: ", "y: ", "name: "])
    leaf = st.builds("{}{}{}".format, alias, st.sampled_from(NAMES), st.sampled_from(ARGUMENTS[:2]))

    def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        body = st.lists(inner, min_size=1, max_size=4).map(" ".join)
        field = st.builds(
            "{}{}{} {{ {} }}".format,
            alias,
            st.sampled_from(NAMES[1:]),
            st.sampled_from(ARGUMENTS),
            body,
        )
        return field | st.builds("... on {} {{ {} }}".format, st.sampled_from(TYPES), body)

    return st.recursive(st.one_of(leaf, *spreads), nested, max_leaves=8)


def definitions(draw: st.DrawFn, fragments: list[str]) -> str:
    return " ".join(draw(st.lists(selections(fragments), min_size=1, max_size=5)))


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Draw two operations, and fragments that spread only later ones."""
    names = [f"F{n}" for n in range(FRAGMENTS)]
    parts = [f"query Q{n} {{ {definitions(draw, names)} }}" for n in range(2)]
    for n, name in enumerate(names):
        type_ = draw(st.sampled_from(TYPES))
        parts.append(f"fragment {name} on {type_} {{ {definitions(draw, names[n + 1 :])} }}")
    return " ".join(parts)


# `__typename` differs in type, and graphql-core allows it beside any field of another object.
@example("""
query Q0 { ...F0 ... on Cat { ...F0 ...F0 name(a: 1) x: size } } query Q1 { name }
fragment F0 on Dog { ...F1 x: __typename } fragment F1 on Dog { name }
fragment F2 on Dog { name } fragment F3 on Dog { name }
""")
@given(documents())
@settings(max_examples=examples(40), deadline=None)
def test_it_agrees_with_the_rule_of_graphql_core(text: str) -> None:
    """Documents may have any other mistake; graphql-core does not name the operation.

    Fragments that no operation spreads are a mistake of their own, which graphql-core checks all
    the same.
    """
    used = parse(
        text + " query All { " + " ".join(f"f{n}: cat {{ ...F{n} }}" for n in range(4)) + "}"
    )
    theirs = validate(SCHEMA, used, [OverlappingFieldsCanBeMergedRule])
    ours = validate(SCHEMA, used, [MergeableFields])
    assert bool(ours) == bool(theirs), (ours[:1], theirs[:1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{ cat { x: name x: size } }", ["'name' and 'size' are different", "Fields 'cat'"]),
        ("{ cat { other(a: 1) {name} other {name} } }", ["subfields 'other'", "differing arg"]),
        (
            "{ being { ... on Cat { size } ... on Dog { size } } }",
            ["conflicting types 'Int' and 'Float'"],
        ),
    ],
)
def test_a_conflict_is_reported_with_its_path(text: str, message: list[str]) -> None:
    """The error has both fields, and those that contain them."""
    [error] = validate(SCHEMA, parse(text), [MergeableFields])
    assert all(each in error.message for each in message), error.message
    assert len(error.nodes or ()) == 2


def test_many_equal_fields_take_no_longer_than_many_different_ones() -> None:
    """Each is compared with the first of its name only; graphql-core's rule takes seconds."""
    text = "{" + "cat { being { name } } " * 2000 + "}"
    document = parse(text)
    began = time.process_time()
    assert validate(SCHEMA, document, [MergeableFields]) == []
    assert time.process_time() - began < 5


def test_interfaces_beside_many_types_are_bounded() -> None:
    """A document that does not stay linear is refused."""
    text, beside = "name", " ".join(f"... on {each} {{ being {{ name }} }}" for each in TYPES[1:3])
    for _ in range(20):
        text = f"being {{ {text} }} {beside}"
    [error] = validate(SCHEMA, parse(f"{{ being {{ {text} }} }}"), [MergeableFields])
    assert "maximum is 50,000;" in error.message
    assert error.extensions == {
        "code": "LIMIT_EXCEEDED",
        "limit": "overlaps",
        "asked": 50_001,
        "bound": 50_000,
    }
