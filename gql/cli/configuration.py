"""`revstream config`: the settings in effect, and the source of each."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from revstream.gql.endpoint.allowed_hosts import allowed_hosts
from revstream.gql.runtime.configuration.config_file import without_overridden
from revstream.gql.runtime.configuration.limit_setup import persisted_documents
from revstream.gql.runtime.configuration.setting_field import GROUPS
from revstream.gql.runtime.configuration.settings import PREFIX, Settings

__all__ = ["checked_settings", "lines_of", "report_of"]

# Of the column before the sources, in characters; longer values move theirs to the right.
_WIDTH = 40


def checked_settings(given: Mapping[str, Any]) -> Settings:
    """Return the settings of the running command; files with secrets are read, and not kept.

    Raises:
        click.UsageError: They are invalid.
    """
    settings = Settings(**without_overridden(given))
    checked = settings.with_files_read()
    checked.origins()
    allowed_hosts(checked.allowed_hosts, checked.host)
    persisted_documents(checked)
    return settings


def report_of(settings: Settings) -> dict[str, Any]:
    """Return the value and the source of each setting, for programs."""
    return {name: {"value": value, "source": source} for name, value, source in _values(settings)}


def lines_of(settings: Settings) -> list[str]:
    """Return the settings as TOML, a table for each group; those without a value are comments."""
    groups = {each.name.replace("_", "-"): each.metadata["group"] for each in fields(settings)}
    lines = []
    for group in GROUPS:
        lines += ["", f"[{group.lower()}]"]
        for name, value, source in _values(settings):
            if groups[name] == group:
                known = f"{name} = {json.dumps(value, ensure_ascii=False)}"
                lines.append(f"{f'# {name} =' if value is None else known:{_WIDTH}}  # {source}")
    return lines[1:]


def _values(settings: Settings) -> Iterator[tuple[str, Any, str]]:
    """Yield the option's name, the value without secrets, and the source of each setting."""
    context = click.get_current_context()
    for each in fields(settings):
        dashed = each.name.replace("_", "-")
        value = settings.shown(each.name)
        given = context.get_parameter_source(each.name)
        if value is None and each.default is None:
            # Also where an alternative has precedence over the file's value.
            given = ParameterSource.DEFAULT
        sources = {
            ParameterSource.COMMANDLINE: f"option --{dashed}",
            ParameterSource.ENVIRONMENT: f"variable {PREFIX}{each.name.upper()}",
            ParameterSource.DEFAULT_MAP: f"file {settings.config}",
        }
        shown = str(value) if isinstance(value, Path) else value
        yield dashed, shown, sources.get(given or ParameterSource.DEFAULT, "default")
