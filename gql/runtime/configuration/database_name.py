"""Name of the database, from an option or from the MongoDB URI."""

from __future__ import annotations

import re

import click
from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from revstream.streams.mongo.driver.error_translation import redact_uri

__all__ = ["database_name"]

_SYSTEM_DATABASES = {"admin", "config", "local"}
_NOT_IN_NAMES = frozenset(' "$*./:<>?\\|')


def database_name(given: str | None, uri: str | None) -> str:
    """Return the given name, or else the one in the URI.

    Raises:
        click.UsageError: There is none, or it is not valid.
    """
    name = given or (None if uri is None else _database_of(uri))
    if not name:
        raise click.UsageError(
            "database: missing, expected its name; set --database NAME, or put it into the URI "
            "(mongodb://host/NAME)"
        )
    if name in _SYSTEM_DATABASES:
        raise click.UsageError(
            f"--database: {name!r} is MongoDB's own, expected another; choose another name"
        )
    if _NOT_IN_NAMES.intersection(name) or len(name.encode()) > 63:
        raise click.UsageError(
            f"--database: {name!r}, expected at most 63 bytes without "
            f"{' '.join(sorted(_NOT_IN_NAMES - {' '}))} or a space; choose another name"
        )
    return name


def _database_of(uri: str) -> str | None:
    # Connecting looks up the hosts of a name.
    plain = re.sub(r"^mongodb\+srv://", "mongodb://", uri)
    try:
        found = parse_uri(plain, validate=False, warn=False)["database"]
    except (PyMongoError, ValueError) as exc:
        raise click.UsageError(f"--mongodb-uri: {redact_uri(exc, uri)}") from exc
    return None if found is None else str(found)
