"""The filter language: what a `where` of the API says, as a condition over stored paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from revstream.model.definition import (
    BackReference,
    EmbeddedType,
    Entity,
    Field,
    Model,
    ObjectType,
    Reference,
    Scalar,
    UnionMember,
)
from revstream.model.filter_operators import filter_operators
from revstream.resolvers.errors import BadUserInput, LimitExceeded
from revstream.resolvers.filters.expression import (
    EVERYTHING,
    Compare,
    Comparison,
    Condition,
    Not,
    Refers,
    Some,
    all_of,
    any_of,
    negate,
    patterns_in,
)
from revstream.resolvers.filters.operations import (
    OPERATIONS,
    as_list,
    exists,
    is_empty,
    json_path,
    list_exists,
    size,
)
from revstream.resolvers.values.output import shorten_repr

__all__ = ["Condition", "operators", "parse_where"]

DEEPEST = 20
"""How deep a filter may be nested. MongoDB takes 100 levels, and we make up to 4 of one."""

MOST_PATTERNS = 3
"""Regular expressions in one filter: MongoDB looks at its time limit between documents only."""


def operators(field: Field) -> tuple[str, ...]:
    """Return the operators of a field's filter; see `model.filter_operators`."""
    kind = None if isinstance(field.type, str) else field.type
    return filter_operators(kind, is_list=field.is_list)


MOST_BYTES = 4 * 1024 * 1024
"""Values of one filter. A variable with a long list may stand in it many times: each of its values
is checked, and written into the query."""

_VALUE_BYTES = 80
"""Beside its characters. MongoDB's planner takes long for tens of thousands of values."""
_CLASS_BYTES = 130
"""Bytes of a character without regard to accents: a class of characters in the query."""

HOLDER = Field(name="", stored="", type=Scalar.STRING)
"""A field that holds one embedded document, as far as `exists` cares."""

Relation = Reference | BackReference

Check = Callable[[ObjectType, Field | Relation], None]
"""Raises where a field or a relation may not be looked at."""

QUANTIFIERS = ("some", "every", "none")


def parse_where(
    model: Model, kind: ObjectType, where: Mapping[str, Any] | None, check: Check | None = None
) -> Condition:
    """Parse a `where` argument with API names; None matches everything.

    Scalars may come as JSON has them or as `resolvers.values.input` made them, enum values as text.

    Args:
        check: called with each field; raises if the caller may not read it.

    Raises:
        BadUserInput: An unknown field or operator, or a wrong value; the message names it.
        LimitExceeded: Too many regular expressions, or too many values.
    """
    if where is None:
        return EVERYTHING
    condition = _Parser(model, check, _Values()).where(kind, kind.name, where, "")
    patterns = len(patterns_in(condition))
    if patterns > MOST_PATTERNS:
        raise LimitExceeded(
            f"regular expressions in a filter: {patterns}, maximum is {MOST_PATTERNS}; use fewer, "
            "or alternatives in one: a|b",
            limit="regular expressions in a filter",
            asked=patterns,
            bound=MOST_PATTERNS,
        )
    return condition


@dataclass(slots=True)
class _Values:
    """Size of the values of one filter."""

    count: int = 0

    def add(self, operator: str, operand: object) -> None:
        """Count an operand before it is checked.

        Raises:
            LimitExceeded: the filter has too many values, or too large ones.
        """
        each_character = _CLASS_BYTES if operator.endswith("IgnoreCaseAndAccents") else 1
        for value in operand if isinstance(operand, list | tuple) else (operand,):
            length = len(value) if isinstance(value, str | bytes) else 0
            self.count += _VALUE_BYTES + length * each_character
        if self.count > MOST_BYTES:
            raise LimitExceeded(
                f"size of the values of a filter: {self.count:,}, maximum is {MOST_BYTES:,}; use "
                "fewer values, shorter ones, or a list once",
                limit="size of the values of a filter",
                asked=self.count,
                bound=MOST_BYTES,
            )


class _Parser:
    """`owner` is what messages call a type or field: Product, or Product.dimensions.

    `prefix` is the stored path that leads to the fields of an embedded document, dot included.
    """

    __slots__ = ("check", "depth", "model", "values")

    def __init__(self, model: Model, check: Check | None, values: _Values, depth: int = 0) -> None:
        self.model = model
        self.check = check
        self.values = values
        self.depth = depth

    def where(
        self, kind: ObjectType, owner: str, where: object, prefix: str, *, embedded: bool = False
    ) -> Condition:
        """An object of fields, combinators, and in an embedded document `exists`."""
        if self.depth > DEEPEST:
            raise BadUserInput(
                f"where: nested more than {DEEPEST} deep, which is the maximum; nest it less"
            )
        if not isinstance(where, Mapping):
            raise BadUserInput(f"{owner}: {shorten_repr(where)}, expected an object of conditions")
        deeper = _Parser(self.model, self.check, self.values, self.depth + 1)

        def parse_nested(each: object) -> Condition:
            return deeper.where(kind, owner, each, prefix, embedded=embedded)

        conditions: list[Condition] = []
        for name, value in where.items():
            field = _field(kind, name)
            if field is not None:
                if self.check is not None:
                    self.check(kind, field)
                conditions.append(deeper.field(field, f"{owner}.{name}", value, prefix))
            elif name in ("and", "or"):
                if value is not None:
                    combine = all_of if name == "and" else any_of
                    conditions.append(
                        combine([parse_nested(each) for each in as_list(f"{owner}.{name}", value)])
                    )
            elif name == "not":
                if value is not None:
                    conditions.append(negate(parse_nested(value)))
            elif (relation := _relation(kind, name)) is not None:
                if self.check is not None:
                    self.check(kind, relation)
                conditions.append(deeper.relation(kind, relation, f"{owner}.{name}", value, prefix))
            elif (member := _member(kind, name)) is not None:
                conditions.append(deeper.member(kind, member, f"{owner}.{name}", value, prefix))
            elif name == "exists" and embedded:
                conditions.append(exists(HOLDER, prefix[:-1], f"{owner}.exists", value))
            else:
                raise BadUserInput(f"{owner}: {shorten_repr(name)}, expected a field to filter by")
        return all_of(conditions)

    def field(self, field: Field, owner: str, value: object, prefix: str) -> Condition:
        path = prefix + field.stored
        if prefix and field.stored.isdecimal():
            # In a path, a number is also an index; MongoDB would look into lists by it.
            raise BadUserInput(
                f"{owner}: its stored name is a number, which filters do not support; filter by "
                "another field"
            )
        known = operators(field)
        if value is None:
            raise BadUserInput(
                f"{owner}: null, expected an object of operators; to find null values, pass "
                "{exists: false}"
            )
        if isinstance(field.type, str) and not field.is_list:
            kind = self.model.embedded(field.type)
            return self.where(kind, owner, value, f"{path}.", embedded=True)
        if not isinstance(value, Mapping):
            raise BadUserInput(f"{owner}: {shorten_repr(value)}, expected an object of operators")
        if field.type is Scalar.JSON:
            path = json_path(path, owner, value)
            value = {name: each for name, each in value.items() if name != "path"}
        conditions = []
        for operator, operand in value.items():
            if operator not in known:
                raise BadUserInput(
                    f"{owner}: {shorten_repr(operator)}, expected one of {', '.join(known)}"
                )
            if operand is None and operator not in ("eq", "ne"):
                raise BadUserInput(
                    f"{owner}.{operator}: null, expected a value; remove the operator"
                )
            if isinstance(field.type, str):
                kind = self.model.embedded(field.type)
                conditions.append(
                    self.list_of_embedded(kind, path, f"{owner}.{operator}", operator, operand)
                )
            else:
                self.values.add(operator, operand)
                conditions.append(OPERATIONS[operator](field, path, f"{owner}.{operator}", operand))
        return all_of(conditions)

    def relation(
        self, kind: ObjectType, relation: Relation, owner: str, value: object, prefix: str
    ) -> Condition:
        target = self.model.entity(relation.target)
        if isinstance(relation, BackReference):
            assert isinstance(kind, Entity)  # checked with the model
            held = target.field(relation.field)
            assert held is not None
            return self.related(Refers(kind.id.stored, owner, target, EVERYTHING, held), value)
        by = kind.field(relation.by)
        assert by is not None
        if prefix and by.stored.isdecimal():
            raise BadUserInput(
                f"{owner}: the stored name of {by.name} is a number, which filters do not support; "
                "filter by another field"
            )
        refers = Refers(prefix + by.stored, owner, target, EVERYTHING)
        if relation.is_list:
            return self.related(refers, value)
        if value is None:
            raise BadUserInput(
                f"{owner}: null, expected an object of conditions; to find documents without it, "
                f"pass {by.name}: {{exists: false}}"
            )
        return replace(refers, condition=self.where(target, target.name, value, ""))

    def related(self, refers: Refers, value: object) -> Condition:
        """Conditions on the documents of a relation to many."""
        owner, target = refers.name, refers.target
        if not isinstance(value, Mapping):
            raise BadUserInput(
                f"{owner}: {shorten_repr(value)}, expected an object with some, every or none"
            )
        conditions: list[Condition] = []
        for quantifier, operand in value.items():
            if quantifier not in QUANTIFIERS:
                raise BadUserInput(
                    f"{owner}: {shorten_repr(quantifier)}, expected one of {', '.join(QUANTIFIERS)}"
                )
            if not isinstance(operand, Mapping):
                raise BadUserInput(
                    f"{owner}.{quantifier}: {shorten_repr(operand)}, expected an object of "
                    "conditions; {} matches every document"
                )
            inner = self.where(target, target.name, operand, "")
            if quantifier == "every":
                inner = negate(inner)
            found = replace(refers, name=f"{owner}.{quantifier}", condition=inner)
            conditions.append(found if quantifier == "some" else negate(found))
        return all_of(conditions)

    def member(
        self, kind: ObjectType, member: UnionMember, owner: str, value: object, prefix: str
    ) -> Condition:
        """A document of one member of a union, which meets the conditions."""
        if value is None:
            raise BadUserInput(
                f"{owner}: null, expected an object of conditions; to find documents of other "
                f"types, pass not: {{{member.key}: {{}}}}"
            )
        assert kind.discriminator is not None
        stored = kind.discriminator.stored
        is_member = Compare(prefix + stored, Comparison.EQ, member.value)
        inner = self.where(self.model.member(member.type), owner, value, prefix)
        return all_of([is_member, inner])

    def list_of_embedded(
        self, kind: EmbeddedType, path: str, owner: str, operator: str, operand: object
    ) -> Condition:
        match operator:
            case "size":
                return size(path, owner, operand)
            case "isEmpty":
                return is_empty(path, owner, operand)
            case "exists":
                return list_exists(path, owner, operand)
        item = self.where(kind, owner, operand, "")
        for each in patterns_in(item):
            # The steps are limited for each text, and a document may hold very many items.
            raise BadUserInput(
                f"{each.name}: a regular expression for items of a list, which is not supported; "
                "use startsWith, endsWith or contains"
            )
        match operator:
            case "some":
                return Some(path, item)
            case "none":
                return Not(Some(path, item))
            case _:
                return Not(Some(path, negate(item)))


def _field(kind: ObjectType, name: str) -> Field | None:
    if name == "version" and isinstance(kind, Entity) and kind.version is not None:
        return Field(name=name, stored=kind.version, type=Scalar.INT)
    return kind.field(name)


def _relation(kind: ObjectType, name: str) -> Relation | None:
    relations: list[Relation] = [*kind.references]
    if isinstance(kind, Entity):
        relations += kind.back_references
    return next((each for each in relations if each.name == name), None)


def _member(kind: ObjectType, key: str) -> UnionMember | None:
    members = kind.discriminator.members if kind.discriminator else ()
    return next((each for each in members if each.key == key), None)
