"""Rewrite of a query on documents to a query on their stored form.

Conditions that exist there are translated, so that indexes can be used; the others are left out and
have to be checked on the documents themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from revstream.streams.mongo.driver.codecs import Document

__all__ = ["Rename", "replace_first_name", "rewrite_query"]

Rename = Callable[[str], str | None]
"""Maps a path in documents to the one in their stored form; None where there is none."""


def rewrite_query(query: Mapping[str, Any], rename: Rename) -> tuple[Document, bool]:
    """Return a query that finds the same documents or more, and whether it finds no more."""
    parts: list[Document] = []
    exact = True
    for name, value in query.items():
        if name in ("$and", "$or", "$nor"):
            inner = [rewrite_query(each, rename) for each in value]
            same = all(each for _, each in inner)
            exact = exact and same
            queries = [each for each, _ in inner]
            if name == "$and":
                parts += [each for each in queries if each]
            elif same or (name == "$or" and all(queries)):
                # A condition left out of a negation would make it find less.
                parts.append({name: queries})
        elif name.startswith("$") or (path := rename(name)) is None:
            exact = False
        else:
            parts.append({path: value})
    if len(parts) == 1:
        return parts[0], exact
    return ({"$and": parts} if parts else {}), exact


def replace_first_name(path: str, name: str, other: str) -> str | None:
    """Return the path with its first name replaced; None if it begins with another name."""
    first, dot, rest = path.partition(".")
    return f"{other}{dot}{rest}" if first == name else None
