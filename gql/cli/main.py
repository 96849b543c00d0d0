"""The command `revstream`."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

import click

from revstream.gql.cli.command_setup import (
    AS_JSON,
    database_of,
    load_model,
    load_settings,
    print_result,
)
from revstream.gql.cli.configuration import checked_settings
from revstream.gql.cli.configuration import lines_of as configuration_lines
from revstream.gql.cli.configuration import report_of as configuration_report
from revstream.gql.cli.demo import demo_settings, play
from revstream.gql.cli.init import import_schema, infer_schema
from revstream.gql.cli.maintenance_commands import COMMANDS
from revstream.gql.runtime.configuration.command_options import (
    check_environment,
    options,
)
from revstream.gql.runtime.configuration.limit_setup import persisted_documents
from revstream.gql.runtime.embedded.mongod import EmbeddedError
from revstream.gql.runtime.progress_display import shown_progress
from revstream.gql.runtime.server import Failed, run, serve
from revstream.gql.schema import build_schema, print_sdl, select_naming
from revstream.model.errors import ModelErrors
from revstream.streams.core.errors import GatewayError

__all__ = ["main"]

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
    settings = load_settings(given, only=True)
    model = load_model(settings.schema)
    # Refuse unusable settings before connecting to MongoDB.
    persisted_documents(settings)
    run(lambda: serve(settings, model, http=True))


@cli.command("record")
@options(
    "config", "schema", "mongodb_uri", "mongodb_uri_file", "database", "management_host",
    "management_port", "listeners", "sink_secrets", "sink_secrets_file", "images",
    "experimental_sharded", "driver", "lease_s", "connect_s",
    "read_limit_s", "retention_every_s", "log_level", "log_json", "tracing",
)  # fmt: skip
def record_command(**given: Any) -> None:
    """Run the listeners only."""
    settings = load_settings(given, only=True)
    model = load_model(settings.schema)
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
    settings = demo_settings(load_settings(given, only=True))
    model = load_model(settings.schema)
    persisted_documents(settings)
    run(lambda: serve(settings, model, http=True, ready=lambda *to: play(*to, rate=rate)))


@cli.command("schema")
@options("config", "schema", "relay")
def schema_command(**given: Any) -> None:
    """Print the API's SDL, for code generators."""
    settings = load_settings(given, log=False)
    click.echo(
        print_sdl(
            build_schema(load_model(settings.schema), naming=select_naming(relay=settings.relay))
        )
    )


@cli.command("init")
@options(
    "config", "mongodb_uri", "mongodb_uri_file", "database", "driver", "connect_s",
    "log_level", "log_json", defaults={"log_level": "warning"},
)  # fmt: skip
@click.option(
    "--output",
    default="schema.graphql",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="File to write, which must not exist; - for standard output.",
)
@click.option(
    "--sample",
    default=1000,
    show_default=True,
    type=click.IntRange(min=1),
    help="Documents of each collection that are read. MongoDB looks for misfits in the others.",
)
@click.option("--all", "everything", is_flag=True, help="Read all documents.")
@click.option(
    "--collection", "only", multiple=True, help="A collection; may be repeated. Default: all."
)
@click.option(
    "--from",
    "source",
    metavar="PATH",
    help="In place of a database: the folder of an Atlas App Services export, a .json file of "
    "Mongoose models, or a .py file of Pydantic models or Beanie documents, which is run.",
)
def init_command(
    output: Path,
    sample: int,
    everything: bool,
    only: tuple[str, ...],
    source: str | None,
    **given: Any,
) -> None:
    """Write a schema.graphql for the collections of a database.

    Types, embedded types, enums, references and unique fields come from the documents and indexes.
    All documents fit the result. Correct names and add what documents do not say.

    With --from, they come from the files of another tool, and no database is needed.
    """
    to_file = str(output) != "-"
    if to_file and output.exists():
        raise click.UsageError(f"{output}: exists, expected a new file; name another with --output")
    settings = load_settings(given)
    found: list[str] = []
    if source is not None:
        found.append(import_schema(source, settings.database, list(only)))
    else:
        uri, database = database_of(settings)

    async def inferring() -> None:
        async with shown_progress() as report:
            found.append(
                await infer_schema(
                    settings, uri, database, report,
                    size=None if everything else sample, only=list(only),
                )
            )  # fmt: skip

    if source is None:
        run(inferring)
    if to_file:
        output.write_text(found[0], encoding="utf-8")
        click.echo(f"{output}: written; read it, then run revstream serve --schema {output}")
    else:
        click.echo(found[0], nl=False)


@cli.command("config")
@options()
@AS_JSON
def config_command(as_json: bool, **given: Any) -> None:
    """Print the settings of serve as TOML, each with its source, and without secrets.

    Checks them as serve does, as far as that is possible without a database.
    """
    found = checked_settings(given)
    print_result(configuration_report(found) if as_json else configuration_lines(found))


for each in COMMANDS:
    cli.add_command(each)
