"""Conditions on documents, over the paths under which they are stored.

Made by `resolvers.filters.parser` from what a request says. One language, two uses:
`resolvers.filters.mongo_query` renders a condition for MongoDB, `resolvers.filters.predicate`
evaluates it on a document in memory, and both mean the same by it, for documents that do not fit
the model too: docs/decisions/0003-filters.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from revstream.model.definition import Entity, Field
from revstream.resolvers.filters.regions import Region

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "All",
    "AnyOf",
    "Compare",
    "Comparison",
    "Condition",
    "HasValue",
    "In",
    "IsList",
    "Matches",
    "Not",
    "Refers",
    "Search",
    "Size",
    "Some",
    "Text",
    "Within",
    "all_of",
    "any_of",
    "negate",
    "paths",
    "patterns_in",
    "searched_text",
    "searches",
]


class Comparison(Enum):
    """Comparison; the value is MongoDB's operator."""

    EQ = "$eq"
    LT = "$lt"
    LTE = "$lte"
    GT = "$gt"
    GTE = "$gte"


@dataclass(frozen=True, slots=True)
class All:
    """Conjunction; of no conditions: everything matches."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Disjunction; of no conditions: nothing matches."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Not:
    condition: Condition


@dataclass(frozen=True, slots=True)
class Compare:
    """The value, or one of a list, compares so with `value` and is of its kind, as numbers are.

    Equal to None is also what is missing.
    """

    path: str
    comparison: Comparison
    value: Any


@dataclass(frozen=True, slots=True)
class In:
    """The value, or one of a list, is equal to one of `values`, none of which is None."""

    path: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Text:
    """The value, or one of a list, is a string with `text` in it, at its start or at its end.

    Attributes:
        at_end: with `at_start`, the whole string is `text`.
        ignore_case: characters are equal that `case_folding` folds to the same one.
        ignore_accents: texts are equal that `accent_folding` folds to the same one, whatever
            their case.
    """

    path: str
    text: str
    at_start: bool = False
    at_end: bool = False
    ignore_case: bool = False
    ignore_accents: bool = False


@dataclass(frozen=True, slots=True)
class Matches:
    """The value, or one of a list, is a string that a regular expression matches.

    Only MongoDB evaluates it. Made by `resolvers.filters.pattern`.

    Attributes:
        name: the field and operator, for error messages.
    """

    path: str
    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class HasValue:
    """There is a value other than null; a list is one, whatever it holds."""

    path: str


@dataclass(frozen=True, slots=True)
class IsList:
    """The value is a list."""

    path: str


@dataclass(frozen=True, slots=True)
class Size:
    """The value is a list with this number of items."""

    path: str
    count: int


@dataclass(frozen=True, slots=True)
class Some:
    """A list with a document that meets `condition`, whose paths begin there."""

    path: str
    condition: Condition


@dataclass(frozen=True, slots=True)
class Within:
    """The value is a point in a region."""

    path: str
    region: Region


@dataclass(frozen=True, slots=True)
class Search:
    """The words of the text are in the fields of the text index.

    MongoDB alone decides it, and only once for a filter, as one of the conditions of all.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Refers:
    """The value, or one of a list, is the id of a document of `target` that meets `condition`.

    `reference_filters` replaces it by the ids that lead to such documents for this caller, before
    the condition is rendered or compiled.

    Attributes:
        name: the reference, for error messages.
        by: of a back reference: the field of `target` that holds the value.
    """

    path: str
    name: str
    target: Entity
    condition: Condition
    by: Field | None = None


Condition = (
    All
    | AnyOf
    | Not
    | Compare
    | In
    | Text
    | Matches
    | HasValue
    | IsList
    | Size
    | Some
    | Within
    | Search
    | Refers
)

EVERYTHING: Final = All(())
NOTHING: Final = AnyOf(())


def all_of(conditions: Sequence[Condition]) -> Condition:
    """Return the conjunction, flattened."""
    flat: list[Condition] = []
    for each in conditions:
        if each == NOTHING:
            return NOTHING
        flat.extend(each.conditions if isinstance(each, All) else (each,))
    return flat[0] if len(flat) == 1 else All(tuple(flat))


def any_of(conditions: Sequence[Condition]) -> Condition:
    """Return the disjunction, flattened, with one `In` for each path.

    For the union of two lists of 20,000 ids, MongoDB's planner takes seconds, without a time limit.
    """
    flat: list[Condition] = []
    values: dict[str, list[Any]] = {}
    for each in conditions:
        if each == EVERYTHING:
            return EVERYTHING
        for one in each.conditions if isinstance(each, AnyOf) else (each,):
            if isinstance(one, In) and one.path in values:
                values[one.path] += one.values
                continue
            if isinstance(one, In):
                values[one.path] = [*one.values]
            flat.append(one)
    flat = [In(one.path, tuple(values[one.path])) if isinstance(one, In) else one for one in flat]
    return flat[0] if len(flat) == 1 else AnyOf(tuple(flat))


def negate(condition: Condition) -> Condition:
    if condition == EVERYTHING:
        return NOTHING
    if condition == NOTHING:
        return EVERYTHING
    return condition.condition if isinstance(condition, Not) else Not(condition)


def searched_text(condition: Condition | None) -> str | None:
    """Return the words that a filter searches; None if it searches none."""
    parts = condition.conditions if isinstance(condition, All) else (condition,)
    return next((each.text for each in parts if isinstance(each, Search)), None)


def searches(condition: Condition | None) -> bool:
    """Return whether a filter searches words."""
    return searched_text(condition) is not None


def paths(condition: Condition) -> frozenset[str]:
    """The stored paths that decide, as a projection may name them: none lies inside another."""
    if condition is EVERYTHING:
        return frozenset()
    found = _paths(condition)
    return frozenset(path for path in found if not any(path.startswith(f"{p}.") for p in found))


def _paths(condition: Condition) -> set[str]:
    match condition:
        case All(conditions) | AnyOf(conditions):
            return set().union(*map(_paths, conditions))
        case Not(inner):
            return _paths(inner)
        case Search():
            return set()
        case _:
            return {condition.path}


def patterns_in(condition: Condition) -> list[Matches]:
    """Return the regular expressions of a condition, without those on other entities."""
    match condition:
        case All(conditions) | AnyOf(conditions):
            return [found for each in conditions for found in patterns_in(each)]
        case Not(inner) | Some(_, inner):
            return patterns_in(inner)
        case Matches():
            return [condition]
        case _:
            return []
