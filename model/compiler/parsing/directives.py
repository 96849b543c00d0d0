"""Read the directives on a type or field, and check them against the language.

A misspelt directive or argument is reported, and then read as the one that was probably meant, so
that one slip of the pen does not show as five mistakes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from graphql.language import (
    BooleanValueNode,
    DirectiveDefinitionNode,
    DirectiveNode,
    EnumValueNode,
    InputValueDefinitionNode,
    IntValueNode,
    ListTypeNode,
    ListValueNode,
    NamedTypeNode,
    Node,
    NonNullTypeNode,
    NullValueNode,
    StringValueNode,
    TypeNode,
    ValueNode,
    print_ast,
)

from revstream.model.compiler.parsing.diagnostics import DeclarationLocation, written
from revstream.model.compiler.parsing.directive_definitions import DIRECTIVES, ENUMS
from revstream.model.naming import did_you_mean, suggestion, with_article

__all__ = ["DirectiveUsage", "Directives", "Spot", "Value", "read_directives"]

Value = str | bool | int | tuple[str | int, ...] | None


class Spot(Enum):
    """Kind of place where a directive is allowed: GraphQL's name for it, and its name in words."""

    TYPE = ("OBJECT", "type")
    INTERFACE = ("INTERFACE", "interface")
    UNION = ("UNION", "union")
    FIELD = ("FIELD_DEFINITION", "field")
    ENUM = ("ENUM", "enum")
    ENUM_VALUE = ("ENUM_VALUE", "enum value")

    @property
    def location(self) -> str:
        return self.value[0]

    @property
    def word(self) -> str:
        return self.value[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectiveUsage:
    """Parsed use of a directive.

    Absent arguments have their defaults; invalid ones are missing.
    """

    name: str
    node: DirectiveNode
    arguments: Mapping[str, Value]
    nodes: Mapping[str, Node] = field(default_factory=dict)

    def text(self, argument: str) -> str | None:
        """The value of a String argument; None where it is null or broken."""
        value = self.arguments.get(argument)
        return value if isinstance(value, str) else None

    def texts(self, argument: str) -> tuple[str, ...] | None:
        """The values of a list argument; None where it is null or broken."""
        value = self.arguments.get(argument)
        if not isinstance(value, tuple):
            return None
        return tuple(each for each in value if isinstance(each, str))

    def numbers(self, argument: str) -> tuple[int, ...] | None:
        """The values of a list of Int; None where it is null or broken."""
        value = self.arguments.get(argument)
        if not isinstance(value, tuple):
            return None
        return tuple(each for each in value if isinstance(each, int))

    def number(self, argument: str) -> int | None:
        """The value of an Int argument; None where it is null or broken."""
        value = self.arguments.get(argument)
        return value if isinstance(value, int) else None

    def flag(self, argument: str) -> bool:
        """Return whether a Boolean argument is true."""
        return self.arguments.get(argument) is True

    def at(self, argument: str) -> Node:
        """Return the node of an argument, or of the directive if the argument is absent."""
        return self.nodes.get(argument, self.node)


@dataclass(frozen=True, slots=True)
class Directives:
    """The directives of one type or field, in the order written."""

    applied: tuple[DirectiveUsage, ...] = ()

    def __contains__(self, name: str) -> bool:
        return self.one(name) is not None

    def one(self, name: str) -> DirectiveUsage | None:
        """The first directive of that name, or None."""
        return next((each for each in self.applied if each.name == name), None)

    def all(self, name: str) -> tuple[DirectiveUsage, ...]:
        """Every directive of that name."""
        return tuple(each for each in self.applied if each.name == name)


def read_directives(
    nodes: Sequence[DirectiveNode] | None, spot: Spot, place: DeclarationLocation
) -> Directives:
    """Return the known directives that are allowed here. The others are reported."""
    applied: list[DirectiveUsage] = []
    for node in nodes or ():
        definition = _definition(node, spot, place)
        if definition is None:
            continue
        name = definition.name.value
        if not definition.repeatable and any(each.name == name for each in applied):
            place.error(node, f"@{name}: twice, expected once", "remove one of them")
            continue
        applied.append(_read_arguments(node, definition, place))
    return Directives(tuple(applied))


def _definition(
    node: DirectiveNode, spot: Spot, place: DeclarationLocation
) -> DirectiveDefinitionNode | None:
    name = node.name.value
    here = [key for key, each in DIRECTIVES.items() if _may_stand(each, spot)]
    if name not in DIRECTIVES:
        meant = suggestion(name, here)
        known = ", ".join(f"@{each}" for each in here)
        mend = (
            f'did you mean "@{meant}"?'
            if meant
            else f"expected on {with_article(spot.word)}: {known}"
            if here
            else f"remove it; {with_article(spot.word)} takes no directives"
        )
        place.error(node, f"@{name}: unknown directive", mend)
        return DIRECTIVES[meant] if meant else None
    definition = DIRECTIVES[name]
    if not _may_stand(definition, spot):
        wanted = " or ".join(
            with_article(each.word) for each in Spot if _may_stand(definition, each)
        )
        place.error(
            node,
            f"@{name} on {with_article(spot.word)}, expected on {wanted}",
            f"move it to {wanted}, or remove it",
        )
        return None
    return definition


def _may_stand(definition: DirectiveDefinitionNode, spot: Spot) -> bool:
    return any(each.value == spot.location for each in definition.locations)


def _read_arguments(
    node: DirectiveNode, definition: DirectiveDefinitionNode, place: DeclarationLocation
) -> DirectiveUsage:
    name = definition.name.value
    known = {each.name.value: each for each in definition.arguments or ()}
    values: dict[str, Value] = {}
    nodes: dict[str, Node] = {}
    for argument in node.arguments or ():
        key = argument.name.value
        if key not in known:
            meant = suggestion(key, known)
            otherwise = (
                f"expected {', '.join(known)}" if known else "remove it; it has no arguments"
            )
            place.error(
                argument,
                f'@{name}: unknown argument "{key}"',
                f'did you mean "{meant}"?' if meant else otherwise,
            )
            if meant is None or meant in nodes:
                continue
            key = meant
        if key in nodes:
            place.error(
                argument, f'@{name}: argument "{key}" twice, expected once', "remove one of them"
            )
            continue
        nodes[key] = argument
        try:
            values[key] = _coerce(argument.value, known[key].type)
        except _Mismatch as mismatch:
            place.error(
                argument,
                f"@{name}({key}: {written(argument.value)}): {mismatch.problem}",
                mismatch.mend,
            )
    for key, declared in known.items():
        if key in nodes:
            continue
        if declared.default_value is not None:
            values[key] = _coerce(declared.default_value, declared.type)
        elif isinstance(declared.type, NonNullTypeNode):
            place.error(
                node,
                f'@{name}: argument "{key}" missing, expected one',
                f"write {_usage(name, known)}",
            )
        else:
            values[key] = None
    return DirectiveUsage(name=name, node=node, arguments=values, nodes=nodes)


def _usage(name: str, known: Mapping[str, InputValueDefinitionNode]) -> str:
    """`@reference(by: "…")`: the directive with the arguments that it must have."""
    needed = [
        f'{key}: ["…"]' if "[" in print_ast(each.type) else f'{key}: "…"'
        for key, each in known.items()
        if isinstance(each.type, NonNullTypeNode) and each.default_value is None
    ]
    return f"@{name}({', '.join(needed)})"


class _Mismatch(Exception):
    """A value of another kind than its argument's."""

    def __init__(self, problem: str, mend: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.mend = mend


def _coerce(value: ValueNode, type_: TypeNode) -> Value:
    if isinstance(type_, NonNullTypeNode):
        if isinstance(value, NullValueNode):
            raise _Mismatch(
                f"null, expected {_expected(type_.type)}",
                "give a value",
            )
        return _coerce(value, type_.type)
    if isinstance(value, NullValueNode):
        return None
    if isinstance(type_, ListTypeNode):
        # GraphQL takes one value for a list of one.
        values = value.values if isinstance(value, ListValueNode) else (value,)
        items = [_coerce(each, type_.type) for each in values]
        return tuple(each for each in items if isinstance(each, str | int))
    assert isinstance(type_, NamedTypeNode)
    return _coerce_named(value, type_.name.value)


def _coerce_named(value: ValueNode, name: str) -> Value:
    if name == "String" and isinstance(value, StringValueNode):
        return value.value
    if name == "Boolean" and isinstance(value, BooleanValueNode):
        return value.value
    if name == "Int" and isinstance(value, IntValueNode):
        return int(value.value)
    if name in ENUMS:
        choices = ENUMS[name]
        written = value.value if isinstance(value, EnumValueNode | StringValueNode) else ""
        if isinstance(value, EnumValueNode) and written in choices:
            return written
        if written in choices:
            raise _Mismatch("the values of an enum have no quotes", f"write {written}")
        raise _Mismatch(
            f"expected {_expected_name(name)}",
            did_you_mean(written, choices, f"choose from {', '.join(choices)}"),
        )
    mends = {
        "String": 'write a text in double quotes: "…"',
        "Boolean": "write true or false",
        "Int": "write it in digits, without quotes",
    }
    raise _Mismatch(f"expected {_expected_name(name)}", mends[name])


def _expected(type_: TypeNode) -> str:
    if isinstance(type_, ListTypeNode):
        return f"a list, {print_ast(type_)}"
    assert isinstance(type_, NamedTypeNode)
    return _expected_name(type_.name.value)


def _expected_name(name: str) -> str:
    words = {"String": "a text", "Boolean": "true or false", "Int": "a whole number"}
    return words.get(name, f"one of {', '.join(ENUMS.get(name, ()))}")
