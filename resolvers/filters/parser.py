"""The filter language: what a `where` of the API says, as a condition over stored paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from revstream.model.definition import (
    EmbeddedType,
    Entity,
    Field,
    Model,
    ObjectType,
    Reference,
    Scalar,
)
from revstream.model.filter_operators import filter_operators
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.expression import (
    EVERYTHING,
    NOTHING,
    Compare,
    Comparison,
    Condition,
    In,
    IsList,
    Not,
    Refers,
    Size,
    Some,
    Text,
    all_of,
    any_of,
    negate,
)
from revstream.resolvers.values.input import field_from_api, ids_meant
from revstream.resolvers.values.output import TEXT_IDS, shorten_repr

__all__ = ["Condition", "operators", "parse_where"]

DEEPEST = 20
"""How deep a filter may be nested. MongoDB takes 100 levels, and we make up to 4 of one."""

LONGEST_TEXT = 10_000
"""Characters of a text to search for; MongoDB refuses regular expressions somewhat longer."""

LONGEST_TEXT_IN_ANY_CASE = 1_000
"""The same without regard to case: each character becomes a class of characters."""

LONGEST_TEXT_WITHOUT_ACCENTS = 200
"""The same without regard to accents: each class is larger, and marks may follow."""


def operators(field: Field) -> tuple[str, ...]:
    """Return the operators of a field's filter; see `model.filter_operators`."""
    kind = None if isinstance(field.type, str) else field.type
    return filter_operators(kind, is_list=field.is_list)


HOLDER = Field(name="", stored="", type=Scalar.JSON)
"""A field that holds one embedded document, as far as `exists` cares."""

Check = Callable[[ObjectType, Field | Reference], None]
"""Raises where a field or a reference may not be looked at."""

Operation = Callable[[Field, str, str, object], Condition]


def parse_where(
    model: Model, kind: ObjectType, where: Mapping[str, Any] | None, check: Check | None = None
) -> Condition:
    """Parse a `where` argument with API names; None matches everything.

    Scalars may come as JSON has them or as `resolvers.values.input` made them, enum values as text.

    Args:
        check: called with each field; raises if the caller may not read it.

    Raises:
        BadUserInput: An unknown field or operator, or a wrong value; the message names it.
    """
    if where is None:
        return EVERYTHING
    return _Parser(model, check).where(kind, kind.name, where, "")


class _Parser:
    """`owner` is what messages call a type or field: Product, or Product.dimensions.

    `prefix` is the stored path that leads to the fields of an embedded document, dot included.
    """

    __slots__ = ("check", "depth", "model")

    def __init__(self, model: Model, check: Check | None = None, depth: int = 0) -> None:
        self.model = model
        self.check = check
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
        deeper = _Parser(self.model, self.check, self.depth + 1)

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
                        combine([parse_nested(each) for each in _list(f"{owner}.{name}", value)])
                    )
            elif name == "not":
                if value is not None:
                    conditions.append(negate(parse_nested(value)))
            elif (reference := _reference(kind, name)) is not None:
                if self.check is not None:
                    self.check(kind, reference)
                conditions.append(
                    deeper.reference(kind, reference, f"{owner}.{name}", value, prefix)
                )
            elif name == "exists" and embedded:
                conditions.append(_exists(HOLDER, prefix[:-1], f"{owner}.exists", value))
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
        if not known:
            raise BadUserInput(
                f"{owner}: its type is JSON, which filters do not support; filter by another field"
            )
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
                conditions.append(OPERATIONS[operator](field, path, f"{owner}.{operator}", operand))
        return all_of(conditions)

    def reference(
        self, kind: ObjectType, reference: Reference, owner: str, value: object, prefix: str
    ) -> Condition:
        by = kind.field(reference.by)
        assert by is not None  # checked with the model
        if value is None:
            raise BadUserInput(
                f"{owner}: null, expected an object of conditions; to find documents without it, "
                f"pass {by.name}: {{exists: false}}"
            )
        if prefix and by.stored.isdecimal():
            raise BadUserInput(
                f"{owner}: the stored name of {by.name} is a number, which filters do not support; "
                "filter by another field"
            )
        target = self.model.entity(reference.target)
        inner = self.where(target, target.name, value, "")
        return Refers(prefix + by.stored, owner, target, inner)

    def list_of_embedded(
        self, kind: EmbeddedType, path: str, owner: str, operator: str, operand: object
    ) -> Condition:
        match operator:
            case "size":
                return _size(path, owner, operand)
            case "isEmpty":
                return _is_empty(path, owner, operand)
            case "exists":
                return _list_exists(path, owner, operand)
        item = self.where(kind, owner, operand, "")
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


def _reference(kind: ObjectType, name: str) -> Reference | None:
    return next((each for each in kind.references if each.name == name), None)


def _list(owner: str, value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise BadUserInput(f"{owner}: {shorten_repr(value)}, expected a list")
    return value


def _boolean(owner: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise BadUserInput(f"{owner}: {shorten_repr(value)}, expected true or false")
    return value


# One function per operator: (field, path, owner, operand) -> Condition. The owner names the
# operator too. An operand is None for `eq` and `ne` only.


def _value(field: Field, owner: str, operand: object) -> Any:
    return None if operand is None else field_from_api(field, operand, owner)


def _values(field: Field, owner: str, operand: object) -> tuple[Any, ...]:
    values = _list(owner, operand)
    if any(each is None for each in values):
        raise BadUserInput(
            f"{owner}: null in the list, expected values; to find null values, pass exists: false"
        )
    return tuple(field_from_api(field, each, owner) for each in values)


def _compare(comparison: Comparison) -> Operation:
    def operation(field: Field, path: str, owner: str, operand: object) -> Condition:
        return Compare(path, comparison, _value(field, owner, operand))

    return operation


def _equal(field: Field, path: str, owner: str, operand: object) -> Condition:
    return _equal_to_one(field, path, (_value(field, owner, operand),))


def _in(field: Field, path: str, owner: str, operand: object) -> Condition:
    return _equal_to_one(field, path, _values(field, owner, operand))


def _has_every(field: Field, path: str, owner: str, operand: object) -> Condition:
    values = _values(field, owner, operand)
    return all_of([_equal_to_one(field, path, (value,)) for value in values])


def _equal_to_one(field: Field, path: str, values: Sequence[Any]) -> Condition:
    """Return the condition that one of the values lies there, ids in each type that shows so."""
    if field.type is Scalar.ID and field.stored_scalar in TEXT_IDS:
        values = [id_ for each in values for id_ in ([each] if each is None else ids_meant(each))]
    match values:
        case [] | ():
            return NOTHING
        case [value]:
            return Compare(path, Comparison.EQ, value)
        case _:
            return In(path, tuple(values))


def _text(
    *,
    at_start: bool = False,
    at_end: bool = False,
    ignore_case: bool = False,
    ignore_accents: bool = False,
) -> Operation:
    longest = LONGEST_TEXT_IN_ANY_CASE if ignore_case else LONGEST_TEXT
    if ignore_accents:
        longest = LONGEST_TEXT_WITHOUT_ACCENTS

    def operation(field: Field, path: str, owner: str, operand: object) -> Condition:
        text = _value(field, owner, operand)
        if len(text) > longest:
            raise BadUserInput(
                f"{owner}: {len(text):,} characters, maximum is {longest:,}; shorten the text"
            )
        return Text(path, text, at_start, at_end, ignore_case, ignore_accents)

    return operation


def _exists(field: Field, path: str, owner: str, operand: object) -> Condition:
    if field.is_list:
        return _list_exists(path, owner, operand)
    missing = Compare(path, Comparison.EQ, None)
    return Not(missing) if _boolean(owner, operand) else missing


def _list_exists(path: str, owner: str, operand: object) -> Condition:
    # Equal to None is also a list that holds a null; that one exists.
    missing = all_of([Compare(path, Comparison.EQ, None), Not(IsList(path))])
    return Not(missing) if _boolean(owner, operand) else missing


def _is_empty(path: str, owner: str, operand: object) -> Condition:
    # A list that is missing is neither empty nor not.
    if _boolean(owner, operand):
        return Size(path, 0)
    return all_of([IsList(path), Not(Size(path, 0))])


def _size(path: str, owner: str, operand: object) -> Condition:
    if not isinstance(operand, int) or isinstance(operand, bool) or operand < 0:
        raise BadUserInput(f"{owner}: {shorten_repr(operand)}, expected a number of items, from 0")
    # MongoDB takes no number of items above 32 bits.
    return Size(path, min(operand, 2**31 - 1))


def _negated(operation: Operation) -> Operation:
    return lambda field, path, owner, operand: negate(operation(field, path, owner, operand))


OPERATIONS: Mapping[str, Operation] = {
    "eq": _equal,
    "ne": _negated(_equal),
    "in": _in,
    "notIn": _negated(_in),
    "lt": _compare(Comparison.LT),
    "lte": _compare(Comparison.LTE),
    "gt": _compare(Comparison.GT),
    "gte": _compare(Comparison.GTE),
    "startsWith": _text(at_start=True),
    "endsWith": _text(at_end=True),
    "contains": _text(),
    "eqIgnoreCase": _text(at_start=True, at_end=True, ignore_case=True),
    "startsWithIgnoreCase": _text(at_start=True, ignore_case=True),
    "endsWithIgnoreCase": _text(at_end=True, ignore_case=True),
    "containsIgnoreCase": _text(ignore_case=True),
    "eqIgnoreCaseAndAccents": _text(at_start=True, at_end=True, ignore_accents=True),
    "startsWithIgnoreCaseAndAccents": _text(at_start=True, ignore_accents=True),
    "endsWithIgnoreCaseAndAccents": _text(at_end=True, ignore_accents=True),
    "containsIgnoreCaseAndAccents": _text(ignore_accents=True),
    "exists": _exists,
    "has": _equal,
    "hasSome": _in,
    "hasEvery": _has_every,
    "size": lambda field, path, owner, operand: _size(path, owner, operand),
    "isEmpty": lambda field, path, owner, operand: _is_empty(path, owner, operand),
}
