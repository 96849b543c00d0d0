"""All documents of all collections of a model, with all fields, through a gateway."""

from __future__ import annotations

from typing import Any

from revstream.model.definition import Entity, Model, ObjectType
from tests.support.gateway import RunningGateway

__all__ = ["served_ids"]


def served_ids(gateway: RunningGateway, model: Model) -> dict[str, list[str]]:
    """Return the ids by collection; fails with the first error of a field."""
    found: dict[str, list[str]] = {}
    for entity in model.entities:
        ids = found[entity.collection] = []
        after: str | None = None
        more = True
        while more:
            page = gateway.query(_query(model, entity), after=after)[entity.plural]
            ids += [each["id"] for each in page["nodes"]]
            after, more = page["pageInfo"]["endCursor"], page["pageInfo"]["hasNextPage"]
    return found


def _query(model: Model, entity: Entity) -> str:
    nodes = _selection(model, entity)
    return (
        f"query($after: String) {{ {entity.plural}(first: 20, after: $after) "
        f"{{ nodes {{ {nodes} }} pageInfo {{ endCursor hasNextPage }} }} }}"
    )


def _selection(model: Model, type_: ObjectType) -> str:
    parts: list[Any] = []
    for each in type_.fields:
        inner = model.embedded(each.type) if isinstance(each.type, str) else None
        parts.append(
            each.name if inner is None else f"{each.name} {{ {_selection(model, inner)} }}"
        )
    parts += [f"{each.name} {{ id }}" for each in type_.references]
    if isinstance(type_, Entity):
        parts += [f"{each.name}(first: 1) {{ nodes {{ id }} }}" for each in type_.back_references]
    return " ".join(parts)
