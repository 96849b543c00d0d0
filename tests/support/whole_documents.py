"""All documents of all collections of a model, with all fields, through a gateway."""

from __future__ import annotations

from revstream.model.definition import Entity, Model, ObjectType, Scalar
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
    members = model.variants(type_)[1:]
    parts = [_fields(model, type_)]
    # Fields of two members may have the same name and different types.
    parts += [f"... on {each.name} {{ {_fields(model, each, each.name)} }}" for each in members]
    return " ".join(parts)


def _fields(model: Model, type_: ObjectType, alias: str = "") -> str:
    parts: list[str] = []
    for each in type_.fields:
        inner = ""
        if isinstance(each.type, str):
            inner = f" {{ {_selection(model, model.embedded(each.type))} }}"
        elif each.type is Scalar.POINT:
            inner = " { longitude latitude }"
        parts.append(f"{f'{alias}_{each.name}: ' if alias else ''}{each.name}{inner}")
    parts += [f"{each.name} {{ id }}" for each in type_.references]
    if isinstance(type_, Entity):
        parts += [f"{each.name}(first: 1) {{ nodes {{ id }} }}" for each in type_.back_references]
    return " ".join(parts)
