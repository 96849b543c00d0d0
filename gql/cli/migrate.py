"""`revstream migrate`: move a collection that keeps its versions itself to the ARCHIVE layout."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import click
from bson import json_util

from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.progress_display import Report
from revstream.model.compiler.validation.collections import name_problem
from revstream.model.definition import Entity, HistoryKind, Model
from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.core.errors import GatewayError
from revstream.streams.layouts.factory import create_layout
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import Hub
from revstream.streams.maintenance.migration import Migration, MigrationResult
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.server_check import check_sharding, inspect_server

__all__ = ["Move", "lines_of", "migrate", "report_of"]


@dataclass(frozen=True, slots=True)
class Move:
    """Result of a migration.

    Attributes:
        moved: None if it is to be finished later.
        sealed: collections that refuse writes now.
        undo: mongosh commands that accept writes again.
    """

    entity: Entity
    to: str
    copied: int
    moved: MigrationResult | None = None
    sealed: list[str] = field(default_factory=list)
    undo: list[str] = field(default_factory=list)


async def migrate(
    settings: Settings, model: Model, uri: str, database: str, report: Report,
    *, type_: str, to: str, finish: bool,
) -> Move:  # fmt: skip
    """Move one collection.

    Raises:
        click.UsageError: There is nothing to move, or no place for it.
        click.ClickException: It failed while the old collection refuses writes.
        ArchiveBehind: No recorder has reached the present; nothing refuses writes.
        HistoryLost, Unavailable, Unsuitable: See `streams.core.errors`.
    """
    entity = _subject(model, type_, to)
    async with Mongo.connect(uri, database, options=settings.mongo_options()) as mongo:
        server = await inspect_server(mongo)
        check_sharding(server, experimental=settings.experimental_sharded)
        # This process follows no stream: the recorder's checkpoint shows the progress.
        progress = ArchiveProgress(Checkpoints(mongo), Hub([entity.collection], position=""))
        archive = Archive(mongo, entity.collection, create_layout(mongo, entity))
        migration = Migration(mongo, archive, to, progress)

        def report_progress(done: int, total: int) -> None:
            report(f"versions of {entity.collection}", done, total)

        copied = await migration.copy(report_progress)
        if not finish:
            return Move(entity, to, copied)
        # Programs would be refused for as long as no recorder follows.
        await migration.wait_recorded(limit_s=10)
        # While writes are refused, only the latest changes are left to be copied.
        sealed, undo = list[str](), list[str]()
        try:
            sealed = await migration.seal()
            commands = await migration.opened_by(sealed)
            undo = [f"db.runCommand({json_util.dumps(each)})" for each in commands]
            moved = await migration.finish(report_progress)
        except GatewayError as exc:
            refusing = _refusing(sealed) if sealed else _refusing(migration.sealable, "may refuse")
            raise click.ClickException(f"{exc}\n{_not_finished(refusing, undo)}") from exc
        return Move(entity, to, copied, moved, sealed, undo)


def _not_finished(refusing: str, undo: list[str]) -> str:
    """Return the state in which a move has failed, and how to go on or back."""
    if undo:
        opened = f"{refusing}; to let programs write again, run in mongosh:"
        return "\n".join([f"not finished: run it again; {opened}", *undo])
    return (
        f"not finished: {refusing}; run it again: it continues, and prints how to let programs "
        "write again"
    )


def _refusing(names: list[str], verb: str = "") -> str:
    verb = verb or ("refuse" if len(names) > 1 else "refuses")
    return f"{' and '.join(names)} now {verb} writes"


def _subject(model: Model, type_: str, to: str) -> Entity:
    entity = next((each for each in model.entities if each.name == type_), None)
    if entity is None:
        names = ", ".join(each.name for each in model.entities)
        raise click.UsageError(f"TYPE: {type_!r}, expected an entity of the model: {names}")
    if entity.history is HistoryKind.ARCHIVE:
        raise click.UsageError(
            f"TYPE: the history of {type_} is ARCHIVE, expected another layout; there is nothing "
            "to move"
        )
    if problem := name_problem(to):
        raise click.UsageError(f"--to {to!r}: {problem}")
    if model.entity_of_collection(to) is not None:
        raise click.UsageError(
            f"--to {to!r}: the model has this collection, expected a new one; choose another name"
        )
    return entity


def lines_of(done: Move) -> list[str]:
    """Format for people."""
    entity, old = done.entity, done.entity.collection
    lines = [f"{done.copied:,} versions of {old} were copied to {done.to}"]
    if done.moved is None:
        return [
            *lines,
            "run it again to copy newer versions; when the programs are ready to write to "
            f"{done.to}, run it with --finish, after which {old} refuses writes",
        ]
    lines.append(_refusing(done.sealed))
    undo = [f"  {each}" for each in done.undo]
    if done.moved.findings:
        return [
            *lines,
            *done.moved.findings,
            f"not finished: {len(done.moved.findings)} differences; to let programs write again, "
            "run in mongosh:",
            *undo,
        ]
    version = f', version: "{entity.version}"' if entity.version != "version" else ""
    rules = done.moved.rules
    lines += [f"copied to {done.to}: {each}" for each in rules.carried]
    lines += [f"not copied: {each}" for each in rules.left]
    return [
        *lines,
        f"{done.moved.versions:,} versions and {done.moved.documents:,} documents are equal in "
        "both; replace the old line of the model with this one, remove @layout, and start "
        "revstream with it:",
        f'  @collection(name: "{done.to}", plural: "{entity.plural}"{version})',
        "the old collections and their indexes are unchanged; to let programs write to them again, "
        f"with their former validators, run in mongosh (drop {done.to}, {done.to}.versions and "
        "their other collections before you start a move again):",
        *undo,
    ]


def report_of(done: Move) -> dict[str, Any]:
    """Format as JSON, for programs."""
    return {
        "type": done.entity.name,
        "from": done.entity.collection,
        "to": done.to,
        "copied": done.copied,
        "sealed": done.sealed,
        "undo": done.undo,
        "finished": done.moved is not None and not done.moved.findings,
        "moved": None if done.moved is None else asdict(done.moved),
    }
