"""Settings in a TOML file: the option `--config`, and the values of the file by setting.

The file is for a whole deployment: each command takes the settings that it has, and all of them are
checked. Options and variables have precedence over it (click's `default_map`).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args, get_type_hints

import click
from click.core import ParameterSource

from revstream.gql.runtime.configuration.option_types import click_type, plain_type
from revstream.gql.runtime.configuration.setting_field import GROUPS
from revstream.gql.runtime.configuration.settings import SECRETS, Settings

__all__ = ["read_config", "take_config", "without_overridden"]

# Of one thing, so that one of them from an option or a variable has precedence over another one
# from the file.
_ALTERNATIVES = (
    ("mongodb_uri", "mongodb_uri_file", "embedded"),
    ("sink_secrets", "sink_secrets_file"),
)
_KNOWN = {each.name: each for each in fields(Settings) if each.name != "config"}
_TABLES = {name.lower() for name in GROUPS}
_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
_EXPECTED = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path, as text",
}
# Characters of a wrong value in a message.
_MOST_SHOWN = 60


def take_config(context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Callback of `--config`, which is eager: the file's values become the defaults of the command.

    Raises:
        click.UsageError: see `read_config`.
    """
    if path is not None:
        context.default_map = read_config(path)
    return path


def read_config(path: Path) -> dict[str, Any]:
    """Read the settings of a file, by name. Relative paths become relative to the file's folder.

    Raises:
        click.UsageError: The file cannot be read, or names all keys and values that are wrong.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "not text"
        raise click.UsageError(f"--config: {path}: {reason}") from exc
    except tomllib.TOMLDecodeError as exc:
        raise click.UsageError(f"--config: {path}: no valid TOML: {exc}") from exc
    found: dict[str, Any] = {}
    problems = []
    for table, key, value in _entries(content):
        name = key.replace("-", "_")
        problem = "twice, expected one; remove the other" if name in found else None
        problem = problem or _misplaced(table, key) or _problem(_KNOWN[name], value)
        if problem is None:
            found[name] = _from_folder(name, value, path.parent)
        else:
            place = f"[{table}] {key}" if table else key
            problems.append(f"{path}: {place}: {problem}")
    if problems:
        raise click.UsageError("\n".join(problems))
    return found


def without_overridden(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the running command without those of the file for which an option or a
    variable has given an alternative, such as a URI where the file names a file with one.
    """
    source = click.get_current_context().get_parameter_source
    kept = dict(given)
    for names in _ALTERNATIVES:
        there = [name for name in names if given.get(name) is not None]
        if any(source(name) in _GIVEN for name in there):
            kept |= {name: None for name in there if source(name) not in _GIVEN}
    return kept


def _entries(content: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield table, key and value; the table is empty at the top."""
    for key, value in content.items():
        if isinstance(value, dict) and key in _TABLES:
            yield from ((key, inner, each) for inner, each in value.items())
        else:
            yield "", key, value


def _misplaced(table: str, key: str) -> str | None:
    """Return why a key cannot be here; None if it can: at the top, or in the table of its group."""
    if key == "config":
        return "a file cannot name another; set it with --config or REVSTREAM_CONFIG"
    name = key.replace("-", "_")
    if name in _KNOWN:
        own = _KNOWN[name].metadata["group"].lower()
        return (
            None if table in ("", own) else f"not of this table; move it to [{own}] or to the top"
        )
    close = get_close_matches(name, {*_KNOWN, *_TABLES}, n=1)
    mend = f"did you mean {close[0].replace('_', '-')}?" if close else "remove it"
    return f"no setting; {mend}"


def _problem(setting: Field[Any], value: Any) -> str | None:
    """Return what is wrong with a value; None if nothing is."""
    hint = get_type_hints(Settings)[setting.name]
    kind = plain_type(hint)
    choices = [each for each in get_args(hint) if isinstance(each, str)]
    if setting.metadata["separated"] and isinstance(value, list):
        wrong = [each for each in value if not isinstance(each, str) or "," in each]
        shown = _shown(setting.name, wrong[0]) if wrong else ""
        return f"{shown}, expected texts without a comma in the list" if wrong else None
    # To TOML, true is no number, and 5 is none with a fraction.
    allowed = {bool: (bool,), int: (int,), float: (int, float)}.get(kind, (str,))
    if type(value) not in allowed:
        expected = " or ".join(choices) or _EXPECTED[kind]
        if setting.metadata["separated"]:
            expected += ", or a list of them"
        return f"{_shown(setting.name, value)}, expected {expected}"
    if choices:
        return None if value in choices else f'"{value}", expected {" or ".join(choices)}'
    try:
        click_type(hint)[0].convert(value, None, None)
    except click.BadParameter as exc:
        return exc.message.removesuffix(".")
    return None


def _shown(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return "a table"
    text = "***" if name in SECRETS else json.dumps(value, default=str)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _from_folder(name: str, value: Any, folder: Path) -> Any:
    if isinstance(value, list):
        return ",".join(value)
    is_file = plain_type(get_type_hints(Settings)[name]) is Path
    # A URL, or a file.
    is_file = is_file or (name == "jwt_keys" and "://" not in value)
    return str(folder / value) if is_file else value
