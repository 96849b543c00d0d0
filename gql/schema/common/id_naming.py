"""Names of the fields that identify objects: the default naming and Relay's.

Relay uses the field `id` of every type as the key of its store, and reads an object again with
`node(id:)`. With Relay's naming, the field `id` has the value that `nodeId` has by default;
arguments, filters and inputs keep their names and take the document's own id.

Source: relay.dev, "GraphQL Server Specification".
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from revstream.model.definition import Entity, Model

__all__ = ["DEFAULT_NAMING", "RELAY_NAMING", "Naming", "check_naming", "select_naming"]


@dataclass(frozen=True, slots=True)
class Naming:
    """Names of the fields that identify objects.

    Attributes:
        node: the id that is unique across all types, and the argument of `Query.node`.
        document: the document's own id.
        state: the id of a version or a snapshot, `<document id>@<version>`.
    """

    node: str
    document: str
    state: str


DEFAULT_NAMING = Naming(node="nodeId", document="id", state="id")
RELAY_NAMING = Naming(node="id", document="documentId", state="stateId")


def select_naming(*, relay: bool) -> Naming:
    """Return the naming for the option `--relay`."""
    return RELAY_NAMING if relay else DEFAULT_NAMING


def check_naming(model: Model, naming: Naming) -> None:
    """Refuse a model that has a field with a name that the naming reserves.

    Raises:
        click.UsageError: with the type, the field and what to do.
    """
    if naming is DEFAULT_NAMING:
        return
    taken = {naming.document, naming.state}
    for entity in (*model.entities, *model.members):
        for name in sorted(taken & _field_names(entity)):
            raise click.UsageError(
                f"--relay: {entity.name}.{name} is a field of the API with this option; "
                f'rename it, with @stored(as: "{name}")'
            )


def _field_names(entity: Entity) -> set[str]:
    stored = {each.name for each in entity.fields}
    links = {each.name for each in entity.references}
    return stored | links | {each.name for each in entity.back_references}
