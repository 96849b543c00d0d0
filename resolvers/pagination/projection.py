"""Projections: sets of fields as MongoDB's projections, so that nothing else is read."""

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
"""Stored names, dotted inside embedded documents."""

# Facts that every version has.
_RECORD: Mapping[str, Any] = dict.fromkeys(("doc", "v", "op", "at", "wall"), 1)

EVERY_FACT = frozenset(
    ["prev", "by", "why", "restoredFrom", "draft", "traceparent", "changed", "gap", "cut"]
)
"""Optional facts of version records."""

ENDED = "ended"
"""Fact that no record holds itself: the time at which its version was replaced. See `Page.ends`."""


@lru_cache(maxsize=1000)
def document_projection(fields: Fields | None) -> Mapping[str, Any]:
    """Return the projection of a current document; it always includes `_id`."""
    return {"_id": 1, **dict.fromkeys(_outermost(fields or ()), 1)}


@lru_cache(maxsize=1000)
def record_projection(fields: Fields | None, facts: Fields = EVERY_FACT) -> Mapping[str, Any]:
    """Return the projection of an archive record: facts of the version, and fields of the document.

    If fields are read, the pointers to content that is stored elsewhere are read too.

    Args:
        fields: fields of the document, with its `_id`; None for nothing of the document.
        facts: facts beside the document's id, the number, the operation and the times.
    """
    record = {**_RECORD, **dict.fromkeys(facts - {ENDED}, 1)}
    if "gap" in facts:
        record["spanning"] = 1
    if fields is None:
        return record
    content = {f"full.{name}": 1 for name in _outermost({"_id", *fields})}
    return {**record, **dict.fromkeys(PACKED, 1), **content}


def prefixed_projection(name: str, projection: Mapping[str, Any]) -> dict[str, Any]:
    """Return the projection, with `_id`, of a document inside a field.

    For use after `$lookup`: MongoDB parses a projection in the lookup's own pipeline anew for each
    document, which takes a third of its time (measured).
    """
    return {f"{name}.{path}": value for path, value in {"_id": 1, **projection}.items()}


def _outermost(fields: Iterable[str]) -> list[str]:
    """Return the paths without those inside others: MongoDB refuses both (error 31249)."""
    kept: set[str] = set()
    for path in sorted(fields):
        names = path.split(".")
        if not any(".".join(names[:n]) in kept for n in range(1, len(names))):
            kept.add(path)
    return sorted(kept)
