"""Dataclass field of a setting: its group, its help and its unit, for options and documentation."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import Field, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

__all__ = ["GROUPS", "group", "kind_of", "unit_of"]

GROUPS: Mapping[str, str] = {
    "General": "The configuration file, the model, and what the API offers for it.",
    "MongoDB": "The server, the database, and how they are used.",
    "HTTP": "The address, the connections of clients, and their buffers.",
    "Recording": "The recorders of versions and the retention of old ones.",
    "Listeners": "Listeners of your own, and webhooks.",
    "Subscriptions": "Events for subscribers.",
    "Access": "Who may sign in, and how.",
    "Limits": "Bounds of one operation, of one caller, and of all together.",
    "Log": "The log, on the standard error stream, and traces.",
}
"""Groups of settings, in the order in which people read them."""

_UNITS = {"s": "seconds", "bytes": "bytes"}
_KINDS = {Path: "path", str: "text", int: "integer", float: "number", bool: "yes or no"}


def group(name: str) -> Callable[..., Any]:
    """Return a function that creates the field of a setting of this group.

    Its arguments are the default, the help, the unit of a count, and whether the text is a list
    that is separated by commas.
    """
    assert name in GROUPS

    def setting(default: Any, text: str, unit: str = "", *, separated: bool = False) -> Any:
        metadata = {"help": text, "group": name, "unit": unit, "separated": separated}
        return field(default=default, metadata=metadata)

    return setting


def unit_of(setting: Field[Any]) -> str:
    """Return the unit of a setting's value; an empty text if it has none."""
    return _UNITS.get(setting.name.rpartition("_")[2]) or str(setting.metadata["unit"])


def kind_of(setting: Field[Any], hint: Any) -> str:
    """Return the type of a setting's value in words.

    Args:
        hint: the resolved annotation of the field.
    """
    if setting.metadata["separated"]:
        return "list"
    if get_origin(hint) is types.UnionType:
        hint = next(each for each in get_args(hint) if each is not types.NoneType)
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(get_args(hint))
    return _KINDS[hint]
