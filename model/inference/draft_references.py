"""References of a drafted model, in both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from revstream.model.inference.draft_types import (
    DraftField,
    DraftType,
    back_reference_directive,
    reference_directive,
)
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
    fields = type_.all_fields()
    name = _name_by(fields, field.name)
    if name is None:
        base = reference_base(field.name)
        if base is None:
            base, plain = field.name, field.name
            new = type_.free_name(f"{singular_word(plain)}Ids" if many else f"{plain}Id")
            for each in fields:
                if each.stored == field.stored:
                    each.name = new
        elif many:
            base = plural_word(base)
        name = type_.free_name(base, f"{base}{target}")
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
            directives=[reference_directive(field.name)],
        )
    )
    return DraftReference(relation=relation, name=name, by=field.name)


def _name_by(fields: Sequence[DraftField], by: str) -> str | None:
    """Return the name of the reference that another variant has by the same field."""
    return next((each.name for each in fields if reference_directive(by) in each.directives), None)


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
                directives=[back_reference_directive(each.by)],
            )
        )
