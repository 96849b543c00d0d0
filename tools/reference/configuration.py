"""Settings in groups, for configuration.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, get_type_hints

from revstream.gql.runtime.configuration.setting_field import GROUPS, kind_of, unit_of
from revstream.gql.runtime.configuration.settings import PREFIX, Settings
from tools.reference.commands import CHECKS, COMMANDS
from tools.reference.markdown import code, linked, table

__all__ = ["PARTS"]

_HINTS = get_type_hints(Settings)
_UNITS = ((1024**2, "MiB"), (1024, "KiB"))


def _group(name: str) -> str:
    settings = [each for each in dataclasses.fields(Settings) if each.metadata["group"] == name]
    return "\n".join(
        (
            linked(GROUPS[name]),
            "",
            table(
                ("option and variable", "type", "default", "commands", "meaning"),
                (
                    (
                        f"`{option(each.name)}`<br>`{PREFIX}{each.name.upper()}`",
                        ", ".join(filter(None, (kind_of(each, _HINTS[each.name]), unit_of(each)))),
                        _default(each),
                        _commands(each.name),
                        linked(each.metadata["help"]),
                    )
                    for each in settings
                ),
            ),
        )
    )


def option(name: str) -> str:
    """Return the option of a setting."""
    return "--" + name.replace("_", "-")


def _default(setting: dataclasses.Field[Any]) -> str:
    value: Any = setting.default
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return ""
    if unit_of(setting) == "bytes":
        for size, unit in _UNITS:
            if value % size == 0:
                return f"`{value}` ({value // size} {unit})"
    return code(f"{value:g}" if isinstance(value, float) else value)


def _commands(name: str) -> str:
    """Return the commands that take a setting, without `config`, which takes all."""
    taken = [each for each, command in COMMANDS.items() if name in _taken(command)]
    if set(CHECKS) <= set(taken):
        taken = [each for each in taken if each not in CHECKS] + ["checks"]
    return ", ".join(each for each in taken if each != "config")


def _taken(command: Any) -> set[str]:
    return {each.name for each in command.params}


PARTS: dict[str, Callable[[], str]] = {f"settings {name}": partial(_group, name) for name in GROUPS}
