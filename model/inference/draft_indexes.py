"""Indexes of a drafted model: of points, and of texts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from revstream.model.compiler.validation.search import LANGUAGES
from revstream.model.definition import Scalar
from revstream.model.inference.draft_types import DraftField, DraftSearch, DraftType

__all__ = ["add_point_indexes", "add_text_index"]

_OF_SOME_TYPES = "which not all types have"


def add_point_indexes(
    type_: DraftType, paths: Iterable[str], embedded: Sequence[DraftType]
) -> None:
    """Add the indexes over single fields that are points.

    Args:
        paths: Stored paths that an index of kind 2dsphere covers alone.
        embedded: The embedded types.
    """
    for stored in sorted(paths):
        path = _path(type_, stored, embedded)
        if path and path[-1].type_text.rstrip("!") == Scalar.POINT.value:
            type_.indexes.append(path)
        elif not path and type_.variants is not None:
            type_.notes.append(f"left out: an index over {json.dumps(stored)}, {_OF_SOME_TYPES}")


def add_text_index(
    type_: DraftType, weights: Mapping[str, int], language: str, embedded: Sequence[DraftType]
) -> None:
    """Add a text index, or a note if the model cannot have it.

    Args:
        weights: By stored path.
    """
    paths = {stored: _path(type_, stored, embedded) for stored in weights}
    texts = Scalar.STRING.value
    fits = all(path and path[-1].type_text.strip("[]!") == texts for path in paths.values())
    if fits and language in LANGUAGES:
        type_.search = DraftSearch(
            paths=[*paths.values()], weights=[*weights.values()], language=language
        )
    elif type_.variants is not None and not all(paths.values()):
        type_.notes.append(f"left out: a text index over fields {_OF_SOME_TYPES}")
    else:
        type_.notes.append(
            "left out: a text index over other fields than text, or in an unknown language"
        )


def _path(type_: DraftType, stored: str, embedded: Sequence[DraftType]) -> tuple[DraftField, ...]:
    """Return the fields that lead to a stored path; none if a type has no such field."""
    found: list[DraftField] = []
    inner: DraftType | None = type_
    for name in stored.split("."):
        field = inner.stored_field(name) if inner else None
        if field is None:
            return ()
        found.append(field)
        kind = field.type_text.strip("[]!")
        inner = next((each for each in embedded if each.name == kind), None)
    return tuple(found)
