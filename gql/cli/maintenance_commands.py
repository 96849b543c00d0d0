"""Commands that examine or repair a database: verify, doctor, purge, deliveries, migrate."""

from __future__ import annotations

import functools
import sys
from typing import Any

import click

from revstream.gql.cli.command_setup import AS_JSON, print_result, run_check
from revstream.gql.cli.deliveries import drop, look, retry
from revstream.gql.cli.deliveries import lines_of as deliveries_lines
from revstream.gql.cli.deliveries import report_of as deliveries_report
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
from revstream.gql.runtime.configuration.command_options import options
from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.progress_display import Report
from revstream.model.definition import Model
from revstream.streams.versioning.attribution import RESERVED_NAMES, is_reserved_name

__all__ = ["COMMANDS"]

CHECKING = (
    "config", "schema", "mongodb_uri", "mongodb_uri_file", "database", "experimental_sharded",
    "driver", "connect_s", "read_limit_s", "log_level", "log_json",
)  # fmt: skip


@click.command("verify")
@options(*CHECKING, defaults={"log_level": "warning"})
@click.option(
    "--mend", is_flag=True, help="First repair what crashes of programs have left in layouts."
)
@AS_JSON
def verify_command(mend: bool, as_json: bool, **given: Any) -> None:
    """Check the archives: their versions against one another, and the last against the present.

    Exits 1 where something is wrong.
    """
    found = run_check(given, functools.partial(verify, mend=mend))
    print_result(verify_report(found) if as_json else verify_lines(found))
    if any(each.findings for each in found.values()):
        raise click.exceptions.Exit(1)


@click.command("doctor")
@options(*CHECKING, defaults={"log_level": "error"})
@AS_JSON
def doctor_command(as_json: bool, **given: Any) -> None:
    """Examine the deployment, and say how to mend what is wrong.

    Exits 1 where there is a warning or an error.
    """
    found = run_check(given, examine)
    print_result(examine_report(found) if as_json else examine_lines(found))
    if any(each.level in ("warning", "error") for each in found):
        raise click.exceptions.Exit(1)


def _person(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Return a valid name of a person, for the record of a removal."""
    if is_reserved_name(value):
        raise click.BadParameter(f"{value!r}, names that begin with {RESERVED_NAMES} are reserved")
    return value


@click.command("purge")
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
@options(*CHECKING, defaults={"log_level": "warning"})
@AS_JSON
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
    done = run_check(given, purging)
    print_result(purge_report(done) if as_json else purge_lines(done))


@click.group("deliveries")
def deliveries_group() -> None:
    """Show and repair deliveries that receivers do not accept."""


@deliveries_group.command("list")
@options(*CHECKING, defaults={"log_level": "warning"})
@AS_JSON
def deliveries_list_command(as_json: bool, **given: Any) -> None:
    """List documents whose events wait, with the reason, and receivers that are away.

    Exits 1 if something is parked: it is not tried again until `retry` or `drop`.
    """
    found = run_check(given, lambda settings, model, uri, database, _: look(
        settings, model, uri, database
    ))  # fmt: skip
    print_result(deliveries_report(found) if as_json else deliveries_lines(found))
    if found.parked:
        raise click.exceptions.Exit(1)


@deliveries_group.command("retry")
@click.argument("type_", metavar="[TYPE", required=False)
@click.argument("id_", metavar="ID]", required=False)
@click.option("--all", "everything", is_flag=True, help="All documents that wait.")
@options(*CHECKING, defaults={"log_level": "warning"})
@AS_JSON
def deliveries_retry_command(
    type_: str | None, id_: str | None, everything: bool, as_json: bool, **given: Any
) -> None:
    """Try the events of one document again, or of all: at once, parked ones too."""
    if everything == (id_ is not None) or (type_ is None) != (id_ is None):
        raise click.UsageError("arguments: expected TYPE and ID of a document, or --all")
    count = run_check(given, lambda settings, model, uri, database, _: retry(
        settings, model, uri, database, type_, id_
    ))  # fmt: skip
    print_result({"retried": count} if as_json else [f"{count:,} deliveries are tried again now"])


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
@options(*CHECKING, defaults={"log_level": "warning"})
@AS_JSON
def deliveries_drop_command(
    type_: str, id_: str, by: str, why: str, as_json: bool, **given: Any
) -> None:
    """Drop the event of a document that is not accepted; later ones go on.

    The receiver never gets it. The name, the reason and the time are kept.
    """
    dropped = run_check(given, lambda settings, model, uri, database, _: drop(
        settings, model, uri, database, type_, id_, by=by, why=why
    ))  # fmt: skip
    versions = [each.number for each in dropped]
    lines = [f"{type_} {id_}: version {each} is dropped" for each in versions]
    print_result({"dropped": versions} if as_json else lines)


@click.command("migrate")
@click.argument("type_", metavar="TYPE")
@click.option("--to", required=True, help="The new collection.")
@click.option(
    "--finish", is_flag=True, help="Let the old collection refuse writes, and finish the move."
)
@options(*CHECKING, defaults={"log_level": "warning"})
@AS_JSON
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

    done = run_check(given, migrating)
    print_result(move_report(done) if as_json else move_lines(done))
    if done.moved is not None and done.moved.findings:
        raise click.exceptions.Exit(1)


COMMANDS = (verify_command, doctor_command, purge_command, deliveries_group, migrate_command)
