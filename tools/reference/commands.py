"""Commands, for cli.md."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from functools import partial

import click

from revstream.gql.cli.main import cli
from revstream.gql.runtime.configuration.setting_field import GROUPS
from revstream.gql.runtime.configuration.settings import Settings
from tools.reference.markdown import code, linked, table

__all__ = ["CHECKS", "COMMANDS", "PARTS"]


def _commands(group: click.Group, *before: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, *before, name)
        else:
            yield " ".join((*before, name)), command


COMMANDS = dict(_commands(cli))
"""Each command by its name without `revstream`."""

_CHECKS = ("verify", "doctor", "purge", "deliveries", "migrate")
CHECKS = [each for each in COMMANDS if each.partition(" ")[0] in _CHECKS]
"""Commands that examine or repair a database."""

_ARGUMENTS = {
    "TYPE": "Name of a type of the model that has a collection.",
    "ID": "Id of the document, as the API shows it.",
}

_SETTINGS = {each.name: each for each in dataclasses.fields(Settings)}


def _index() -> str:
    return table(
        ("command", "does"),
        (
            (f"[`revstream {name}`](#revstream-{name.replace(' ', '-')})", _summary(command))
            for name, command in COMMANDS.items()
        ),
    )


def _summary(command: click.Command) -> str:
    return linked(_help(command).partition("\n\n")[0])


def _help(command: click.Command) -> str:
    text = inspect.cleandoc(command.help or "")
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))


def _command(name: str) -> str:
    command = COMMANDS[name]
    # It keeps names out of the page that depend on how it is made.
    context = click.Context(command, info_name=f"revstream {name}")
    pieces = " ".join(command.collect_usage_pieces(context))
    parts = [linked(_help(command)), f"```text\nrevstream {name} {pieces}\n```"]
    own = [
        each
        for each in command.params
        if isinstance(each, click.Option) and each.name not in _SETTINGS
    ]
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    if arguments:
        names = [(each.metavar or "").strip("[]") for each in arguments]
        parts.append(
            table(("argument", "meaning"), ((code(each), _ARGUMENTS[each]) for each in names))
        )
    if own:
        parts.append(table(("option", "default", "meaning"), map(_own, own)))
    parts.append(_settings(name, command))
    return "\n\n".join(parts)


def _own(option: click.Option) -> tuple[str, str, str]:
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(cli))}"
    default = "required" if option.required else ""
    if not option.is_flag and option.show_default:
        given = option.default
        default = code(f"{given:g}" if isinstance(given, float) else str(given))
    return code(f"{option.opts[0]}{value}"), default, linked(option.help or "")


def _settings(name: str, command: click.Command) -> str:
    taken = [each for each in command.params if each.name in _SETTINGS]
    if len(taken) == len(_SETTINGS):
        text = "Takes all [settings](configuration.md)."
    else:
        listed = [
            f"- [{group}](configuration.md#{group.lower()}): "
            + ", ".join(code(each.opts[0]) for each in found)
            for group in GROUPS
            if (found := [each for each in taken if _group_of(each) == group])
        ]
        text = "\n".join(["Takes these settings:", "", *listed])
    other = [
        f"{code(each.opts[0])} is {code(each.default) if each.default is not None else 'not set'}"
        for each in taken
        if each.default != _SETTINGS[each.name or ""].default
    ]
    return f"{text}\n\nOther defaults here: {', '.join(other)}." if other else text


def _group_of(option: click.Parameter) -> str:
    return str(_SETTINGS[option.name or ""].metadata["group"])


PARTS: dict[str, Callable[[], str]] = {
    "commands": _index,
    **{f"command {name}": partial(_command, name) for name in COMMANDS},
}
