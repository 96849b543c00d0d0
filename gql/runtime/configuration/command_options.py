"""Settings as options of commands, as environment variables, and in a file.

An unknown `REVSTREAM_…` name is an error: a misspelt one would otherwise be silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypeVar, get_type_hints

import click

from revstream.gql.runtime.configuration.config_file import take_config
from revstream.gql.runtime.configuration.option_types import click_type
from revstream.gql.runtime.configuration.settings import PREFIX, Settings

__all__ = ["check_environment", "check_taken", "options"]

Command = TypeVar("Command", bound=Callable[..., Any])
# Read by the test suite, which hands its environment to the commands that it starts.
_TESTS = {"REVSTREAM_FUZZ", "REVSTREAM_REAL_DATA", "REVSTREAM_TEST_MONGODB_URI"}


def options(*names: str, defaults: Mapping[str, Any] | None = None) -> Callable[[Command], Command]:
    """A decorator that gives a click command the options of these settings; all of them where none
    is named.
    """
    hints = get_type_hints(Settings)

    def decorate(command: Command) -> Command:
        for each in reversed(fields(Settings)):
            if names and each.name not in names:
                continue
            dashed = each.name.replace("_", "-")
            kind, flag = click_type(hints[each.name])
            default = (defaults or {}).get(each.name, each.default)
            declaration = f"--{dashed}/--no-{dashed}" if flag else f"--{dashed}"
            # Read before the others, whose defaults it holds.
            config: dict[str, Any] = (
                {"is_eager": True, "callback": take_config} if each.name == "config" else {}
            )
            command = click.option(
                declaration,
                each.name,
                type=kind,
                default=default,
                show_default=default is not None,
                help=each.metadata["help"],
                envvar=PREFIX + each.name.upper(),
                show_envvar=True,
                **config,
            )(command)
        return command

    return decorate


def check_environment(environ: Mapping[str, str]) -> None:
    """Refuse names that mean nothing.

    Raises:
        click.UsageError: naming each unknown variable and what it may have been meant to be.
    """
    known = {PREFIX + each.name.upper() for each in fields(Settings)} | _TESTS
    unknown = sorted(name for name in environ if name.startswith(PREFIX) and name not in known)
    if not unknown:
        return
    lines = []
    for name in unknown:
        close = get_close_matches(name, known, n=1)
        lines.append(
            f"{name}: no setting; " + (f"did you mean {close[0]}?" if close else "remove it")
        )
    raise click.UsageError("\n".join(lines))


def check_taken(environ: Mapping[str, str], taken: Iterable[str]) -> None:
    """Refuse settings of other commands: they would have no effect.

    Args:
        taken: names of the settings that the command takes.

    Raises:
        click.UsageError: naming each variable.
    """
    settings = {PREFIX + each.name.upper() for each in fields(Settings)}
    names = settings - {PREFIX + each.upper() for each in taken}
    unused = sorted(names & environ.keys())
    if unused:
        raise click.UsageError(f"{', '.join(unused)}: not used by this command; unset it")
