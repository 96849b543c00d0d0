"""Truncation mark: on the oldest remaining version of a document, it counts the deleted versions.

Retention and purges set it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from bson import Timestamp

__all__ = ["PurgeMark", "TruncationMark", "is_born", "mark_after_removal", "mark_with_purge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeMark:
    """Operator, reason and time of a purge."""

    by: str
    why: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationMark:
    """All truncations of a document together.

    Attributes:
        versions: Number of deleted versions.
        number: Lowest number among them.
        since: Cluster time from which that version was current.
        at: Time of the last truncation.
        purge: The last purge, if any; it stays when retention truncates later.
        born: The document did not exist before the first of them; assumed for marks without the
            field.
    """

    versions: int
    number: int
    since: Timestamp
    at: datetime
    purge: PurgeMark | None = None
    born: bool = True

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> TruncationMark | None:
        """Read the `cut` of a version."""
        if record is None:
            return None
        purge = record.get("purge")
        return cls(
            versions=record["versions"],
            number=record["number"],
            since=record["since"],
            at=record["at"],
            purge=None if purge is None else PurgeMark(**purge),
            born=record.get("born", True),
        )


def mark_after_removal(
    removed: Sequence[Mapping[str, Any]], at: datetime, purge: PurgeMark | None
) -> dict[str, Any]:
    """Return the mark for the version after the deleted ones.

    Args:
        removed: Oldest first: `v`, `at`, `op`, `gap`, `born`, and `cut` of an earlier truncation.
    """
    mark = _earlier_mark(removed[0])
    mark |= {"versions": mark["versions"] + len(removed), "at": at}
    return mark if purge is None else mark | {"purge": asdict(purge)}


def mark_with_purge(record: Mapping[str, Any], purge: PurgeMark) -> dict[str, Any]:
    """Return the mark of a purge for the only remaining version, even if no other was deleted."""
    return {"at": purge.at, **_earlier_mark(record), "purge": asdict(purge)}


def _earlier_mark(record: Mapping[str, Any]) -> dict[str, Any]:
    if record.get("cut"):
        return dict(record["cut"])
    mark = {"versions": 0, "number": record["v"], "since": record["at"]}
    return {**mark, "born": is_born(record)}


def is_born(record: Mapping[str, Any]) -> bool:
    """Return whether a document's first version says that it did not exist before."""
    inserted = record["op"] == "INSERT" and not record.get("gap", False)
    return inserted or record.get("born", False)
