"""Options of a `find`, as one record from the reader of a page down to the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson import Timestamp

__all__ = ["NO_OPTIONS", "FindOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindOptions:
    """Options of a `find`; a layout may translate it to an aggregation.

    Attributes:
        projection: None for whole documents.
        limit: 0 for no limit.
        at: the cluster time to read at, minutes ago at most; None for the present.
        raw: True to return `RawBSONDocument`s.
        hint: the name of the index to use.
        short: True if the result nearly always fits into one batch (`streams.mongo.single_batch`).
        naive: as `short`, and dates may lack their time zone, which is UTC.
    """

    projection: Mapping[str, Any] | None = None
    sort: Sequence[tuple[str, int]] = ()
    limit: int = 0
    at: Timestamp | None = None
    raw: bool = False
    hint: str | None = None
    short: bool = False
    naive: bool = False


NO_OPTIONS = FindOptions()
"""Whole documents, all of them, as they are now."""
