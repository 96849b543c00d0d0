"""References of a drafted model, in both directions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from revstream.model.inference.draft_types import DraftField, DraftType
from revstream.model.inference.naming_words import (
    field_name,
    plural_word,
    reference_base,
    singular_word,
)
from revstream.model.inference.relation import Relation
from revstream.model.naming import upper_first

__all__ = ["DraftReference", "add_back_references", "add_reference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftReference:
    """Reference of whole documents: its name, and that of the field with the ids."""

    relation: Relation
    name: str
    by: str


def add_reference(
    type_: DraftType, field: DraftField, relation: Relation, target: str
) -> DraftReference:
    """Add a reference behind its id field, which is renamed if it has the better name.

    Args:
        target: Name of the other type.
    """
    many = relation.candidate.lists
    base = reference_base(field.name)
    if base is None:
        base, plain = field.name, field.name
        field.name = type_.free_name(f"{singular_word(plain)}Ids" if many else f"{plain}Id")
    elif many:
        base = plural_word(base)
    directive = f'@reference(by: "{field.name}")'
    fields = () if type_.variants is None else type_.variants.fields()
    # The same reference of another variant.
    known = (each.name for each in fields if directive in each.directives)
    name = next(known, None) or type_.free_name(base, f"{base}{target}")
    if many:
        field.type_text = field.type_text.replace(field.type_text.strip("[]!"), "ID")
    else:
        field.type_text = "ID!" if field.type_text.endswith("!") else "ID"
    if relation.found != 1:
        found = f"{relation.found:.0%} of them exist"
        field.comment = ", ".join(filter(None, [field.comment, found]))
    type_.fields.append(
        DraftField(
            name=name,
            stored=None,
            type_text=f"[{target}!]!" if many else target,
            directives=[directive],
        )
    )
    return DraftReference(relation=relation, name=name, by=field.name)


def add_back_references(
    references: list[DraftReference], entities: Mapping[str, DraftType]
) -> None:
    """Add to each target the lists of the documents that refer to it.

    Args:
        entities: The types by collection.
    """
    for each in references:
        of = each.relation.candidate
        target, source = entities[of.target], entities[of.collection]
        many = source.plural or field_name(of.collection)
        others = [
            one
            for one in references
            if one.relation.candidate.target == of.target
            and one.relation.candidate.collection == of.collection
        ]
        long = f"{many}By{upper_first(each.name)}"
        name = target.free_name(*([many] if len(others) == 1 else []), long)
        target.fields.append(
            DraftField(
                name=name,
                stored=None,
                type_text=f"[{source.name}!]!",
                directives=[f'@referencedBy(field: "{each.by}")'],
            )
        )
