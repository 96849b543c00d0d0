"""Read what was asked for and no more: fields as MongoDB's projections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from revstream.streams.versioning.content_encoding import PACKED

__all__ = [
    "ENDED",
    "EVERY_FACT",
    "Fields",
    "document_projection",
    "prefixed_projection",
    "record_projection",
]

Fields = frozenset[str]
"""Stored names, dotted where they lie inside of an embedded document."""

# Every version has them; they are what a page of versions is made of.
_RECORD: Mapping[str, Any] = dict.fromkeys(("doc", "v", "op", "at", "wall"), 1)

EVERY_FACT = frozenset(["prev", "by", "why", "restoredFrom", "draft", "changed", "gap", "cut"])
"""What records say besides."""

ENDED = "ended"
"""A fact that no record says of itself: when its version was replaced. See `Page.ends`."""


@lru_cache(maxsize=1000)
def document_projection(fields: Fields) -> Mapping[str, Any]:
    """Of a current document; `_id` always."""
    return {"_id": 1, **dict.fromkeys(_outermost(fields), 1)}


@lru_cache(maxsize=1000)
def record_projection(fields: Fields | None, facts: Fields = EVERY_FACT) -> Mapping[str, Any]:
    """Of an archive record: what is said of the version, and of the document these fields.

    Args:
        fields: None for nothing of the document; its `_id` is read with any. With them goes what
            leads to a content that lies elsewhere.
        facts: what is said beside the document's id, the number, the operation and the times.
    """
    record = {**_RECORD, **dict.fromkeys(facts - {ENDED}, 1)}
    if "gap" in facts:
        record["spanning"] = 1
    if fields is None:
        return record
    content = {f"full.{name}": 1 for name in _outermost({"_id", *fields})}
    return {**record, **dict.fromkeys(PACKED, 1), **content}


def prefixed_projection(name: str, projection: Mapping[str, Any]) -> dict[str, Any]:
    """The same of what lies in a field, with its `_id`.

    For `$lookup`: a projection within its pipeline is parsed anew for each of its documents, and
    takes a third of its time (measured).
    """
    return {f"{name}.{path}": value for path, value in {"_id": 1, **projection}.items()}


def _outermost(fields: Iterable[str]) -> list[str]:
    """Without what lies inside of another one: MongoDB refuses both (Path collision, 31249)."""
    kept: set[str] = set()
    for path in sorted(fields):
        names = path.split(".")
        if not any(".".join(names[:n]) in kept for n in range(1, len(names))):
            kept.add(path)
    return sorted(kept)
