"""Conversations with a real gateway, for protocols.md: those of tests/snapshots/transcripts."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

__all__ = ["PARTS"]

_FOLDER = Path(__file__).parents[2] / "tests" / "snapshots" / "transcripts"


def _named(file: str, name: str) -> str:
    """Return the conversation under a name."""
    found = re.search(rf"^# {re.escape(name)}\n(.*?)(?=^# |\Z)", _read(file), re.M | re.S)
    assert found is not None, f"{file}: no conversation {name!r}"
    return _block(found[1])


def _numbered(file: str, number: int) -> str:
    """Return a conversation by its place; those of streams have no names."""
    pieces = re.split(r"^(?=> )", _read(file), flags=re.M)[1:]
    return _block(pieces[number])


def _read(file: str) -> str:
    return (_FOLDER / f"{file}.txt").read_text(encoding="utf-8")


def _block(text: str) -> str:
    # The server's name and the empty lines between chunks say nothing.
    lines = [each for each in text.strip().splitlines() if each != "< server: uvicorn"]
    return "```text\n" + re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n```"


PARTS: dict[str, Callable[[], str]] = {
    **{
        f"transcript http: {name}": partial(_named, "http", name)
        for name in (
            "a query",
            "the same by GET",
            "no document, as graphql-response+json",
            "a hash that is not known",
        )
    },
    "transcript sse: a subscription": partial(_numbered, "sse", -1),
    "transcript multipart: a subscription": partial(_numbered, "multipart", -1),
    "transcript graphql-transport-ws": partial(_named, "graphql-transport-ws", "operations"),
    "transcript graphql-ws": partial(_named, "graphql-ws", "operations"),
}
