"""Names that the compiler accepts: a draft is compiled, and what it refuses is renamed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, count

from revstream.model.compiler.loader import read_model
from revstream.model.errors import ModelError, ModelErrors
from revstream.model.inference.draft_builder import ModelDraft
from revstream.model.inference.draft_types import (
    DraftEnum,
    DraftField,
    DraftType,
    DraftUnion,
    back_reference_directive,
    reference_directive,
    sdl,
)
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
    type_ = next((each for each in draft.types if each.name == error.type), None)
    union = next((each for each in draft.unions if each.name == error.type), None)
    owner = type_ or union
    if error.field is not None and owner is not None:
        return _rename_field(draft, owner, error.field)
    if type_ is None:
        return _rename_alone(draft, error)
    longer = f"{lower_first(type_.name)}List"
    if type_.collection is not None and type_.plural != longer and "plural" in error.mend:
        type_.plural = longer
        return True
    new = _free_name(draft, f"{type_.name}Record")
    _rename_type(draft, type_.name, new)
    type_.name = new
    return True


def _rename_field(draft: ModelDraft, owner: DraftType | DraftUnion, name: str) -> bool:
    """Rename a field, in all variants of a union or interface."""
    variants = owner.variants
    types = [owner] if isinstance(owner, DraftType) else []
    if variants is not None:
        types = variants.types()
        unions = (each for each in draft.unions if each.variants is variants)
        owner = variants.interface or next(unions)
    found = [each for type_ in types for each in type_.fields if each.name == name]
    discriminates = variants is not None and variants.discriminator == name
    if not found and not discriminates:
        # It was renamed with the field of another variant.
        return variants is not None
    new = types[0].free_name(f"{lower_first(owner.name)}{upper_first(name.lstrip('_'))}")
    for each in found:
        each.name = new
    if variants is not None and discriminates:
        variants.discriminator = new
    for type_ in types:
        _replace(type_.fields, reference_directive(name), reference_directive(new))
    lists = {f"[{each.name}!]!" for each in types}
    for type_ in draft.types:
        back = [each for each in type_.fields if each.type_text in lists]
        _replace(back, back_reference_directive(name), back_reference_directive(new))
    return True


def _replace(fields: Sequence[DraftField], old: str, new: str) -> None:
    for each in fields:
        each.directives = [new if text == old else text for text in each.directives]


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
