"""The command `revstream`."""

from __future__ import annotations

import functools
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from revstream.gql.cli.configuration import checked_settings
from revstream.gql.cli.configuration import lines_of as configuration_lines
from revstream.gql.cli.configuration import report_of as configuration_report
from revstream.gql.cli.deliveries import drop, look, retry
from revstream.gql.cli.deliveries import lines_of as deliveries_lines
from revstream.gql.cli.deliveries import report_of as deliveries_report
from revstream.gql.cli.demo import demo_settings, play
from revstream.gql.cli.doctor import examine
from revstream.gql.cli.doctor import lines_of as examine_lines
from revstream.gql.cli.doctor import report_of as examine_report
from revstream.gql.cli.migrate import Move, migrate
from revstream.gql.cli.migrate import lines_of as move_lines
from revstream.gql.cli.migrate import report_of as move_report
from revstream.gql.cli.purge import PurgeReport, purge
from revstream.gql.cli.purge import lines_of as purge_lines
from revstream.gql.cli.purge import report_of as purge_report
from revstream.gql.cli.verify import lines_of as verify_lines
from revstream.gql.cli.verify import report_of as verify_report
from revstream.gql.cli.verify import verify
from revstream.gql.observability.logging_setup import configure_logging
from revstream.gql.runtime.configuration.command_options import (
    check_environment,
    check_taken,
    options,
)
from revstream.gql.runtime.configuration.config_file import without_overridden
from revstream.gql.runtime.configuration.limit_setup import persisted_documents
from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.embedded.mongod import EmbeddedError
from revstream.gql.runtime.progress_display import Report, shown_progress
from revstream.gql.runtime.server import Failed, run, serve
from revstream.gql.schema import build_schema, print_sdl, select_naming
from revstream.model.compiler.loader import read_model
from revstream.model.definition import Model
from revstream.model.errors import ModelErrors
from revstream.streams.core.errors import GatewayError
from revstream.streams.versioning.attribution import RESERVED_NAMES, is_reserved_name

__all__ = ["main"]

T = TypeVar("T")

# Of the demo, a second.
_MOST_RATE = 1000


def main() -> None:
    """Every error that a user can mend is printed as a sentence, never as a traceback. Exits 1 (2:
    wrong usage).
    """
    try:
        code = _run()
    except Exception:
        # A fault of ours.
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # sys.exit would wait for Motor's threads, one of which may read the oplog for minutes.
    os._exit(code)


def _run() -> int:
    """The exit code."""
    try:
        check_environment(os.environ)
        # What a command exits with; otherwise what it returns, which is nothing.
        return cli.main(standalone_mode=False) or 0
    except (click.Abort, KeyboardInterrupt):
        return 130
    except click.ClickException as exc:
        exc.show()
        return exc.exit_code
    except ModelErrors as exc:
        click.echo(str(exc), err=True)
        return 1
    except (GatewayError, EmbeddedError, Failed) as exc:
        click.echo(f"revstream: {exc}", err=True)
        return 1


@click.group(context_settings={"max_content_width": 120})
@click.version_option(package_name="revstream")
def cli() -> None:
    """A GraphQL gateway for MongoDB that never forgets."""


@cli.command("serve")
@options()
def serve_command(**given: Any) -> None:
    """Serve the API, follow the stream, and offer to record."""
    settings = _settings(given, only=True)
    model = _model(settings.schema)
    # Refuse unusable settings before connecting to MongoDB.
    persisted_documents(settings)
    run(lambda: serve(settings, model, http=True))


@cli.command("record")
@options(
    "config", "schema", "mongodb_uri", "mongodb_uri_file", "database", "listeners", "sink_secrets",
    "sink_secrets_file", "images", "experimental_sharded", "driver", "lease_s", "connect_s",
    "read_limit_s", "retention_every_s", "log_level", "log_json",
)  # fmt: skip
def record_command(**given: Any) -> None:
    """Run the listeners only."""
    settings = _settings(given, only=True)
    model = _model(settings.schema)
    run(lambda: serve(settings, model, http=False))


def _rate(_context: click.Context, _option: click.Parameter, rate: float) -> float:
    if not 0 <= rate <= _MOST_RATE:
        raise click.BadParameter(f"{rate:g}, expected 0 to {_MOST_RATE}")
    return rate


@cli.command("demo")
@options(defaults={"log_level": "warning", "schema": None, "database": "shop"})
@click.option(
    "--rate", default=2.0, show_default=True, callback=_rate, help="Writes per second; 0: none."
)
def demo_command(rate: float, **given: Any) -> None:
    """Serve the example shop on a MongoDB of its own, loaded and being written to.

    Takes the options of serve: another MongoDB, the shop's model with changes of yours, sign-in.
    """
    settings = demo_settings(_settings(given, only=True))
    model = _model(settings.schema)
    persisted_documents(settings)
    run(lambda: serve(settings, model, http=True, ready=lambda *to: play(*to, rate=rate)))


_CHECKING = (
    "config", "schema", "mongodb_uri", "mongodb_uri_file", "database", "experimental_sharded",
    "driver", "connect_s", "read_limit_s", "log_level", "log_json",
)  # fmt: skip
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@cli.command("verify")
@options(*_CHECKING, defaults={"log_level": "warning"})
@click.option(
    "--mend", is_flag=True, help="First repair what crashes of programs have left in layouts."
)
@_AS_JSON
def verify_command(mend: bool, as_json: bool, **given: Any) -> None:
    """Check the archives: their versions against one another, and the last against the present.

    Exits 1 where something is wrong.
    """
    found = _checked(given, functools.partial(verify, mend=mend))
    _tell(verify_report(found) if as_json else verify_lines(found))
    if any(each.findings for each in found.values()):
        raise click.exceptions.Exit(1)


@cli.command("doctor")
@options(*_CHECKING, defaults={"log_level": "error"})
@_AS_JSON
def doctor_command(as_json: bool, **given: Any) -> None:
    """Examine the deployment, and say how to mend what is wrong.

    Exits 1 where there is a warning or an error.
    """
    found = _checked(given, examine)
    _tell(examine_report(found) if as_json else examine_lines(found))
    if any(each.level in ("warning", "error") for each in found):
        raise click.exceptions.Exit(1)


@cli.command("schema")
@options("config", "schema", "relay")
def schema_command(**given: Any) -> None:
    """Print the API's SDL, for code generators."""
    settings = _settings(given, log=False)
    click.echo(
        print_sdl(build_schema(_model(settings.schema), naming=select_naming(relay=settings.relay)))
    )


@cli.command("config")
@options()
@_AS_JSON
def config_command(as_json: bool, **given: Any) -> None:
    """Print the settings of serve as TOML, each with its source, and without secrets.

    Checks them as serve does, as far as that is possible without a database.
    """
    found = checked_settings(given)
    _tell(configuration_report(found) if as_json else configuration_lines(found))


def _person(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Return a valid name of a person, for the record of a removal."""
    if is_reserved_name(value):
        raise click.BadParameter(f"{value!r}, names that begin with {RESERVED_NAMES} are reserved")
    return value


@cli.command("purge")
@click.argument("type_", metavar="TYPE")
@click.argument("id_", metavar="ID")
@click.option(
    "--by",
    required=True,
    callback=_person,
    help="Name of the person that removes it; stays readable.",
)
@click.option("--why", required=True, help="Why; stays readable, so nothing of the content.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@options(*_CHECKING, defaults={"log_level": "warning"})
@_AS_JSON
def purge_command(
    type_: str, id_: str, by: str, why: str, yes: bool, as_json: bool, **given: Any
) -> None:
    """Remove the history of one document permanently.

    Removes all versions but the last, drafts and comments. The archive keeps the name, the time and
    the reason. Prints the places that are out of reach.
    """
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("confirmation: no terminal, expected one or --yes; pass --yes")

    async def purging(
        settings: Settings, model: Model, uri: str, database: str, _report: Report
    ) -> PurgeReport:
        return await purge(settings, model, uri, database, type_, id_, by=by, why=why)

    if not yes:
        question = f"Remove the history of {type_} {id_}, its drafts and its comments, for good?"
        click.confirm(question, abort=True)
    done = _checked(given, purging)
    _tell(purge_report(done) if as_json else purge_lines(done))


@cli.group("deliveries")
def deliveries_group() -> None:
    """Show and repair deliveries that receivers do not accept."""


@deliveries_group.command("list")
@options(*_CHECKING, defaults={"log_level": "warning"})
@_AS_JSON
def deliveries_list_command(as_json: bool, **given: Any) -> None:
    """List documents whose events wait, with the reason, and receivers that are away.

    Exits 1 if something is parked: it is not tried again until `retry` or `drop`.
    """
    found = _checked(given, lambda settings, model, uri, database, _: look(
        settings, model, uri, database
    ))  # fmt: skip
    _tell(deliveries_report(found) if as_json else deliveries_lines(found))
    if found.parked:
        raise click.exceptions.Exit(1)


@deliveries_group.command("retry")
@click.argument("type_", metavar="[TYPE", required=False)
@click.argument("id_", metavar="ID]", required=False)
@click.option("--all", "everything", is_flag=True, help="All documents that wait.")
@options(*_CHECKING, defaults={"log_level": "warning"})
@_AS_JSON
def deliveries_retry_command(
    type_: str | None, id_: str | None, everything: bool, as_json: bool, **given: Any
) -> None:
    """Try the events of one document again, or of all: at once, parked ones too."""
    if everything == (id_ is not None) or (type_ is None) != (id_ is None):
        raise click.UsageError("arguments: expected TYPE and ID of a document, or --all")
    count = _checked(given, lambda settings, model, uri, database, _: retry(
        settings, model, uri, database, type_, id_
    ))  # fmt: skip
    _tell({"retried": count} if as_json else [f"{count:,} deliveries are tried again now"])


@deliveries_group.command("drop")
@click.argument("type_", metavar="TYPE")
@click.argument("id_", metavar="ID")
@click.option(
    "--by",
    required=True,
    callback=_person,
    help="Name of the person that drops it; stays readable.",
)
@click.option("--why", required=True, help="Why; stays readable.")
@options(*_CHECKING, defaults={"log_level": "warning"})
@_AS_JSON
def deliveries_drop_command(
    type_: str, id_: str, by: str, why: str, as_json: bool, **given: Any
) -> None:
    """Drop the event of a document that is not accepted; later ones go on.

    The receiver never gets it. The name, the reason and the time are kept.
    """
    dropped = _checked(given, lambda settings, model, uri, database, _: drop(
        settings, model, uri, database, type_, id_, by=by, why=why
    ))  # fmt: skip
    versions = [each.number for each in dropped]
    lines = [f"{type_} {id_}: version {each} is dropped" for each in versions]
    _tell({"dropped": versions} if as_json else lines)


@cli.command("migrate")
@click.argument("type_", metavar="TYPE")
@click.option("--to", required=True, help="The new collection.")
@click.option(
    "--finish", is_flag=True, help="Let the old collection refuse writes, and finish the move."
)
@options(*_CHECKING, defaults={"log_level": "warning"})
@_AS_JSON
def migrate_command(type_: str, to: str, finish: bool, as_json: bool, **given: Any) -> None:
    """Move a collection that keeps its versions itself to the ARCHIVE layout.

    May run while the collection is in use, and repeatedly; --finish at the end. Exits 1 if the new
    collection is not equal.
    """

    async def migrating(
        settings: Settings, model: Model, uri: str, database: str, report: Report
    ) -> Move:
        return await migrate(
            settings, model, uri, database, report, type_=type_, to=to, finish=finish
        )

    done = _checked(given, migrating)
    _tell(move_report(done) if as_json else move_lines(done))
    if done.moved is not None and done.moved.findings:
        raise click.exceptions.Exit(1)


Check = Callable[[Settings, Model, str, str, Report], Awaitable[T]]


def _checked(given: dict[str, Any], check: Check[T]) -> T:
    """Run a check on the database of the settings and return its result."""
    settings = _settings(given)
    model = _model(settings.schema)
    if settings.mongodb_uri is None:
        raise click.UsageError("MongoDB: missing, expected a server; set --mongodb-uri URI")
    uri, database = settings.mongodb_uri, settings.database_name()
    found: list[T] = []

    async def checking() -> None:
        async with shown_progress() as report:
            found.append(await check(settings, model, uri, database, report))

    run(checking)
    return found[0]


def _tell(found: Any) -> None:
    """Lines for people, or anything else as JSON."""
    if isinstance(found, list) and all(isinstance(each, str) for each in found):
        click.echo("\n".join(found))
    else:
        click.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())


def _settings(given: dict[str, Any], *, log: bool = True, only: bool = False) -> Settings:
    """Build the settings of a command.

    Args:
        only: refuse variables of settings that it does not take. Commands that are run beside a
            server take its environment as it is.
    """
    if only:
        check_taken(os.environ, given)
    settings = Settings(**without_overridden(given)).with_files_read()
    if log:
        configure_logging(settings.log_level, json=settings.log_json)
    return settings


def _model(path: Path) -> Model:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise click.UsageError(
            f"model: {path} does not exist; write one (docs/reference/model.md), or set its path "
            "with --schema"
        ) from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise click.UsageError(f"model: {path}: {exc}") from exc
    return read_model(text, filename=str(path))
