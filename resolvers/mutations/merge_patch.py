"""Merge patches (RFC 7396) of stored documents, applied by MongoDB or by Python.

MongoDB gets an aggregation expression, so that the patch, its increments and the version number are
one atomic change of one document. Nothing in it is interpreted as an operator or a path: names in
JSON fields may begin with `$` and contain dots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from revstream.streams.mongo.driver.codecs import Document

__all__ = [
    "REMOVED",
    "Merge",
    "apply_merge",
    "field_expression",
    "merge_from_paths",
    "object_expression",
]

Expression = Any

REMOVED: Final = object()
"""Value of a name that is to be removed."""


@dataclass(frozen=True, slots=True)
class Merge:
    """Patch by name: REMOVED, another `Merge` for an inner object, or the new value.

    `only_over`: a name and its value; any other target counts as empty.
    """

    entries: Mapping[str, Any] = field(default_factory=dict)
    only_over: tuple[str, str] | None = None

    def expression(
        self, target: Expression = "$$ROOT", more: Mapping[str, Expression] | None = None
    ) -> Expression:
        """Return an expression for the merged object; a `target` that is no object counts as empty.

        Args:
            more: values of further names, as expressions in which `$$old` is the object before.
        """
        removed = [name for name, value in self.entries.items() if value is REMOVED]
        inner = {n: v for n, v in self.entries.items() if isinstance(v, Merge)}
        plain = {
            n: v for n, v in self.entries.items() if v is not REMOVED and not isinstance(v, Merge)
        }
        computed = {
            **{
                name: each.expression(field_expression("$$old", name))
                for name, each in inner.items()
            },
            **(more or {}),
        }
        parts: list[Expression] = [_without("$$old", removed) if removed else "$$old"]
        if plain:
            parts.append({"$literal": plain})
        if computed:
            parts.append(object_expression(computed))
        is_object: Expression = {"$eq": [{"$type": target}, "object"]}
        if self.only_over is not None:
            name, value = self.only_over
            same = {"$eq": [field_expression(target, name), {"$literal": value}]}
            is_object = {"$cond": [is_object, same, False]}
        old = target if target == "$$ROOT" else {"$cond": [is_object, target, {"$literal": {}}]}
        return {"$let": {"vars": {"old": old}, "in": {"$mergeObjects": parts}}}


def field_expression(target: Expression, name: str) -> Expression:
    """Return an expression for a field of an object, whatever characters its name contains."""
    return {"$getField": {"field": {"$literal": name}, "input": target}}


def object_expression(values: Mapping[str, Expression]) -> Expression:
    """Return an expression for an object whose keys may begin with `$`."""
    return {
        "$arrayToObject": [[{"k": {"$literal": name}, "v": each} for name, each in values.items()]]
    }


def _without(target: Expression, names: Sequence[str]) -> Expression:
    kept = {"$not": {"$in": ["$$each.k", {"$literal": list(names)}]}}
    entries = {"$objectToArray": target}
    return {"$arrayToObject": {"$filter": {"input": entries, "as": "each", "cond": kept}}}


def apply_merge(merge: Merge, target: Any) -> Document:
    """Return the merged object; `target` is not changed."""
    merged = dict(target) if isinstance(target, Mapping) else {}
    if merge.only_over is not None and merged.get(merge.only_over[0]) != merge.only_over[1]:
        merged = {}
    for name, value in merge.entries.items():
        if value is REMOVED:
            merged.pop(name, None)
        else:
            merged[name] = (
                apply_merge(value, merged.get(name)) if isinstance(value, Merge) else value
            )
    return merged


def merge_from_paths(values: Sequence[tuple[Sequence[str], Any]]) -> Merge:
    """Build a merge from values (or REMOVED) by path; no path may lie inside another."""
    direct: dict[str, Any] = {}
    below: dict[str, list[tuple[Sequence[str], Any]]] = {}
    for path, value in values:
        if len(path) == 1:
            direct[path[0]] = value
        else:
            below.setdefault(path[0], []).append((path[1:], value))
    return Merge(direct | {name: merge_from_paths(inner) for name, inner in below.items()})
