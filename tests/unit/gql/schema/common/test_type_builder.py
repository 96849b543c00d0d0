"""Tests of `gql.schema.common.type_builder`."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import pytest
import strawberry
from graphql import GraphQLResolveInfo
from strawberry.schema.config import StrawberryConfig

from revstream.gql.engine.definitions.field import Argument, InputField, Read, Resolve
from revstream.gql.engine.internals.strawberry import FieldInfo
from revstream.gql.schema.common.scalars import SCALAR_MAP, SCALARS
from revstream.gql.schema.common.type_builder import Types


@dataclass
class Animal:
    name: str
    type_name: str = "Cat"
    friend: Animal | None = None


def schema_of(types: Types) -> strawberry.Schema:
    every = types.finish()
    config = StrawberryConfig(info_class=FieldInfo, scalar_map=SCALAR_MAP)
    return strawberry.Schema(query=types["Query"], types=every, config=config)


@pytest.fixture
def types() -> Types:
    return Types(SCALARS)


def test_types_may_refer_to_types_that_are_defined_later(types: Types) -> None:
    """Names are resolved when the schema is built."""
    tom = Animal("Tom", friend=Animal("Jerry"))
    types.add_object(
        "Query",
        [Read("cat", "Cat!", None, lambda _: tom), Read("any", "Named", None, lambda _: tom)],
        None,
    )
    fields = [Read("name", "String!", "What it answers to.", attrgetter("name"))]
    types.add_object(
        "Cat", [*fields, Read("friend", "Cat", None, attrgetter("friend"))], "It purrs.", ["Named"]
    )
    types.add_interface("Named", fields, "What has a name.")
    schema = schema_of(types)
    result = schema.execute_sync(
        "{ cat { name friend { name friend { name } } } any { __typename name } }"
    )
    assert result.errors is None
    assert result.data == {
        "cat": {"name": "Tom", "friend": {"name": "Jerry", "friend": None}},
        "any": {"__typename": "Cat", "name": "Tom"},
    }
    assert '"""It purrs."""\ntype Cat implements Named {' in schema.as_str()
    assert '  """What it answers to."""\n  name: String!' in schema.as_str()


def test_resolvers_receive_arguments_in_snake_case_and_inputs_unchanged(types: Types) -> None:
    """Python keywords get an underscore; missing arguments are not passed."""
    calls: list[dict[str, Any]] = []

    def resolve(_root: None, info: GraphQLResolveInfo[Any], **arguments: Any) -> str:
        calls.append(arguments)
        return info.field_name

    types.add_enum("Size", {"BIG": "Not small.", "SMALL": None}, None)
    types.add_input(
        "Where",
        [InputField("minSize", "Size", "At least."), InputField("and", "[Where!]", "All of them.")],
        None,
    )
    types.add_object(
        "Query",
        [
            Resolve(
                "find",
                "String!",
                None,
                resolve,
                [
                    Argument("minAge", "Int", "At least."),
                    Argument("from", "Size", "Which."),
                    Argument("where", "Where", "Which match."),
                    Argument("live", "Boolean", "Only these.", default=False),
                ],
            )
        ],
        None,
    )
    schema = schema_of(types)
    result = schema.execute_sync(
        "query($w: Where) { find(minAge: 3, from: BIG, where: $w) none: find }",
        {"w": {"and": [{"minSize": "SMALL"}, {}]}},
    )
    assert result.errors is None
    assert calls == [
        {"min_age": 3, "from_": "BIG", "where": {"and": [{"minSize": "SMALL"}, {}]}, "live": False},
        {"live": False},
    ]
    assert type(calls[0]["from_"]) is str


def test_enum_values_are_text_in_results_too(types: Types) -> None:
    """An unknown value is an error of its field."""
    types.add_enum("Size", {"BIG": None, "SMALL": None}, None)
    types.add_object(
        "Query",
        [Read("good", "Size", None, lambda _: "BIG"), Read("bad", "Size", None, lambda _: "HUGE")],
        None,
    )
    result = schema_of(types).execute_sync("{ good bad }")
    assert result.data == {"good": "BIG", "bad": None}
    assert result.errors is not None
    assert result.errors[0].path == ["bad"]


def test_a_one_of_input_has_exactly_one_field(types: Types) -> None:
    """Literals and variables are checked."""
    types.add_input(
        "Point",
        [InputField("time", "Int", ""), InputField("token", "String", "")],
        None,
        one_of=True,
    )
    types.add_object(
        "Query",
        [
            Resolve(
                "at",
                "Int",
                None,
                lambda _r, _i, point: point["time"],
                [Argument("point", "Point!", "")],
            )
        ],
        None,
    )
    schema = schema_of(types)
    assert "input Point @oneOf" in schema.as_str()
    good = schema.execute_sync("{ at(point: {time: 3}) }")
    assert good.data == {"at": 3}
    for point in ({}, {"time": 3, "token": "x"}, {"time": None}):
        bad = schema.execute_sync("query($p: Point!) { at(point: $p) }", {"p": point})
        assert bad.data is None


def test_two_types_with_one_name_are_refused(types: Types) -> None:
    """One of them would be missing."""
    types.add_object("Query", [Read("a", "Int", None, lambda _: 1)], None)
    with pytest.raises(ValueError, match="type Query: defined twice"):
        types.add_object("Query", [], None)


def test_an_unreferenced_type_is_in_the_schema(types: Types) -> None:
    """Clients may use its name."""
    types.add_object("Query", [Read("a", "Int", None, lambda _: 1)], None)
    types.add_object("Alone", [Read("a", "[Int!]!", None, lambda _: [])], None)
    schema = schema_of(types)
    assert "type Alone {\n  a: [Int!]!\n}" in schema.as_str()
    assert "scalar ObjectID" in schema.as_str()
