"""Hints for values of input objects: what is no object, unknown fields, and oneOf inputs.

Each kind of mistake is a row of `_NOT_AN_OBJECT` or `_UNKNOWN_FIELD`; the first row with a hint is
used. Rows go by the fields of the type, and not by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from graphql import (
    GraphQLBoolean,
    GraphQLInputObjectType,
    GraphQLInputType,
    get_named_type,
    get_nullable_type,
    is_enum_type,
    is_input_object_type,
    is_list_type,
)

from revstream.gql.engine.hints.given import ELLIPSIS, Given
from revstream.gql.engine.internals.strawberry import is_one_of

__all__ = ["hint_for_unknown_field", "hint_for_value"]

_NotAnObject: TypeAlias = "Callable[[GraphQLInputObjectType, Given, bool], str | None]"
_Unknown: TypeAlias = "Callable[[GraphQLInputObjectType, str, Given], str | None]"

# The operator that a value without one means, and the time of `asOf`.
_OPERATORS = ("eq", "in", "has", "time")
# Inputs around those of the model: of groups, and of related documents.
_AROUND = ("sum", "key", "some")
# Names of other query languages -> the operators that mean the same.
_SYNONYMS = {
    "regex": ("matches",),
    "regexp": ("matches",),
    "like": ("contains", "containsIgnoreCase"),
    "ilike": ("containsIgnoreCase",),
    "icontains": ("containsIgnoreCase",),
    "equals": ("eq",),
    "neq": ("ne",),
    "nin": ("notIn",),
    "isNull": ("exists",),
}
_MOST_NAMES = 10


def hint_for_value(type_: GraphQLInputObjectType, given: Given, *, in_list: bool) -> str | None:
    """Return a hint for a value that is no object, or has not exactly one field of a oneOf input.

    Args:
        in_list: a list of such objects may stand in its place.
    """
    if given.fields is not None:
        return _one_of(type_, given, in_list) if is_one_of(type_) else None
    return _first(row(type_, given, in_list) for row in _NOT_AN_OBJECT)


def hint_for_unknown_field(type_: GraphQLInputObjectType, name: str, given: Given) -> str | None:
    """Return a hint for a field that the type has not.

    Args:
        given: the value of the field.
    """
    return _first(row(type_, name, given) for row in _UNKNOWN_FIELD)


def _operator(type_: GraphQLInputObjectType, given: Given, in_list: bool) -> str | None:
    known = [name for name in _OPERATORS if name in type_.fields]
    for name in known:
        if given.fits(type_.fields[name].type):
            return _write(given.write_object({name: given.text}))
    return _write(given.write_object({"eq": ELLIPSIS})) if "eq" in known else None


def _bucket(type_: GraphQLInputObjectType, given: Given, in_list: bool) -> str | None:
    written = _bucket_of(type_, given)
    return None if written is None else _write(written)


def _names(type_: GraphQLInputObjectType, given: Given, in_list: bool) -> str | None:
    """Write names of fields as an object: `"status"` as `{ status: true }`."""
    words = [each.word for each in ([given] if given.items is None else given.items)]
    examples = {
        word: _example(type_.fields[word].type, given)
        for word in words
        if word is not None and word in type_.fields
    }
    fields = {word: example for word, example in examples.items() if example is not None}
    if not fields or len(fields) < len(words):
        return None
    return _write_fields(type_, given, fields, in_list)


def _choice(type_: GraphQLInputObjectType, given: Given, in_list: bool) -> str | None:
    return _expected(type_) if is_one_of(type_) else None


def _synonym(type_: GraphQLInputObjectType, name: str, given: Given) -> str | None:
    known = [f"'{each}'" for each in _SYNONYMS.get(name, ()) if each in type_.fields]
    return f"Did you mean {' or '.join(known)}?" if known else None


def _inside(type_: GraphQLInputObjectType, name: str, given: Given) -> str | None:
    """Write the field in an input of the type: in one around it, or in the only one that has it."""
    holders: dict[str, GraphQLInputType] = {}
    for each, field in type_.fields.items():
        inner = get_nullable_type(field.type)
        if is_input_object_type(inner) and inner is not type_ and name in inner.fields:
            holders[each] = inner.fields[name].type
    around = [each for each in _AROUND if each in holders]
    if not around and len(holders) != 1:
        return None
    written = []
    for each in around or holders:
        value = given.text if given.fits(holders[each]) else ELLIPSIS
        written.append(given.write_object({each: given.write_object({name: value})}))
    return _write(" or ".join(written))


_NOT_AN_OBJECT: Sequence[_NotAnObject] = (_operator, _bucket, _names, _choice)
_UNKNOWN_FIELD: Sequence[_Unknown] = (_synonym, _inside)


def _one_of(type_: GraphQLInputObjectType, given: Given, in_list: bool) -> str | None:
    assert given.fields is not None
    if len(given.fields) == 1:
        # Its value is null, or a variable that may be.
        return None
    known = {name: each.text for name, each in given.fields.items() if name in type_.fields}
    return _write_fields(type_, given, known, in_list)


def _write_fields(
    type_: GraphQLInputObjectType, given: Given, fields: dict[str, str], in_list: bool
) -> str:
    if len(fields) == 1 or (fields and not is_one_of(type_)):
        return _write(given.write_object(fields))
    if fields and in_list:
        objects = [given.write_object({name: value}) for name, value in fields.items()]
        return _write(given.write_list(objects))
    return _expected(type_)


def _example(type_: GraphQLInputType, given: Given) -> str | None:
    """Return a value of a type that has an obvious one."""
    if is_list_type(get_nullable_type(type_)):
        return None
    named = get_named_type(type_)
    if named is GraphQLBoolean:
        return "true"
    if is_enum_type(named) and "ASC" in named.values:
        return given.write_enum("ASC")
    return _bucket_of(named, given) if is_input_object_type(named) else None


def _bucket_of(type_: GraphQLInputObjectType, given: Given) -> str | None:
    units = get_named_type(type_.fields["by"].type) if "by" in type_.fields else None
    if not is_enum_type(units) or "DAY" not in units.values:
        return None
    word = given.word or ""
    return given.write_object({"by": given.write_enum(word if word in units.values else "DAY")})


def _expected(type_: GraphQLInputObjectType) -> str:
    names = list(type_.fields)
    shown = names if len(names) <= _MOST_NAMES else [*names[:_MOST_NAMES], ELLIPSIS]
    return f"Expected one of {', '.join(shown)}."


def _write(written: str) -> str:
    return f"Write {written}."


def _first(hints: Iterable[str | None]) -> str | None:
    return next((each for each in hints if each is not None), None)
