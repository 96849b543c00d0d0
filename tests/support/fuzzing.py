"""Hypothesis strategies for operations on a schema: its fields and arguments, with any values."""

from __future__ import annotations

import base64
import json
from typing import Any

from graphql import (
    GraphQLEnumType,
    GraphQLField,
    GraphQLInputObjectType,
    GraphQLSchema,
    get_named_type,
    get_nullable_type,
    is_input_object_type,
    is_leaf_type,
    is_list_type,
    is_non_null_type,
    is_object_type,
)
from hypothesis import strategies as st

__all__ = ["CANARY", "drawn_operation"]

CANARY = "$canary"
"""Texts with this prefix may reach MongoDB only as values."""


def _cursor(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


TEXTS = st.sampled_from(
    [
        "", "a", "p1", "p2", CANARY, f"${CANARY}", "$$ROOT", "$$NOW", "$where", "a.b", ".", "a..b",
        "_id", "__proto__", "[unclosed", "(a+)+$", ".*", "^", "\\", "\\Q", "a\0b", "\u2028",
        "é" * 50, "x" * 3000, "0", "-1", "1e999", "NaN", "9" * 400, "2024-05-01T12:00:00Z",
        "+275760-09-13T00:00:00Z", "0" * 24, "00000000-0000-0000-0000-000000000000", "p1@1",
        "p1@" + "9" * 30, "ffffffff", "UHJvZHVjdDpwMQ",
        _cursor([{CANARY: 1}]), _cursor({CANARY: [1]}), _cursor(["a", "p1"]),
    ]
)  # fmt: skip
NUMBERS = st.sampled_from(
    [0, 1, 2, 3, -1, 7, 1001, 2**31 - 1, 2**31, -(2**31) - 1, 2**53, 2**63, -(2**63), 10**50, 0.5,
     -0.0, 1e308, 5e-324]
)  # fmt: skip
KEYS = st.sampled_from(
    [CANARY, f"{CANARY}.a", f"a.{CANARY}", "$set", "$gt", "$where", "$oid", "$date", "$numberLong",
     "a.b", "", ".", "a\0b", "_id", "x", "5", "__proto__"]
)  # fmt: skip
SCALARS = st.one_of(TEXTS, NUMBERS, st.none(), st.booleans())
JSONS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)
DEEP = st.sampled_from([5, 60, 79, 81, 99, 101, 400]).flatmap(
    lambda depth: st.sampled_from([[depth, "list"], [depth, CANARY]])
)
"""Depth and content of a nested value; built where it is used, as Hypothesis prints draws."""
BETTER = {
    "ID": st.sampled_from(["p1", "p2", "s1", "1"]),
    "Int": st.sampled_from([1, 2, 20]),
    "Boolean": st.booleans(),
    "String": st.sampled_from(["a", "name", CANARY]),
    "Decimal": st.sampled_from(["1.50", 2]),
    "DateTime": st.just("2024-05-01T12:00:00Z"),
    "ObjectID": st.just("0" * 24),
}


@st.composite
def drawn_operation(
    draw: st.DrawFn, schema: GraphQLSchema, kind: str
) -> tuple[str, dict[str, Any]]:
    """Draw an operation of a kind and its variables.

    It has one root field with arguments, all of them variables or all of them literals, and a part
    of the selection that is possible.
    """
    root = {"query": schema.query_type, "mutation": schema.mutation_type}[kind]
    assert root is not None
    name, field = draw(st.sampled_from(sorted(root.fields.items())))
    variables: dict[str, Any] = {}
    literal = draw(st.booleans())
    declared, given = [], []
    for argument, definition in field.args.items():
        if not is_non_null_type(definition.type) and draw(st.booleans()):
            continue
        value = draw(_values(definition.type, 3))
        if literal:
            given.append(f"{argument}: {_literal(value)}")
        else:
            variables[argument] = value
            declared.append(f"${argument}: {definition.type}")
            given.append(f"{argument}: ${argument}")
    arguments = f"({', '.join(given)})" if given else ""
    selected = draw(_selections(schema, field, 3))
    head = f"{kind} ({', '.join(declared)})" if declared else kind
    return f"{head} {{ {name}{arguments} {selected} }}", variables


@st.composite
def _values(draw: st.DrawFn, type_: Any, depth: int) -> Any:
    """Draw a value, mostly of that type."""
    if draw(st.integers(0, 11)) == 0:
        return draw(JSONS)
    type_ = get_nullable_type(type_)
    if is_list_type(type_):
        return draw(st.lists(_values(type_.of_type, depth - 1), max_size=2))
    if isinstance(type_, GraphQLInputObjectType):
        fields = sorted(type_.fields.items())
        required = [name for name, each in fields if is_non_null_type(each.type)]
        # One field is enough for @oneOf inputs, and at the greatest depth.
        some = draw(st.lists(st.sampled_from([n for n, _ in fields]), max_size=2, unique=True))
        if depth <= 0:
            some = [
                n for n in some if not is_input_object_type(get_named_type(type_.fields[n].type))
            ]
        return {
            name: draw(_values(type_.fields[name].type, depth - 1))
            for name in dict.fromkeys([*required, *some])
        }
    if isinstance(type_, GraphQLEnumType):
        return draw(st.sampled_from([_Enum(each) for each in type_.values]))
    if type_.name == "JSON":
        return draw(JSONS | DEEP.map(_deep))
    return draw(st.one_of(BETTER.get(type_.name, SCALARS), TEXTS, NUMBERS))


class _Enum(str):
    """An enum value, printed without quotes."""


def _deep(drawn: list[Any]) -> Any:
    depth, of = drawn
    value: Any = 1
    for _ in range(depth):
        value = [value] if of == "list" else {of: value}
    return value


def _literal(value: Any) -> str:
    if isinstance(value, _Enum):
        return str(value)
    if isinstance(value, dict):
        # GraphQL names have no dollar: such keys can only be sent in variables.
        items = (f"{_name(key)}: {_literal(each)}" for key, each in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json.dumps(value)


def _name(key: str) -> str:
    return key if key.isidentifier() and key.isascii() else "x"


@st.composite
def _selections(draw: st.DrawFn, schema: GraphQLSchema, field: GraphQLField, depth: int) -> str:
    type_ = get_named_type(field.type)
    if is_leaf_type(type_):
        return ""
    parts = ["__typename"]
    types = [type_] if is_object_type(type_) else schema.get_possible_types(type_)  # type: ignore[arg-type]
    for each in types:
        inner = []
        fields = sorted(each.fields.items())
        for name, found in draw(st.lists(st.sampled_from(fields), max_size=3, unique_by=_first)):
            if not is_leaf_type(get_named_type(found.type)) and depth <= 0:
                continue
            given = [
                f"{argument}: {_literal(draw(_values(definition.type, 1)))}"
                for argument, definition in found.args.items()
                if is_non_null_type(definition.type) or draw(st.integers(0, 3)) == 0
            ]
            arguments = f"({', '.join(given)})" if given else ""
            selected = draw(_selections(schema, found, depth - 1))
            alias = f"{each.name.lower()}_{name}"
            inner.append(f"{alias}: {name}{arguments} {selected}")
        if inner:
            parts.append(f"... on {each.name} {{ {' '.join(inner)} }}")
    return "{ " + " ".join(parts) + " }"


def _first(item: tuple[str, Any]) -> str:
    return item[0]
