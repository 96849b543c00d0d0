"""Fields and types of the API for the example model, for graphql.md.

Of the types of the model, `Product` stands for all; `Reading` shows what `@fence` adds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from graphql import (
    GraphQLArgument,
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLInterfaceType,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLScalarType,
    GraphQLUnionType,
    is_introspection_type,
    is_specified_scalar_type,
)
from graphql.utilities import value_from_ast_untyped
from graphql.utilities.ast_from_value import ast_from_value

from tools.reference.example_schema import example_schema
from tools.reference.markdown import code, linked, table

__all__ = ["PARTS", "ROOTS", "is_shown"]

ROOTS = ("Query", "Mutation", "Subscription")
# What belongs to the other types of the model.
_OTHERS = re.compile(
    r"(?!ReadingEvent$|ReadingsApplied$)(Supplier|Reading|Customer|Order|Address|Dimensions)"
)
_OTHER_FIELDS = re.compile(
    r"(?!applyReading)[a-z]+(New|On)?(Supplier|Reading|Customer|Order)"
    r"|(supplier|reading|customer|order)(s|sAsOf|sAggregate|State|States|Version|Versions|VersionsAggregate|Drafts"
    r"|Comments|Changes"
    r"|DraftChanges|CommentChanges)?"
)


def is_shown(name: str) -> bool:
    """Return whether the page shows a root field, and not one that it stands for."""
    return _OTHER_FIELDS.fullmatch(name) is None


def _root(name: str) -> GraphQLObjectType:
    found = example_schema().type_map[name]
    assert isinstance(found, GraphQLObjectType)
    return found


def _field(root: str, name: str) -> str:
    field = _root(root).fields[name]
    arguments = ", ".join(f"{each}: {value.type}" for each, value in field.args.items())
    given = f"({arguments})" if arguments else ""
    parts = [linked(_line(field.description)), f"`{name}{given}: {field.type}`"]
    if field.args:
        parts.append(_arguments(field.args))
    return "\n\n".join(parts)


def _arguments(arguments: Mapping[str, GraphQLArgument]) -> str:
    rows = [
        (code(name), code(each.type), _default(each), linked(_line(each.description)))
        for name, each in arguments.items()
    ]
    if any(default for _, _, default, _ in rows):
        return table(("argument", "type", "default", "meaning"), rows)
    return table(("argument", "type", "meaning"), [(*row[:2], row[3]) for row in rows])


def _default(argument: GraphQLArgument) -> str:
    literal = ast_from_value(argument.default_value, argument.type)
    return "" if literal is None else code(value_from_ast_untyped(literal)).lower()


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def _types(kind: type[GraphQLNamedType]) -> str:
    """Describe each type of a kind."""
    found = [
        each
        for name, each in sorted(example_schema().type_map.items())
        if isinstance(each, kind)
        and name not in ROOTS
        # The operators of filters have a section of their own.
        and not name.endswith("Filter")
        and not is_introspection_type(each)
        and _OTHERS.match(name) is None
    ]
    return "\n\n".join(filter(None, map(_type, found)))


def _type(each: GraphQLNamedType) -> str:
    about = linked(_line(each.description))
    if isinstance(each, GraphQLObjectType | GraphQLInterfaceType):
        of = ", ".join(code(one.name) for one in each.interfaces)
        about += f" Implements {of}." if of else ""
        rows = [
            (
                code(name + ("(…)" if field.args else "")),
                code(field.type),
                linked(_line(field.description)),
            )
            for name, field in each.fields.items()
            if re.fullmatch(r"current[A-Z]\w+", name) is None
        ]
        return f"#### {each.name}\n\n{about}\n\n" + table(("field", "type", "meaning"), rows)
    if isinstance(each, GraphQLInputObjectType):
        rows = [
            (code(name), code(field.type), linked(_line(field.description)))
            for name, field in each.fields.items()
        ]
        return f"#### {each.name}\n\n{about}\n\n" + table(("field", "type", "meaning"), rows)
    if isinstance(each, GraphQLEnumType):
        values = [
            (code(name), linked(_line(value.description))) for name, value in each.values.items()
        ]
        return f"#### {each.name}\n\n{about}\n\n" + table(("value", "meaning"), values)
    if isinstance(each, GraphQLUnionType):
        return f"#### {each.name}\n\n{about}\n\n" + ", ".join(code(one.name) for one in each.types)
    assert isinstance(each, GraphQLScalarType)
    return "" if is_specified_scalar_type(each) else f"#### {each.name}\n\n{about}"


PARTS: dict[str, Callable[[], str]] = {
    **{
        f"{root} {name}": partial(_field, root, name)
        for root in ROOTS
        for name in _root(root).fields
        if is_shown(name)
    },
    "objects": partial(_types, GraphQLObjectType),
    "interfaces": partial(_types, GraphQLInterfaceType),
    "unions": partial(_types, GraphQLUnionType),
    "inputs": partial(_types, GraphQLInputObjectType),
    "enums": partial(_types, GraphQLEnumType),
    "scalars": partial(_types, GraphQLScalarType),
}
