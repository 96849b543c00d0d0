"""Names that the compiler accepts: a draft is compiled, and what it refuses is renamed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain, count

from revstream.model.compiler.loader import read_model
from revstream.model.errors import ModelError, ModelErrors
from revstream.model.inference.draft_builder import ModelDraft
from revstream.model.inference.draft_types import DraftEnum, DraftType, DraftUnion, sdl
from revstream.model.naming import lower_first, upper_first

__all__ = ["accepted_text"]

# Renaming one may show the next, so that there is more than one round.
_MOST_ROUNDS = 20


def accepted_text(draft: ModelDraft, header: list[str]) -> str:
    """Return the text of the draft, with other names where the API takes those that it has.

    Raises:
        ModelErrors: A mistake that is not about a name: a fault of revstream.
    """
    for _ in range(_MOST_ROUNDS):
        text = sdl(draft.types, draft.unions, draft.enums, header)
        try:
            read_model(text)
        except ModelErrors as errors:
            for each in _first_of_each(errors):
                if not _renamed(draft, each):
                    raise
        else:
            return text
    read_model(text)
    return text


def _first_of_each(errors: ModelErrors) -> list[ModelError]:
    """Return one error for each type: renaming the type or one field may mend the others."""
    found: dict[str | None, ModelError] = {}
    for each in errors.errors:
        found.setdefault(each.type, each)
    return list(found.values())


def _renamed(draft: ModelDraft, error: ModelError) -> bool:
    """Rename what an error is about; return False if it is about no name of the draft."""
    for union in draft.unions:
        names = {union.name, *(each.name for each in union.members.values())}
        if error.field is not None and error.type in names:
            # Otherwise it was renamed with the field of another member.
            if error.field in union.names.values():
                union.rename_field(error.field)
            return True
    type_ = next((each for each in draft.types if each.name == error.type), None)
    if type_ is None:
        return _rename_alone(draft, error)
    if error.field is not None:
        return _rename_field(draft, type_, error.field)
    longer = f"{lower_first(type_.name)}List"
    if type_.collection is not None and type_.plural != longer and "plural" in error.mend:
        type_.plural = longer
        return True
    new = _free_name(draft, f"{type_.name}Record")
    _rename_type(draft, type_.name, new)
    type_.name = new
    return True


def _rename_field(draft: ModelDraft, type_: DraftType, name: str) -> bool:
    field = next((each for each in type_.fields if each.name == name), None)
    if field is None:
        return False
    longer = f"{lower_first(type_.name)}{upper_first(name.lstrip('_'))}"
    field.name = type_.free_name(longer)
    for each in type_.fields:
        each.directives = [
            f'@reference(by: "{field.name}")' if text == f'@reference(by: "{name}")' else text
            for text in each.directives
        ]
    back = f'@referencedBy(field: "{name}")'
    for other in draft.types:
        for each in other.fields:
            if each.type_text == f"[{type_.name}!]!" and back in each.directives:
                each.directives = [f'@referencedBy(field: "{field.name}")']
    return True


def _rename_type(draft: ModelDraft, name: str, new: str) -> None:
    word = re.compile(rf"\b{re.escape(name)}\b")
    for type_ in draft.types:
        for each in type_.fields:
            each.type_text = word.sub(new, each.type_text)


def _rename_alone(draft: ModelDraft, error: ModelError) -> bool:
    """Rename an enum or a union."""
    alone: list[DraftEnum | DraftUnion] = [*draft.enums, *draft.unions]
    found = next((each for each in alone if each.name == error.type), None)
    if found is None:
        return False
    new = _free_name(draft, f"{found.name}Value")
    _rename_type(draft, found.name, new)
    found.name = new
    return True


def _free_name(draft: ModelDraft, wanted: str) -> str:
    taken = {each.name for each in draft.types} | {each.name for each in draft.enums}
    taken |= {each.name for each in draft.unions}
    return next(each for each in chain([wanted], _numbered(wanted)) if each not in taken)


def _numbered(wanted: str) -> Iterator[str]:
    return (f"{wanted}{number}" for number in count(2))
