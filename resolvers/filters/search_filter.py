"""The argument `search`: words that MongoDB's text index finds."""

from __future__ import annotations

from revstream.model.definition import Entity, Model, ObjectType
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.expression import Condition, Search, all_of
from revstream.resolvers.filters.parser import Check

__all__ = ["with_search"]

LONGEST_SEARCH = 1000
"""Characters. Each word is looked up."""


def with_search(
    model: Model, entity: Entity, text: str | None, where: Condition, check: Check
) -> Condition:
    """Return the filter, limited to documents with the words; None searches nothing.

    Args:
        check: called with each searched field, and the fields around it; raises if the caller may
            not read it.

    Raises:
        BadUserInput: The text is too long, or its condition on missing words stands alone.
    """
    if text is None:
        return where
    assert entity.search is not None
    if len(text) > LONGEST_SEARCH:
        raise BadUserInput(
            f"search: {len(text):,} characters, maximum is {LONGEST_SEARCH:,}; shorten it",
            argument="search",
        )
    for path in entity.search.names:
        kind: ObjectType = entity
        for name in path.split("."):
            field = kind.field(name)
            assert field is not None  # checked with the model
            check(kind, field)
            if isinstance(field.type, str):
                kind = model.embedded(field.type)
    return all_of([Search(text), where])
