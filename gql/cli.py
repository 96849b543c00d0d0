"""The command `revstream`."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from gql.demo import demo_settings, play
from gql.diagnosing import examine
from gql.diagnosing import lines_of as examine_lines
from gql.diagnosing import report_of as examine_report
from gql.logs import configure_logging
from gql.mongod import EmbeddedError
from gql.progress import Report, shown_progress
from gql.schema import build_schema, print_sdl
from gql.serving import Failed, run, serve
from gql.settings import Settings, check_environment, options
from gql.verifying import lines_of as verify_lines
from gql.verifying import report_of as verify_report
from gql.verifying import verify
from model.entities import Model
from model.errors import ModelErrors
from model.reading import read_model
from streams.errors import GatewayError

__all__ = ["main"]

T = TypeVar("T")


def main() -> None:
    """Every error that a user can mend is printed as a sentence, never as a traceback. Exits 1 (2:
    wrong usage)."""
    try:
        code = _run()
    except Exception:
        # A fault of ours.
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # Not sys.exit, which waits for Motor's threads: one may be in a read of the oplog that takes
    # minutes, and nobody wants its result any more.
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
    settings = _settings(given)
    model = _model(settings.schema)
    run(lambda: serve(settings, model, http=True))


@cli.command("record")
@options(
    "schema", "mongodb_uri", "database", "images", "driver", "lease_s", "connect_s", "read_limit_s",
    "log_level", "log_json",
)  # fmt: skip
def record_command(**given: Any) -> None:
    """Run the listeners only."""
    settings = _settings(given)
    model = _model(settings.schema)
    run(lambda: serve(settings, model, http=False))


@cli.command("demo")
@options("embedded", "host", "port", "driver", "log_level", defaults={"log_level": "warning"})
@click.option("--rate", default=2.0, show_default=True, help="Writes per second.")
def demo_command(rate: float, **given: Any) -> None:
    """Serve the example shop on a MongoDB of its own, loaded and being written to."""
    settings = demo_settings(_settings(given))
    model = _model(settings.schema)
    run(lambda: serve(settings, model, http=True, ready=lambda *to: play(*to, rate=rate)))


_CHECKING = (
    "schema", "mongodb_uri", "database", "driver", "connect_s", "read_limit_s", "log_level",
    "log_json",
)  # fmt: skip
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@cli.command("verify")
@options(*_CHECKING, defaults={"log_level": "warning"})
@_AS_JSON
def verify_command(as_json: bool, **given: Any) -> None:
    """Check the archives: their versions against one another, and the last against the present.

    Exits 1 where something is wrong.
    """
    found = _checked(given, verify)
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
@options("schema")
def schema_command(**given: Any) -> None:
    """Print the API's SDL, for code generators."""
    click.echo(print_sdl(build_schema(_model(_settings(given, log=False).schema))))


Check = Callable[[Settings, Model, str, str, Report], Awaitable[T]]


def _checked(given: dict[str, Any], check: Check[T]) -> T:
    """What a check of the database that was named has found."""
    settings = _settings(given)
    model = _model(settings.schema)
    if settings.mongodb_uri is None:
        raise click.UsageError("no MongoDB given: --mongodb-uri URI")
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


def _settings(given: dict[str, Any], *, log: bool = True) -> Settings:
    settings = Settings(**given)
    if log:
        configure_logging(settings.log_level, json=settings.log_json)
    return settings


def _model(path: Path) -> Model:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise click.UsageError(
            f"no model at {path}: write one (docs/model.md), or say where it is with --schema"
        ) from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise click.UsageError(f"the model {path} cannot be read: {exc}") from exc
    return read_model(text, filename=str(path))
