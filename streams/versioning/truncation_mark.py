"""The mark on a document's first version that is not the first that it had: what was before it was
dropped, by retention or by a purge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from bson import Timestamp

__all__ = ["PurgeMark", "TruncationMark", "is_born", "mark_after_removal", "mark_with_purge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeMark:
    """Who has removed a document's history for good, why, and when."""

    by: str
    why: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationMark:
    """Of all cuts together: how many `versions` were dropped, the lowest `number` among them and
    the cluster time `since` which it stood; `at`, when the last of them was. `purge`: the last one,
    if there was any; its mark stays when retention cuts on. `born`: the document was not there
    before the first of them; of marks that do not say, it is taken to be so.
    """

    versions: int
    number: int
    since: Timestamp
    at: datetime
    purge: PurgeMark | None = None
    born: bool = True

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> TruncationMark | None:
        """Of a version's `cut`."""
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
    """What the version behind those that are dropped is marked with.

    Args:
        removed: the oldest first: `v`, `at`, `op`, `gap`, `born`, and `cut` where it was cut
            before.
    """
    mark = _earlier_mark(removed[0])
    mark |= {"versions": mark["versions"] + len(removed), "at": at}
    return mark if purge is None else mark | {"purge": asdict(purge)}


def mark_with_purge(record: Mapping[str, Any], purge: PurgeMark) -> dict[str, Any]:
    """The same of the only version that is left, also where no other was dropped."""
    return {"at": purge.at, **_earlier_mark(record), "purge": asdict(purge)}


def _earlier_mark(record: Mapping[str, Any]) -> dict[str, Any]:
    if record.get("cut"):
        return dict(record["cut"])
    mark = {"versions": 0, "number": record["v"], "since": record["at"]}
    return {**mark, "born": is_born(record)}


def is_born(record: Mapping[str, Any]) -> bool:
    """Return whether a document's first version says that it was not there before."""
    inserted = record["op"] == "INSERT" and not record.get("gap", False)
    return inserted or record.get("born", False)
