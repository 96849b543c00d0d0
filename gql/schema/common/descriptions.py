"""Descriptions of the types and fields of a model.

A description in the model is used as it is; otherwise one is derived from the definition.
"""

from __future__ import annotations

from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.model.definition import EnumType, Field
from revstream.model.naming import with_article

__all__ = ["enum_description", "field_description", "object_phrase"]


def field_description(shape: ObjectTypeInfo, field: Field) -> str:
    """Return the description of a field; never empty, so that GraphiQL shows a text."""
    if field.description:
        return field.description
    facts = [
        f"The id of the {link.target.name} in `{link.reference.name}`."
        for link in shape.links.values()
        if link.by is field
    ]
    facts += [
        f"The ids of the documents in `{link.reference.name}`."
        for link in shape.list_links.values()
        if link.by is field
    ]
    if field.copy is not None:
        facts.append(
            f"A copy of `{field.copy.reference}.{field.copy.source}`; revstream keeps both equal."
        )
    if field.unique:
        facts.append("Unique: no two documents have the same value.")
    if field.fence:
        facts.append("The fence value: an event whose value is not higher is stale and is ignored.")
    return " ".join(facts) or f"Stored as `{field.stored}`."


def object_phrase(shape: ObjectTypeInfo) -> str:
    """Return a noun phrase for one object: "a Product", "an embedded document of type Size"."""
    if shape.is_entity:
        return with_article(shape.name)
    if shape.members:
        names = " or ".join(each.name for each in shape.members.values())
        return f"an embedded document of type {names}"
    return f"an embedded document of type {shape.name}"


def enum_description(enum: EnumType) -> str:
    """Return the description of an enum; never empty."""
    return enum.description or f"The values of a field of type {enum.name}."
