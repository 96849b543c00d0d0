"""Descriptions of the types and fields of a model.

A description in the model is used as it is; otherwise one is derived from the definition.
"""

from __future__ import annotations

from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.model.definition import EnumType, Field

__all__ = ["enum_description", "field_description"]


def field_description(shape: ObjectTypeInfo, field: Field) -> str:
    """Return the description of a field; never empty, so that GraphiQL shows a text."""
    if field.description:
        return field.description
    facts = [
        f"The id of the {link.target.name} that `{link.reference.name}` shows."
        for link in shape.links.values()
        if link.by is field
    ]
    if field.copy is not None:
        facts.append(f"A copy of `{field.copy.reference}.{field.copy.source}`, kept equal to it.")
    if field.unique:
        facts.append("No two documents have the same.")
    if field.fence:
        facts.append("Grows with each event; what comes with a smaller one is late and ignored.")
    return " ".join(facts) or f"Stored as `{field.stored}`."


def enum_description(enum: EnumType) -> str:
    """Return the description of an enum; never empty."""
    return enum.description or f"What a field of type {enum.name} can hold."
