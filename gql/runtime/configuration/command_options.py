"""Settings as options of commands and as environment variables.

An unknown `REVSTREAM_…` name is an error: a misspelt one would otherwise be silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import click

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
            kind, flag = _click_type(hints[each.name])
            default = (defaults or {}).get(each.name, each.default)
            declaration = f"--{dashed}/--no-{dashed}" if flag else f"--{dashed}"
            command = click.option(
                declaration,
                each.name,
                type=kind,
                default=default,
                show_default=default is not None,
                help=each.metadata["help"],
                envvar=PREFIX + each.name.upper(),
                show_envvar=True,
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


def _click_type(hint: Any) -> tuple[Any, bool]:
    parts = [each for each in get_args(hint) if each is not type(None)]
    if hint is bool:
        return bool, True
    if parts and all(isinstance(each, str) for each in parts):
        return click.Choice(parts), False
    plain = parts[0] if parts else hint
    if plain is Path:
        return click.Path(path_type=Path), False
    if plain is int:
        return click.IntRange(min=0), False
    if plain is float:
        return click.FloatRange(min=0, min_open=True), False
    return plain, False
