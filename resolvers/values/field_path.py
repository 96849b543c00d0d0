"""Paths of fields inside documents: API names to stored names, and back.

The type of a document of a union is known from the document; without one, a path leads through all
members, in which a name means the same field of the document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from revstream.model.definition import Entity, Field, Model, ObjectType, Scalar
from revstream.resolvers.errors import BadUserInput

__all__ = [
    "ApiPath",
    "PathSteps",
    "api_path",
    "path_steps",
    "stored_path",
    "union_path",
    "value_at",
]


@dataclass(frozen=True, slots=True)
class ApiPath:
    """API path of a stored path, and the field at its end.

    Attributes:
        field: None for a path inside a JSON field.
        cut: number of names beyond the model, inside a value that should have no fields.
    """

    path: str
    field: Field | None
    cut: int = 0


@dataclass(frozen=True, slots=True)
class PathSteps:
    """Automaton that accepts the stored paths for which `api_path` without a document has a result.

    Attributes:
        start: the state of the document.
        targets: state after "<state>.<stored name>". None is the state of a value without fields of
            its own: all paths into it are accepted.
    """

    start: str
    targets: Mapping[str, str | None]


def path_steps(entity: Entity, model: Model) -> PathSteps:
    """Return the steps of stored paths, for MongoDB to judge them; types may be recursive."""
    targets: dict[str, str | None] = {}
    waiting = [model.variants(entity)]
    states = {_state(waiting[0])}
    for kinds in waiting:
        for name in {each.stored for kind in kinds for each in kind.fields}:
            if any(name in kind.hidden for kind in kinds):
                continue
            fields = [each for kind in kinds if (each := kind.stored_field(name)) is not None]
            inner = tuple(_kinds_inside(fields, model))
            target = targets[f"{_state(kinds)}.{name}"] = _state(inner) if inner else None
            if target is not None and target not in states:
                states.add(target)
                waiting.append(inner)
    return PathSteps(_state(waiting[0]), targets)


def _state(kinds: Sequence[ObjectType]) -> str:
    return " ".join(each.name for each in kinds)


def api_path(
    entity: Entity, model: Model, names: Sequence[str], state: Any = None
) -> ApiPath | None:
    """Return the API path of a stored path.

    Args:
        state: the document, which decides about unions; if it is not known, a field of any member
            counts, except where it is hidden in one.
    """
    kinds: Sequence[ObjectType] = model.variants(entity)
    if isinstance(state, Mapping):
        kinds = (model.variant(entity, state),)
    path: list[str] = []
    for depth, name in enumerate(names):
        fields = [each for kind in kinds if (each := kind.stored_field(name)) is not None]
        if not fields or any(name in kind.hidden for kind in kinds):
            return None
        field = fields[0]
        state = state.get(name) if isinstance(state, Mapping) else None
        path.append(field.name)
        rest = names[depth + 1 :]
        if not rest:
            return ApiPath(".".join(path), field)
        kinds = _kinds_inside(fields, model, state)
        if kinds:
            continue
        if field.type is Scalar.JSON and not field.is_list:
            return ApiPath(".".join([*path, *rest]), None)
        return ApiPath(".".join(path), field, cut=len(rest))
    return None


def stored_path(entity: Entity, model: Model, path: str, argument: str) -> str:
    """Convert an API path to a stored path, as the archive's `changed` lists it.

    Raises:
        BadUserInput: no such field, or a field inside a list, whose changes are recorded as a
            whole.
    """
    kinds: Sequence[ObjectType] = model.variants(entity)
    names = path.split(".")
    stored: list[str] = []
    for place, name in enumerate(names):
        # The members of a union have the same stored name for it.
        fields = [each for kind in kinds if (each := kind.field(name)) is not None]
        field = next(iter(fields), None)
        if field is None or field.stored == "_id":
            raise BadUserInput(
                f"{argument}: {path!r}, expected a field of {kinds[0].name} that can change, not "
                f"{name!r}; correct the path",
                argument=argument,
            )
        stored.append(field.stored)
        rest = names[place + 1 :]
        if not rest:
            break
        if field.is_list:
            raise BadUserInput(
                f"{argument}: {path!r}, expected a path outside of lists, which are recorded as a "
                f"whole; pass {'.'.join(names[: place + 1])!r}",
                argument=argument,
            )
        kinds = _kinds_inside(fields, model)
        if not kinds and any(each.type is Scalar.JSON for each in fields):
            stored += rest
            break
        if not kinds:
            raise BadUserInput(
                f"{argument}: {path!r}, expected no field inside of "
                f"{'.'.join(names[: place + 1])!r}, which has none; shorten the path",
                argument=argument,
            )
    return ".".join(stored)


def union_path(entity: Entity, model: Model, path: Sequence[str]) -> Sequence[str]:
    """Return the path of the union to which a discriminator belongs; other paths as they are.

    Args:
        path: stored names.
    """
    kinds: Sequence[ObjectType] = model.variants(entity)
    for depth, name in enumerate(path):
        if any(kind.discriminator and kind.discriminator.stored == name for kind in kinds):
            return path[:depth]
        fields = [each for kind in kinds if (each := kind.stored_field(name)) is not None]
        kinds = _kinds_inside(fields, model)
    return path


def value_at(document: Any, path: str) -> Any:
    """Return the value at a stored path; None if it is missing, or inside a list."""
    value = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _kinds_inside(
    fields: Sequence[Field], model: Model, document: Any = None
) -> Sequence[ObjectType]:
    """Return the types that a document in one of the fields may have.

    Args:
        document: the stored one, if it is known.
    """
    inner = [model.embedded(f.type) for f in fields if isinstance(f.type, str) and not f.is_list]
    if isinstance(document, Mapping):
        return [model.variant(kind, document) for kind in inner]
    return [variant for kind in inner for variant in model.variants(kind)]
