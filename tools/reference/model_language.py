"""Directives, enums and scalars of the model language, for model.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from graphql.language import (
    DirectiveDefinitionNode,
    EnumTypeDefinitionNode,
    ScalarTypeDefinitionNode,
    StringValueNode,
    parse,
    print_ast,
)

from revstream.model.compiler.parsing.directive_definitions import DIRECTIVES, LANGUAGE
from revstream.model.definition import Scalar
from revstream.model.filter_operators import filter_operators
from tools.reference.markdown import code, linked, table

__all__ = ["PARTS"]

_DEFINITIONS = parse(LANGUAGE).definitions
_ENUMS = {
    each.name.value: each for each in _DEFINITIONS if isinstance(each, EnumTypeDefinitionNode)
}
_PLACES = {
    "OBJECT": "type",
    "INTERFACE": "interface",
    "UNION": "union",
    "FIELD_DEFINITION": "field",
    "ENUM_VALUE": "value of an enum",
}
_STORED: Mapping[Scalar, str] = {
    Scalar.ID: "string, or the type of the id that it refers to",
    Scalar.STRING: "string",
    Scalar.INT: "int, 32 bits",
    Scalar.LONG: "long, 64 bits",
    Scalar.FLOAT: "double",
    Scalar.BOOLEAN: "bool",
    Scalar.DECIMAL: "decimal128, 34 digits",
    Scalar.DATETIME: "date: UTC, milliseconds",
    Scalar.DATE: "date: midnight in UTC",
    Scalar.TIMESTAMP: "timestamp",
    Scalar.OBJECTID: "objectId",
    Scalar.UUID: "binary, subtype 4",
    Scalar.BINARY: "binary, subtype 0",
    Scalar.POINT: "GeoJSON of type Point",
    Scalar.JSON: "anything",
}


def _line(description: StringValueNode | None) -> str:
    return "" if description is None else linked(" ".join(description.value.split()))


def _directives() -> str:
    return table(
        ("directive", "on", "meaning"),
        (
            (
                f"[`@{name}`](#{_section(name)})",
                ", ".join(_PLACES[each.value] for each in directive.locations)
                + ("; repeatable" if directive.repeatable else ""),
                _line(directive.description),
            )
            for name, directive in DIRECTIVES.items()
        ),
    )


def _section(name: str) -> str:
    together = {
        "discriminator": "discriminator-and-variant",
        "variant": "discriminator-and-variant",
        "reference": "reference-and-referencedby",
        "referencedBy": "reference-and-referencedby",
        "index": "index-and-unique",
        "unique": "index-and-unique",
    }
    return together.get(name, name)


def _arguments(directive: DirectiveDefinitionNode) -> str:
    return table(
        ("argument", "type", "default", "meaning"),
        (
            (
                code(each.name.value),
                code(print_ast(each.type)),
                "" if each.default_value is None else code(print_ast(each.default_value)),
                _line(each.description),
            )
            for each in directive.arguments or ()
        ),
    )


def _values(enum: EnumTypeDefinitionNode) -> str:
    return table(
        ("value", "meaning"),
        ((code(each.name.value), _line(each.description)) for each in enum.values or ()),
    )


def _scalars() -> str:
    says = {
        each.name.value: _line(each.description)
        for each in _DEFINITIONS
        if isinstance(each, ScalarTypeDefinitionNode)
    }
    return table(
        ("scalar", "meaning", "in MongoDB", "operators of filters"),
        (
            (
                code(each.value),
                says.get(each.value, ""),
                _STORED[each],
                ", ".join(map(code, filter_operators(each, is_list=False))),
            )
            for each in Scalar
        ),
    )


PARTS: dict[str, Callable[[], str]] = {
    "directives": _directives,
    "model scalars": _scalars,
    **{
        f"directive {name}": partial(_arguments, each)
        for name, each in DIRECTIVES.items()
        if len(each.arguments or ()) > 1
    },
    **{f"enum {name}": partial(_values, each) for name, each in _ENUMS.items()},
}
