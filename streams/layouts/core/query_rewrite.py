"""A query over documents, as one over what they are stored as: what can be said there is, so that
indexes serve; the rest is left out, and has to be asked of the documents themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from revstream.streams.mongo.driver.codecs import Document

__all__ = ["Rename", "replace_first_name", "rewrite_query"]

Rename = Callable[[str], str | None]
"""Of a path in documents, the one in what is stored; None where there is none."""


def rewrite_query(query: Mapping[str, Any], rename: Rename) -> tuple[Document, bool]:
    """A query that finds what the other one finds, or more; and whether it finds no more."""
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
                # What is left out of a negated one would make it find less.
                parts.append({name: queries})
        elif name.startswith("$") or (path := rename(name)) is None:
            exact = False
        else:
            parts.append({path: value})
    if len(parts) == 1:
        return parts[0], exact
    return ({"$and": parts} if parts else {}), exact


def replace_first_name(path: str, name: str, other: str) -> str | None:
    """The path with its first name changed, where it begins with that."""
    first, dot, rest = path.partition(".")
    return f"{other}{dot}{rest}" if first == name else None
