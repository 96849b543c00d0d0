"""A merge patch (RFC 7396) of stored documents: as MongoDB applies it, and as Python does.

MongoDB is given an aggregation expression, so that the patch, its increments and the count of
writes are one atomic change of one document, whatever is there before. Nothing in it is read as an
operator or a path: names of JSON fields may begin with `$` and contain dots.
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
"""The value of a name that goes."""


@dataclass(frozen=True, slots=True)
class Merge:
    """By name: REMOVED, another `Merge` for what is inside, or the new value."""

    entries: Mapping[str, Any] = field(default_factory=dict)

    def expression(
        self, target: Expression = "$$ROOT", more: Mapping[str, Expression] | None = None
    ) -> Expression:
        """The merged object; an empty one is taken where `target` is none.

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
        is_object = {"$eq": [{"$type": target}, "object"]}
        old = target if target == "$$ROOT" else {"$cond": [is_object, target, {"$literal": {}}]}
        return {"$let": {"vars": {"old": old}, "in": {"$mergeObjects": parts}}}


def field_expression(target: Expression, name: str) -> Expression:
    """The value of a field of an object, whatever its name."""
    return {"$getField": {"field": {"$literal": name}, "input": target}}


def object_expression(values: Mapping[str, Expression]) -> Expression:
    """Not an object expression, whose keys must not begin with $."""
    return {
        "$arrayToObject": [[{"k": {"$literal": name}, "v": each} for name, each in values.items()]]
    }


def _without(target: Expression, names: Sequence[str]) -> Expression:
    kept = {"$not": {"$in": ["$$each.k", {"$literal": list(names)}]}}
    entries = {"$objectToArray": target}
    return {"$arrayToObject": {"$filter": {"input": entries, "as": "each", "cond": kept}}}


def apply_merge(merge: Merge, target: Any) -> Document:
    """The merged object, by the same rules; `target` is left as it is."""
    merged = dict(target) if isinstance(target, Mapping) else {}
    for name, value in merge.entries.items():
        if value is REMOVED:
            merged.pop(name, None)
        else:
            merged[name] = (
                apply_merge(value, merged.get(name)) if isinstance(value, Merge) else value
            )
    return merged


def merge_from_paths(values: Sequence[tuple[Sequence[str], Any]]) -> Merge:
    """Of values (or REMOVED) by path, none of which lies inside of another one's."""
    direct: dict[str, Any] = {}
    below: dict[str, list[tuple[Sequence[str], Any]]] = {}
    for path, value in values:
        if len(path) == 1:
            direct[path[0]] = value
        else:
            below.setdefault(path[0], []).append((path[1:], value))
    return Merge(direct | {name: merge_from_paths(inner) for name, inner in below.items()})
