"""The mark on a document's first version that is not the first that it had: what was before it was
dropped, by retention or by a purge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from bson import Timestamp

__all__ = ["Cut", "Purge", "after", "sealed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Purge:
    """Who has removed a document's history for good, why, and when."""

    by: str
    why: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Of all cuts together: how many `versions` were dropped, the lowest `number` among them and
    the cluster time `since` which it stood; `at`, when the last of them was. `purge`: the last one,
    if there was any; its mark stays when retention cuts on.
    """

    versions: int
    number: int
    since: Timestamp
    at: datetime
    purge: Purge | None = None

    @classmethod
    def from_record(cls, record: Mapping[str, Any] | None) -> Cut | None:
        """Of a version's `cut`."""
        if record is None:
            return None
        purge = record.get("purge")
        return cls(
            versions=record["versions"],
            number=record["number"],
            since=record["since"],
            at=record["at"],
            purge=None if purge is None else Purge(**purge),
        )


def after(
    removed: Sequence[Mapping[str, Any]], at: datetime, purge: Purge | None
) -> dict[str, Any]:
    """What the version behind those that are dropped is marked with.

    Args:
        removed: the oldest first: `v`, `at`, and `cut` where it was cut before.
    """
    mark = _earlier(removed[0])
    mark |= {"versions": mark["versions"] + len(removed), "at": at}
    return mark if purge is None else mark | {"purge": asdict(purge)}


def sealed(record: Mapping[str, Any], purge: Purge) -> dict[str, Any]:
    """The same of the only version that is left, also where no other was dropped."""
    return {"at": purge.at, **_earlier(record), "purge": asdict(purge)}


def _earlier(record: Mapping[str, Any]) -> dict[str, Any]:
    return dict(record.get("cut") or {"versions": 0, "number": record["v"], "since": record["at"]})
