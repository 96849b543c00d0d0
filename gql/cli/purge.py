"""`revstream purge`: remove what is kept of one document's past, and say what that does not
reach.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import click

from revstream.gql.runtime.configuration.settings import Settings
from revstream.model.definition import Entity, Model
from revstream.resolvers.admin.copied_histories import CopiedHistory, copied_histories
from revstream.resolvers.admin.purge import Purged, Purging
from revstream.resolvers.current.stored_ids import find_other_id
from revstream.resolvers.values.input import id_from_api
from revstream.resolvers.values.json_value import json_value
from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.layouts.factory import create_layout
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import Hub
from revstream.streams.maintenance.residual_data import list_residual_data
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.server_check import inspect_server

__all__ = ["PurgeReport", "lines_of", "purge", "report_of", "subject"]


# Of each copied field, where there are more they are in the report for programs.
_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """Result of a purge.

    Attributes:
        copies: contents in histories of other documents, which a purge does not reach.
        remnants: other places where contents remain.
    """

    entity: Entity
    id: str
    purged: Purged
    copies: list[CopiedHistory]
    remnants: list[str]


def subject(model: Model, type_: str, id_: str) -> tuple[Entity, Any]:
    """The entity and the `_id` that a command names.

    Raises:
        click.UsageError: no such type. BadUserInput: no id of one.
    """
    entity = next((each for each in model.entities if each.name == type_), None)
    if entity is None:
        names = ", ".join(each.name for each in model.entities)
        raise click.UsageError(f"TYPE: {type_!r}, expected an entity of the model: {names}")
    scalar = entity.id.stored_scalar
    assert scalar is not None
    return entity, id_from_api(scalar, id_, f"{type_}.id")


async def purge(
    settings: Settings, model: Model, uri: str, database: str, type_: str, id_: str,
    *, by: str, why: str,
) -> PurgeReport:  # fmt: skip
    """Purge one document.

    Raises:
        ArchiveBehind: The recorder has not reached the present; nothing was removed.
        BadUserInput: There is no history of such a document.
        Unavailable, Unsuitable: MongoDB cannot be reached, or cannot serve.
    """
    entity, key = subject(model, type_, id_)
    async with Mongo.connect(uri, database, options=settings.mongo_options()) as mongo:
        await inspect_server(mongo)
        # This process follows no stream: the recorder's checkpoint shows the progress.
        hub = Hub([entity.collection], position="")
        progress = ArchiveProgress(Checkpoints(mongo), hub)
        archive = Archive(mongo, entity.collection, create_layout(mongo, entity))
        if not await archive.last_versions([key]):
            other = await find_other_id(mongo, archive, entity, key, ["versions"])
            key = key if other is None else other
        purging = Purging(mongo, archive, progress, entity)
        purged = await purging.purge(key, by=by, why=why)
        copies = await copied_histories(mongo, model, entity.collection, key)
        return PurgeReport(entity, id_, purged, copies, await list_residual_data(mongo))


def lines_of(done: PurgeReport) -> list[str]:
    """Format for people."""
    entity, purged = done.entity, done.purged
    name = f"{entity.name} {done.id}"
    lines = [
        f"{name}: removed {purged.versions:,} versions, {purged.drafts:,} drafts and "
        f"{purged.comments:,} comments"
    ]
    if purged.exists:
        lines.append(
            f"the document exists: version {purged.version} stays, since its content is in the "
            f"collection {entity.collection}; to remove that too, delete the document, and purge "
            "it again"
        )
    else:
        lines.append(
            f"the document is deleted: version {purged.version} stays, with the time of the "
            "deletion, and the time, person and reason of the purge"
        )
    lines.append("not removed, and how long it stays:")
    lines += [f"  - {_copies_line(each)}" for each in done.copies]
    return [*lines, *(f"  - {each}" for each in done.remnants)]


def _copies_line(found: CopiedHistory) -> str:
    name = found.entity.name
    shown = ", ".join(str(json_value(each)) for each in found.documents[:_MOST_NAMED])
    more = found.count - min(found.count, _MOST_NAMED)
    return (
        f"copies in {name}.{found.field}: in {found.versions:,} versions of {found.count:,} "
        f"documents, {shown}{f' and {more:,} others' if more else ''}, until they are purged, too "
        f"(revstream purge {name} ID)"
    )


def report_of(done: PurgeReport) -> dict[str, Any]:
    """Format as JSON, for programs."""
    return {
        "type": done.entity.name,
        "id": done.id,
        **asdict(done.purged),
        "copies": [
            {
                "type": each.entity.name,
                "field": each.field,
                "versions": each.versions,
                "documents": each.count,
                "ids": [json_value(one) for one in each.documents],
            }
            for each in done.copies
        ],
        "notReached": done.remnants,
    }
