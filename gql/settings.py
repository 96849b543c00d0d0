"""Every setting once: its default, its help, its option and its environment variable.

`--read-limit-s` is `REVSTREAM_READ_LIMIT_S`, and so on. An unknown `REVSTREAM_…` name is an error:
a misspelt one would otherwise be silence. README's table is compared with this class by a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import click
from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from streams.mongo import MongoOptions

__all__ = ["PREFIX", "Settings", "check_environment", "options"]

PREFIX = "REVSTREAM_"
Command = TypeVar("Command", bound=Callable[..., Any])
# Read by the test suite, which hands its environment to the commands that it starts.
_TESTS = {"REVSTREAM_REAL_DATA", "REVSTREAM_TEST_MONGODB_URI"}

_SCHEMA = Path("schema.graphql")


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Built once, from the command line and the environment; printed without the URI's password."""

    schema: Path = _setting(_SCHEMA, "The model: which collections there are and what is in them.")
    mongodb_uri: str | None = _setting(None, "The replica set, as a MongoDB URI.")
    embedded: Path | None = _setting(
        None, "Run a MongoDB of its own, with its data in this directory."
    )
    database: str | None = _setting(None, "The database; without it, the one that the URI names.")
    host: str = _setting("127.0.0.1", "The address to listen on.")
    port: int = _setting(8000, "The port to listen on; 0 takes a free one.")
    record: bool = _setting(True, "Whether this process offers itself as recorder.")
    images: bool = _setting(
        True, "Whether to have MongoDB keep the images before and after each write."
    )
    driver: Literal["motor", "pymongo"] = _setting("motor", "Which MongoDB driver to use.")
    ring_events: int = _setting(
        10_000, "Events per collection kept in memory for those who reconnect."
    )
    ring_bytes: int = _setting(
        64 * 1024 * 1024, "The most memory that a collection's ring may take."
    )
    backlog_events: int = _setting(
        5000, "Events that may wait for one subscriber before it is ended."
    )
    quiet_s: float = _setting(
        20.0, "After so long without an event a subscriber is sent a fresher token."
    )
    lease_s: float = _setting(10.0, "How long a recorder's lease holds without being renewed.")
    archive_wait_s: float = _setting(5.0, "How long a read of history waits for the recorder.")
    author_header: str | None = _setting(
        None,
        "The request header that says who writes. It is believed: only for gateways that nothing "
        "but a proxy reaches that sets it.",
    )
    repeat_window_s: float = _setting(
        86_400.0, "How long a mutation may be sent again under its idempotency key."
    )
    read_limit_s: float = _setting(30.0, "The longest that a read may take in MongoDB.")
    connect_s: float = _setting(10.0, "How long to look for MongoDB's primary.")
    shutdown_s: float = _setting(
        5.0, "How long requests under way may take once the process is told to stop."
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "The least that is logged."
    )
    log_json: bool = _setting(False, "Whether log lines are JSON objects.")

    def database_name(self) -> str:
        """Raises click.UsageError where neither `--database` nor the URI names one that can be."""
        named = None if self.mongodb_uri is None else _database_of(self.mongodb_uri)
        name = self.database or named
        if not name:
            raise click.UsageError(
                "no database named: give --database NAME, or put it in the URI (mongodb://host/NAME)"
            )
        if name in _SYSTEM_DATABASES:
            raise click.UsageError(f"{name!r} is MongoDB's own database; give another --database")
        if _NOT_IN_NAMES.intersection(name) or len(name.encode()) > 63:
            raise click.UsageError(
                f"{name!r} is no name of a database: 63 bytes at most, "
                f"none of them one of {' '.join(sorted(_NOT_IN_NAMES - {' '}))} or a space"
            )
        return name

    def mongo_options(self) -> MongoOptions:
        return MongoOptions(
            driver=self.driver,
            read_limit_s=self.read_limit_s,
            server_selection_s=self.connect_s,
        )

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{each.name}={_shown(each.name, getattr(self, each.name))}" for each in fields(self)
        )
        return f"Settings({shown})"


_SYSTEM_DATABASES = {"admin", "config", "local"}
_NOT_IN_NAMES = frozenset(' "$*./:<>?\\|')


def _database_of(uri: str) -> str | None:
    try:
        found = parse_uri(uri, validate=False, warn=False)["database"]
    except (PyMongoError, ValueError) as exc:
        raise click.UsageError(f"the MongoDB URI cannot be used: {_harmless(exc, uri)}") from exc
    return None if found is None else str(found)


def _harmless(exc: Exception, uri: str) -> str:
    """The message without what it quotes of the URI: it may be part of a password that was not
    escaped."""
    quoted = re.compile(r"""(["'])(?P<quoted>.*?)\1|(?<=: )(?P<last>\S+)$""")
    return quoted.sub(
        lambda found: "…" if (found["quoted"] or found["last"]) in uri else found[0], str(exc)
    )


def _shown(name: str, value: object) -> str:
    if name != "mongodb_uri" or not isinstance(value, str):
        return repr(value)
    scheme, _, rest = value.partition("://")
    return repr(f"{scheme}://***@{rest.rpartition('@')[2]}" if "@" in rest else value)


def options(*names: str, defaults: Mapping[str, Any] | None = None) -> Callable[[Command], Command]:
    """A decorator that gives a click command the options of these settings; all of them where none
    is named."""
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
        lines.append(f"{name} is not a setting" + (f"; did you mean {close[0]}?" if close else ""))
    raise click.UsageError("\n".join(lines))


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
