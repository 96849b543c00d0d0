"""Fields of a draft by their stored path."""

from __future__ import annotations

from collections.abc import Mapping

from revstream.model.definition import Scalar
from revstream.model.inference.draft_builder import ModelDraft
from revstream.model.inference.draft_types import DraftType

__all__ = ["find_field"]


def find_field(
    draft: ModelDraft, type_: DraftType, path: tuple[str, ...]
) -> tuple[list[str], Scalar | None, bool, Mapping[str, str]] | None:
    """Return names, scalar, whether it is a list, and the values of an enum by stored text; None if
    there is no such field, or it cannot be compared.
    """
    names: list[str] = []
    at = type_
    for number, stored in enumerate(path):
        field = at.stored_field(stored)
        if field is None:
            return None
        names.append(field.name)
        is_list = field.type_text.startswith("[")
        one = field.type_text.strip("[]!")
        inner = next((each for each in draft.types if each.name == one), None)
        if inner is not None:
            if is_list:
                return None
            at = inner
            continue
        if number + 1 < len(path):
            return None
        enum = next((each for each in draft.enums if each.name == one), None)
        if enum is not None:
            return names, None, is_list, enum.names()
        scalar = Scalar(one)
        return None if scalar is Scalar.JSON else (names, scalar, is_list, {})
    return None
