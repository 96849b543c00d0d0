"""Independent implementation of the model's `keep`: the versions of a history that must stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bson import Timestamp

from revstream.model.definition import Keep
from tests.support.streams import by_document

__all__ = ["kept_numbers"]

Record = Mapping[str, Any]


def kept_numbers(records: Sequence[Record], keep: Keep, now: Timestamp) -> dict[Any, list[int]]:
    """Return for each document the numbers of the versions that stay, the oldest first."""
    kept = {}
    for versions in by_document(records):
        stay = list(versions)
        while len(stay) > 1 and _goes(stay, keep, now):
            stay.pop(0)
        kept[stay[0]["doc"]] = [each["v"] for each in stay]
    return kept


def _goes(versions: Sequence[Record], keep: Keep, now: Timestamp) -> bool:
    if keep.versions is not None:
        return len(versions) > keep.versions
    assert keep.seconds is not None
    replaced: Timestamp = versions[1]["at"]
    return replaced <= Timestamp(max(0, now.time - keep.seconds), 0)
