"""Shared parts of commands: settings, model, a run on the database, and the printed result."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from revstream.gql.observability.logging_setup import configure_logging
from revstream.gql.runtime.configuration.command_options import check_taken
from revstream.gql.runtime.configuration.config_file import without_overridden
from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.progress_display import Report, shown_progress
from revstream.gql.runtime.server import run
from revstream.model.compiler.loader import read_model
from revstream.model.definition import Model
from revstream.resolvers.access.row_filter import mistakes_in_rules

__all__ = ["AS_JSON", "database_of", "load_model", "load_settings", "print_result", "run_check"]

T = TypeVar("T")

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")

Check = Callable[[Settings, Model, str, str, Report], Awaitable[T]]


def run_check(given: dict[str, Any], check: Check[T]) -> T:
    """Run a check on the database of the settings and return its result."""
    settings = load_settings(given)
    model = load_model(settings.schema)
    uri, database = database_of(settings)
    found: list[T] = []

    async def checking() -> None:
        async with shown_progress() as report:
            found.append(await check(settings, model, uri, database, report))

    run(checking)
    return found[0]


def database_of(settings: Settings) -> tuple[str, str]:
    """Return the URI and the database's name."""
    if settings.mongodb_uri is None:
        raise click.UsageError("MongoDB: missing, expected a server; set --mongodb-uri URI")
    return settings.mongodb_uri, settings.database_name()


def print_result(found: Any) -> None:
    """Lines for people, or anything else as JSON."""
    if isinstance(found, list) and all(isinstance(each, str) for each in found):
        click.echo("\n".join(found))
    else:
        click.echo(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())


def load_settings(given: dict[str, Any], *, log: bool = True, only: bool = False) -> Settings:
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


def load_model(path: Path) -> Model:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as exc:
        raise click.UsageError(
            f"model: {path} does not exist; make one from a database with `revstream init`, write "
            "one (docs/reference/model.md), or set its path with --schema"
        ) from exc
    except (OSError, UnicodeDecodeError) as exc:
        raise click.UsageError(f"model: {path}: {exc}") from exc
    model = read_model(text, filename=str(path))
    if mistakes := mistakes_in_rules(model):
        raise click.UsageError("\n".join(f"model: {path}: {each}" for each in mistakes))
    return model
