"""Chunk of an initial snapshot: documents in `_id` order, as of one cluster time."""

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
    """Documents in `_id` order at cluster time `at`.

    Attributes:
        wall: The database's clock at that time, since a cluster time has only seconds.
        after: A tuple of the last exact `_id` before the chunk; None for the first chunk.
        end: No documents follow.
        versions: For a collection that keeps versions itself, all versions, instead of the
            documents.
        arrival: Event by which the whole collection arrived, at which the chunk is recorded.
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
        """Position of the chunk's records in the stream."""
        return (
            resume_tokens.token_from_time(self.at) if self.arrival is None else self.arrival.token
        )

    @property
    def recorded_at(self) -> Timestamp:
        """Cluster time in the chunk's records."""
        return self.at if self.arrival is None else self.arrival.at

    @property
    def recorded_wall(self) -> datetime:
        """Time of the clock in the chunk's records."""
        return self.wall if self.arrival is None else self.arrival.wall

    @property
    def is_exact(self) -> bool:
        """True if the documents are as they arrived."""
        return self.arrival is not None and self.at == self.arrival.at

    @cached_property
    def keys(self) -> list[Any]:
        """The exact `_id`s, in order."""
        if self.versions is None:
            return [each["_id"] for each in self.documents if is_exact(each)]
        return list({identity(each.key): each.key for each in self.versions}.values())
