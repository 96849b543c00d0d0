"""Types of settings as click's types."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click

__all__ = ["click_type", "plain_type"]


def plain_type(hint: Any) -> Any:
    """Return the type of a setting without None; `str` for a choice of texts."""
    parts = [each for each in get_args(hint) if each is not type(None)]
    if parts and all(isinstance(each, str) for each in parts):
        return str
    return parts[0] if parts else hint


def click_type(hint: Any) -> tuple[Any, bool]:
    """Return click's type of a setting, and whether it is a flag."""
    parts = get_args(hint)
    if parts and all(isinstance(each, str) for each in parts):
        return click.Choice(parts), False
    plain = plain_type(hint)
    if plain is bool:
        return click.BOOL, True
    if plain is Path:
        return click.Path(path_type=Path), False
    if plain is int:
        return click.IntRange(min=0), False
    if plain is float:
        return click.FloatRange(min=0, min_open=True), False
    return click.STRING, False
