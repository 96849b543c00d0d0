"""Names of the fields that identify objects: the default, and the one that Relay asks for.

Relay keys its store on a field `id` alone, whatever the type, and fetches an object again by
`node(id:)`. Under that naming `id` is what `nodeId` is by default; arguments, filters and inputs
keep their names and take the document's own id.

Source: relay.dev, "GraphQL Server Specification".
"""

from __future__ import annotations

from dataclasses import dataclass

import click

from revstream.model.definition import Entity, Model

__all__ = ["DEFAULT_NAMING", "RELAY_NAMING", "Naming", "check_naming", "select_naming"]


@dataclass(frozen=True, slots=True)
class Naming:
    """Names of identifying fields.

    Args:
        node: unique across all types; and the argument of `Query.node`.
        document: a document's own id.
        state: of a version or a snapshot, `<document id>@<version>`.
    """

    node: str
    document: str
    state: str


DEFAULT_NAMING = Naming(node="nodeId", document="id", state="id")
RELAY_NAMING = Naming(node="id", document="documentId", state="stateId")


def select_naming(*, relay: bool) -> Naming:
    return RELAY_NAMING if relay else DEFAULT_NAMING


def check_naming(model: Model, naming: Naming) -> None:
    """Refuse a model whose fields have names that the naming takes.

    Raises:
        click.UsageError: naming type, field and what to do.
    """
    if naming is DEFAULT_NAMING:
        return
    taken = {naming.document, naming.state}
    for entity in model.entities:
        for name in sorted(taken & _field_names(entity)):
            raise click.UsageError(
                f"--relay: {entity.name}.{name} has a name that is the API's then; call it "
                f'otherwise, with @stored(as: "{name}")'
            )


def _field_names(entity: Entity) -> set[str]:
    stored = {each.name for each in entity.fields}
    links = {each.name for each in entity.references}
    return stored | links | {each.name for each in entity.back_references}
