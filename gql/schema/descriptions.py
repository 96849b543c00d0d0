"""What the API says of a model's types and fields: its own words, or what follows from it."""

from __future__ import annotations

import re

from gql.shapes import Shape
from model.entities import EnumType, Field

__all__ = ["enum_description", "field_description", "with_article"]

# Names that are spoken with a vowel first.
_AN = re.compile(r"[ai]|o(?!ne)|e(?!u)|u(?!n[ei]|s[aeiu]|ti)|hour|hono", re.IGNORECASE)


def with_article(name: str) -> str:
    """Return a type's name with its indefinite article."""
    return f"{'an' if _AN.match(name) else 'a'} {name}"


def field_description(shape: Shape, field: Field) -> str:
    """Of a field of the API; never empty, so that GraphiQL has something to show."""
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
    return enum.description or f"What a field of type {enum.name} can hold."
