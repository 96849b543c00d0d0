"""Validation of a row rule: the filter in `@access(rows:)`, in which variables stand for claims.

    { or: [{ ownerId: { eq: $sub } }, { public: { eq: true } }] }

Guarantees: it parses, its fields and operators exist, and its constants are of the fields' types.
The type of a claim is checked per request.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphql.error import GraphQLSyntaxError
from graphql.language import (
    BooleanValueNode,
    EnumValueNode,
    FloatValueNode,
    IntValueNode,
    ListValueNode,
    Node,
    NullValueNode,
    ObjectValueNode,
    StringValueNode,
    ValueNode,
    VariableNode,
    parse_value,
)

from revstream.model.compiler.parsing.declarations import (
    Declarations,
    Kind,
    TypeDeclaration,
)
from revstream.model.compiler.parsing.diagnostics import shortened, written
from revstream.model.compiler.validation.references import named_ids
from revstream.model.definition import EnumType, Scalar
from revstream.model.filter_operators import (
    BOOLEAN_OPERANDS,
    LIST_OPERANDS,
    NUMBER_OPERANDS,
    POINT_INPUTS,
    POINT_OPERANDS,
    TEXT_OPERANDS,
    filter_operators,
    json_path_mistake,
)
from revstream.model.naming import did_you_mean, with_article

__all__ = ["check_rows"]

_LITERALS: dict[Scalar, tuple[type[ValueNode], ...]] = {
    Scalar.ID: (StringValueNode, IntValueNode),
    Scalar.STRING: (StringValueNode,),
    Scalar.INT: (IntValueNode,),
    Scalar.LONG: (IntValueNode, StringValueNode),
    Scalar.FLOAT: (IntValueNode, FloatValueNode),
    Scalar.BOOLEAN: (BooleanValueNode,),
    Scalar.DECIMAL: (IntValueNode, FloatValueNode, StringValueNode),
    Scalar.DATETIME: (StringValueNode,),
    Scalar.DATE: (StringValueNode,),
    Scalar.TIMESTAMP: (StringValueNode,),
    Scalar.OBJECTID: (StringValueNode,),
    Scalar.UUID: (StringValueNode,),
    Scalar.BINARY: (StringValueNode,),
    Scalar.JSON: (StringValueNode, IntValueNode, FloatValueNode, BooleanValueNode),
}


def check_rows(type_: TypeDeclaration, text: str, node: Node, declarations: Declarations) -> None:
    """Report the mistakes in the row rule of an entity.

    Args:
        node: The syntax node of the rule.
    """
    try:
        rule = parse_value(text)
    except GraphQLSyntaxError as error:
        problem = error.message.removeprefix("Syntax Error: ").rstrip(".")
        problem = f"{problem[:1].lower()}{problem[1:]}"
        type_.place.error(
            node,
            f'@access(rows:) is not a filter: {problem}, in "{shortened(text)}"',
            'write it as in a query\'s where: "{ ownerId: { eq: $sub } }"',
        )
        return
    if isinstance(rule, ObjectValueNode) and not rule.fields:
        type_.place.error(
            node,
            "@access(rows:) is empty, expected a filter",
            "name a field, or remove rows",
        )
        return
    _Rule(owner=type_, node=node, declarations=declarations).check(rule, type_)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """Row rule of one type."""

    owner: TypeDeclaration
    node: Node
    declarations: Declarations

    def error(self, problem: str, mend: str) -> None:
        self.owner.place.error(self.node, f"@access(rows:) {problem}", mend)

    def check(self, rule: ValueNode, type_: TypeDeclaration) -> None:
        """A filter over an entity or over an embedded document."""
        if not isinstance(rule, ObjectValueNode):
            self.error(
                f"has {written(rule)}, expected a filter of {type_.name}",
                "write { field: { operator: value } }; a variable replaces a value only",
            )
            return
        for entry in rule.fields:
            self._check_entry(entry.name.value, entry.value, type_)

    def _check_entry(self, name: str, value: ValueNode, type_: TypeDeclaration) -> None:
        collection = type_.directives.one("collection")
        if name in ("and", "or"):
            for each in value.values if isinstance(value, ListValueNode) else (value,):
                self.check(each, type_)
        elif name == "not":
            self.check(value, type_)
        elif collection and name == "version" and collection.text("version") is not None:
            self._check_operators(
                name, value, filter_operators(Scalar.INT, is_list=False), Scalar.INT
            )
        elif not type_.is_entity and type_.member_of is None and name == "exists":
            self._check_literal(f"{type_.name}.exists", value, Scalar.BOOLEAN)
        elif (member := self.declarations.member(type_, name)) is not None:
            self.check(value, member)
        else:
            self._check_field(name, value, type_)

    def _check_field(self, name: str, value: ValueNode, type_: TypeDeclaration) -> None:
        field = type_.fields.get(name)
        if field is None or not field.is_stored:
            reference = field.directives.one("reference") if field else None
            known = [each.name for each in type_.stored_fields]
            by = reference.text("by") if reference else None
            self.error(
                f'names "{name}", expected a stored field of {type_.name}',
                f'did you mean "{by}"?'
                if by
                else did_you_mean(name, known, f"it has {', '.join(known)}"),
            )
            return
        kind = self.declarations.kind(field)
        if kind is None:
            return
        if isinstance(kind, TypeDeclaration) and not field.is_list:
            self.check(value, kind)
        else:
            ids = named_ids(self.declarations)
            if (type_.is_entity and name == "id") or (type_.name, name) in ids:
                # The API shows ID, whatever the id is stored as.
                kind = Scalar.ID
            filtered = None if isinstance(kind, TypeDeclaration) else kind
            operators = filter_operators(filtered, is_list=field.is_list)
            self._check_operators(name, value, operators, kind)

    def _check_operators(
        self, name: str, value: ValueNode, operators: tuple[str, ...], kind: Kind
    ) -> None:
        if not isinstance(value, ObjectValueNode):
            self.error(
                f'has {written(value)} for "{name}"',
                f"write an operator: {name}: {{ {operators[0]}: {written(value)} }}",
            )
            return
        if [entry.name.value for entry in value.fields] == ["path"]:
            self.error(f'has no operator for "{name}", a path alone', "add one, such as exists")
        for entry in value.fields:
            operator = entry.name.value
            path = f"{name}.{operator}"
            if operator not in operators:
                self.error(
                    f'has no operator "{operator}" for "{name}"',
                    did_you_mean(operator, operators, f"it has {', '.join(operators)}"),
                )
            elif operator in BOOLEAN_OPERANDS:
                self._check_literal(path, entry.value, Scalar.BOOLEAN)
            elif operator in NUMBER_OPERANDS:
                self._check_literal(path, entry.value, Scalar.INT)
            elif operator == "matches":
                self.error(
                    f'has "{path}", a regular expression, which only MongoDB evaluates',
                    "use startsWith, endsWith or contains",
                )
            elif operator == "path":
                self._check_path(path, entry.value)
            elif operator in TEXT_OPERANDS:
                self._check_literal(path, entry.value, Scalar.STRING)
            elif operator in POINT_OPERANDS:
                self._check_region(path, entry.value, POINT_OPERANDS[operator])
            elif isinstance(kind, TypeDeclaration):
                self.check(entry.value, kind)
            elif operator in LIST_OPERANDS and isinstance(entry.value, ListValueNode):
                for each in entry.value.values:
                    self._check_literal(path, each, kind)
            elif (
                kind is Scalar.JSON
                and operator in ("lt", "lte", "gt", "gte")
                and isinstance(entry.value, BooleanValueNode)
            ):
                self.error(
                    f'has {written(entry.value)} for "{path}", expected text or a number',
                    "write text or a number, or a variable",
                )
            elif not (operator in ("eq", "ne") and isinstance(entry.value, NullValueNode)):
                self._check_literal(path, entry.value, kind)

    def _check_path(self, path: str, value: ValueNode) -> None:
        if not isinstance(value, StringValueNode):
            self.error(f'has {written(value)} for "{path}", expected text', "write the path itself")
            return
        mistake = json_path_mistake(value.value)
        if mistake is not None:
            expected, mend = mistake.split("; ", 1)
            self.error(f'has {written(value)} for "{path}", expected {expected}', mend)

    def _check_region(self, path: str, value: ValueNode, type_: str) -> None:
        """Check a part of the operand of a filter of points."""
        fields = POINT_INPUTS.get(type_)
        if isinstance(value, VariableNode):
            return
        if fields is None:
            self._check_literal(path, value, Scalar.FLOAT)
        elif type_.startswith("["):
            for each in value.values if isinstance(value, ListValueNode) else (value,):
                self._check_region(path, each, type_[1:-1])
        elif not isinstance(value, ObjectValueNode):
            self.error(
                f'has {written(value)} for "{path}", expected {with_article(type_)}',
                f"write an object with {', '.join(fields)}",
            )
        else:
            for entry in value.fields:
                name = entry.name.value
                if name not in fields:
                    self.error(
                        f'has "{name}" for "{path}", expected {with_article(type_)}',
                        did_you_mean(name, [*fields], f"it has {', '.join(fields)}"),
                    )
                else:
                    self._check_region(f"{path}.{name}", entry.value, fields[name])

    def _check_literal(self, path: str, value: ValueNode, kind: Kind) -> None:
        if isinstance(value, VariableNode):
            return
        if isinstance(kind, EnumType):
            fits = isinstance(value, EnumValueNode) and value.value in kind.values
            expected = f"one of {', '.join(kind.values)}"
        else:
            assert isinstance(kind, Scalar), path
            fits = isinstance(value, _LITERALS[kind])
            expected = kind.value
        if not fits:
            self.error(
                f'has {written(value)} for "{path}", expected {expected}',
                f"write {expected}, or a variable",
            )
