"""Conditions of Atlas App Services' rules, as filters of `@access(rows:)`.

`{ "owner_id": "%%user.id" }` gives `{ ownerId: { eq: $sub } }`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from revstream.model.definition import Scalar
from revstream.model.importing.draft_fields import find_field
from revstream.model.inference.draft_builder import ModelDraft
from revstream.model.inference.draft_types import DraftType
from revstream.model.naming import is_name

__all__ = ["ClaimValue", "Joint", "Row", "Test", "Untranslated", "parse_rows", "rows_text", "split"]

_OPERATORS = {
    "eq": "eq",
    "ne": "ne",
    "in": "in",
    "nin": "notIn",
    "gt": "gt",
    "gte": "gte",
    "lt": "lt",
    "lte": "lte",
    "exists": "exists",
}
_ROOT = "%%root."
_CLAIMS = ("%%user.custom_data.", "%%user.data.")
_TEXTS = frozenset({Scalar.STRING, Scalar.ID})
_NUMBERS = frozenset({Scalar.INT, Scalar.LONG, Scalar.FLOAT, Scalar.DECIMAL})


class Untranslated(ValueError):
    """A condition that row rules cannot express; the text says which."""


@dataclass(frozen=True, slots=True)
class ClaimValue:
    """ClaimValue of the caller, by its name as a variable of a row rule."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """Comparison of a stored field with a literal, literals or a claim."""

    path: tuple[str, ...]
    operator: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """Conditions joined by `and` or `or`."""

    word: str
    parts: tuple[Row, ...]


Row = Test | Joint


def split(apply_when: object) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Return the parts of a condition about the caller alone, and those about the document."""
    if apply_when is True:
        return [], []
    if not isinstance(apply_when, Mapping):
        return [{"%%true": apply_when}], []
    user: list[Mapping[str, Any]] = []
    document: list[Mapping[str, Any]] = []
    for key, value in apply_when.items():
        if key in ("%and", "$and") and isinstance(value, list):
            for each in value:
                of_user, of_document = split(each)
                user += of_user
                document += of_document
        else:
            part = {key: value}
            (document if _about_document(part) else user).append(part)
    return user, document


def _about_document(condition: object) -> bool:
    if isinstance(condition, str):
        return condition.startswith(("%%root", "%%prevRoot", "%%this", "%%prev"))
    if isinstance(condition, list):
        return any(map(_about_document, condition))
    if not isinstance(condition, Mapping):
        return False
    for key, value in condition.items():
        if _about_document(key) or key[:1] not in ("%", "$"):
            return True
        inner = value.get("arguments") if key == "%function" and isinstance(value, dict) else value
        if _about_document(inner):
            return True
    return False


def parse_rows(condition: object) -> Row | None:
    """Return a condition about documents; None if it is always true.

    Raises:
        Untranslated: It is about something else.
    """
    if condition is True or condition == {}:
        return None
    if not isinstance(condition, Mapping):
        raise Untranslated(_shown(condition))
    return joined("and", (each for item in condition.items() for each in _entry(*item)))


def joined(word: str, parts: Iterable[Row]) -> Row:
    """Return the parts as one condition."""
    found = tuple(dict.fromkeys(parts))
    return found[0] if len(found) == 1 else Joint(word=word, parts=found)


def _entry(key: str, value: Any) -> list[Row]:
    shown = _shown({key: value})
    if key in ("%and", "$and", "%or", "$or"):
        inner = [parse_rows(each) for each in value] if isinstance(value, list) else []
        if not inner or None in inner:
            raise Untranslated(shown)
        return [joined(key[1:], [each for each in inner if each is not None])]
    if key.startswith(_ROOT):
        return _tests(tuple(key.removeprefix(_ROOT).split(".")), value, shown)
    if isinstance(value, str) and value.startswith(_ROOT) and _claim(key):
        # The claim is named first.
        return _tests(tuple(value.removeprefix(_ROOT).split(".")), key, shown)
    if key[:1] in ("%", "$"):
        raise Untranslated(shown)
    return _tests(tuple(key.split(".")), value, shown)


def _tests(path: tuple[str, ...], value: Any, shown: str) -> list[Row]:
    if not isinstance(value, Mapping):
        return [Test(path=path, operator="eq", value=_value(value, shown))]
    found: list[Row] = []
    for sign, operand in value.items():
        operator = _OPERATORS.get(sign[1:]) if sign[:1] in ("%", "$") else None
        if operator is None or (operator == "exists" and not isinstance(operand, bool)):
            raise Untranslated(shown)
        if operator in ("in", "notIn") and isinstance(operand, list):
            values = tuple(_value(each, shown) for each in operand)
            if any(isinstance(each, ClaimValue) for each in values):
                raise Untranslated(shown)
            found.append(Test(path=path, operator=operator, value=values))
        else:
            found.append(Test(path=path, operator=str(operator), value=_value(operand, shown)))
    if not found:
        raise Untranslated(shown)
    return found


def _value(value: Any, shown: str) -> Any:
    if isinstance(value, str) and value.startswith("%"):
        claim = _claim(value)
        if claim is None:
            raise Untranslated(shown)
        return claim
    if not isinstance(value, str | int | float):
        raise Untranslated(shown)
    return value


def _claim(text: str) -> ClaimValue | None:
    """Return the claim that takes the place of a fact about App Services' user."""
    if text == "%%user.id":
        return ClaimValue("sub")
    for prefix in _CLAIMS:
        name = text.removeprefix(prefix).replace(".", "__")
        if text.startswith(prefix) and is_name(name):
            return ClaimValue(name)
    return None


def rows_text(row: Row, type_: DraftType, draft: ModelDraft) -> str:
    """Return a condition as a filter of a type.

    Raises:
        Untranslated: The type has no such field, or it cannot be compared like this.
    """
    if isinstance(row, Joint):
        inner = ", ".join(rows_text(each, type_, draft) for each in row.parts)
        return f"{{ {row.word}: [{inner}] }}"
    found = find_field(draft, type_, row.path)
    where = f'"{".".join(row.path)}"'
    if found is None:
        raise Untranslated(f"{where}, which cannot be compared")
    names, kind, is_list, values = found
    operator = row.operator
    if is_list:
        # App Services compares with each item of a list.
        operator = {"eq": "has", "in": "hasSome", "exists": "exists"}.get(operator, "")
    if not operator:
        raise Untranslated(f"{where}, a list, by {row.operator}")
    text = f"{{ {operator}: {_operand(row, kind, values, where)} }}"
    for name in reversed(names):
        text = f"{{ {name}: {text} }}"
    return text


def _operand(row: Test, kind: Scalar | None, values: Mapping[str, str], where: str) -> str:
    if isinstance(row.value, tuple):
        return f"[{', '.join(_literal(each, kind, values, where) for each in row.value)}]"
    if row.operator == "exists":
        return json.dumps(row.value)
    return _literal(row.value, kind, values, where)


def _literal(value: Any, kind: Scalar | None, values: Mapping[str, str], where: str) -> str:
    if isinstance(value, ClaimValue):
        return f"${value.name}"
    if kind is None:
        if value in values:
            return values[value]
    elif isinstance(value, bool):
        if kind is Scalar.BOOLEAN:
            return json.dumps(value)
    elif isinstance(value, str):
        if kind in _TEXTS:
            return json.dumps(value)
    elif kind in _NUMBERS and (isinstance(value, int) or kind in (Scalar.FLOAT, Scalar.DECIMAL)):
        return json.dumps(value)
    raise Untranslated(f"{where}, compared with {json.dumps(value)}")


def _shown(condition: object) -> str:
    return json.dumps(condition)
