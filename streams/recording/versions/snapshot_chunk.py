"""Part of the first reading of a collection: documents in `_id` order, as of one cluster time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import ChangeEvent, identity, is_exact
from revstream.streams.core import resume_tokens
from revstream.streams.layouts.core.stored_version import StoredVersion

__all__ = ["SnapshotChunk"]


@dataclass(frozen=True)
class SnapshotChunk:
    """Documents in `_id` order as they were at cluster time `at`; `end` where no others follow.

    `wall`: the database's clock at that time, since a cluster time knows only seconds.
    `after`: a tuple of the last exact `_id` before them; None where there is none.
    `versions`: of a collection that keeps them itself, all of theirs, instead of the documents.
    `arrival`: the event by which the whole collection came, at which they are recorded.
    """

    at: Timestamp
    wall: datetime
    after: tuple[Any] | None
    documents: Sequence[RawBSONDocument]
    end: bool
    versions: Sequence[StoredVersion] | None = None
    arrival: ChangeEvent | None = None

    @property
    def token(self) -> str:
        """Where its records stand in the stream."""
        return (
            resume_tokens.token_from_time(self.at) if self.arrival is None else self.arrival.token
        )

    @property
    def recorded_at(self) -> Timestamp:
        """When they were, as far as their records say."""
        return self.at if self.arrival is None else self.arrival.at

    @property
    def recorded_wall(self) -> datetime:
        """The same by the clock."""
        return self.wall if self.arrival is None else self.arrival.wall

    @property
    def is_exact(self) -> bool:
        """Whether they are as the arrival brought them."""
        return self.arrival is not None and self.at == self.arrival.at

    @cached_property
    def keys(self) -> list[Any]:
        """Of the documents whose `_id`s are exact, in their order."""
        if self.versions is None:
            return [each["_id"] for each in self.documents if is_exact(each)]
        return list({identity(each.key): each.key for each in self.versions}.values())
