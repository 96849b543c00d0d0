"""Settings with secrets: read from files, and hidden where settings are printed."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["read_secret", "without_password"]


def read_secret(name: str, path: Path, given: str | None) -> str:
    """Return the content of the file of a setting.

    Raises:
        click.UsageError: The file cannot be read or is empty, or the setting is given, too.
    """
    option = "--" + name.replace("_", "-")
    if given is not None:
        raise click.UsageError(f"{option} and {option}-file: both, expected one; remove the other")
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = getattr(exc, "strerror", None) or "not text"
        raise click.UsageError(f"{option}-file: {path}: {reason}") from exc
    if not text:
        raise click.UsageError(f"{option}-file: {path}: empty, expected a value; write it there")
    return text


def without_password(uri: str) -> str:
    """Return a MongoDB URI without its password and its options."""
    scheme, _, rest = uri.partition("://")
    _, at, where = rest.rpartition("@")
    # Options may be secrets, too: tlsCertificateKeyFilePassword.
    hosts, mark, _ = where.partition("?")
    return f"{scheme}://{'***@' if at else ''}{hosts}{'?…' if mark else ''}"
