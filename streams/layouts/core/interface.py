"""Abstract storage layout: the operations that every layout offers.

A *document* here is `{_id, <number>, …}` without the layout's own fields. Each method may be used
by
itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.layouts.core.stored_version import StoredVersion
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import NO_OPTIONS, FindOptions
from revstream.streams.mongo.transactions import Pipeline, WriteSession
from revstream.streams.versioning.version import LastVersion

__all__ = ["SETTLE_S", "Layout"]

SETTLE_S = 10.0
"""Minimum age of an unfinished update that counts as a crash: about a lease."""


class Layout(ABC):
    """Layout of one collection.

    Attributes:
        keeps: Whether the collection stores versions itself, and the archive only their metadata.
        removes: Whether a deletion leaves no trace in the collection.
        beside: Other collections that hold its versions.
        snapshot: Whether current documents have to be read at one cluster time, since a document
            that
            is being written may be missed otherwise.
    """

    keeps: bool = True
    removes: bool = False
    beside: tuple[str, ...] = ()
    snapshot: bool = False

    def __init__(self, mongo: Mongo, collection: str) -> None:
        self.mongo = mongo
        self.collection = collection

    async def prepare(self, *, create: bool = True) -> bool:
        """Create the indexes that the layout requires. Returns whether they exist.

        Args:
            create: Also create a missing collection.

        Raises:
            Unsuitable: An index cannot be created on the existing data.
        """
        return True

    def index_fields(self, fields: Sequence[str]) -> tuple[list[str], Document] | None:
        """Return the stored paths of fields, and options, for an index on current documents.

        None where no query would use the index.
        """
        return list(fields), {}

    def document_path(self, path: str) -> str:
        """Return the path in current documents of a stored path."""
        return path

    # the present

    @abstractmethod
    async def find(
        self,
        query: Mapping[str, Any],
        options: FindOptions = NO_OPTIONS,
    ) -> list[Any]:
        """Return the matching current documents; `hint` and `short` may have no effect."""

    @abstractmethod
    async def count(self, query: Mapping[str, Any], *, at: Timestamp | None = None) -> int:
        """Return the number of matching current documents."""

    @abstractmethod
    async def aggregate(
        self,
        query: Mapping[str, Any],
        stages: Sequence[Mapping[str, Any]],
        *,
        at: Timestamp | None = None,
    ) -> list[Document]:
        """Return what stages make of the matching current documents, without the use of disks."""

    @abstractmethod
    def pages(
        self, query: Mapping[str, Any], *, size: int, at: Timestamp
    ) -> AsyncGenerator[list[Document]]:
        """Yield the matching current documents in `_id` order, in lists of at most `size`."""

    @abstractmethod
    def lookup_stages(self, field: str) -> tuple[Document, list[Document]]:
        """Return `$lookup` arguments, and the first stages of its pipeline, that join current
        documents.

        A document joins if its `field` is the `key` of the incoming document, or is in that list.
        """

    @abstractmethod
    def scan_current(
        self, *, size: int, at: Timestamp
    ) -> AsyncGenerator[tuple[list[RawBSONDocument], bool]]:
        """Yield (documents, is_last) over all current documents in `_id` order, about `size` each.

        Only the last list may be empty.
        """

    # the past

    @abstractmethod
    async def versions(
        self, wanted: Sequence[tuple[Any, int]]
    ) -> dict[tuple[Any, int], StoredVersion]:
        """Return versions by (`identity` of the `_id`, number); missing ones are left out.

        Args:
            wanted: (`_id`, number) of each.
        """

    @abstractmethod
    async def history(self, key: Any, *, at: Timestamp | None = None) -> list[StoredVersion]:
        """Return all versions of a document, the oldest first."""

    # the stream

    @abstractmethod
    async def translate(
        self, events: Sequence[ChangeEvent], *, before: bool = False
    ) -> list[ChangeEvent]:
        """Return the document writes that change events mean, each with the token of its event.

        An event without meaning is left out; an event of the whole collection stays as it is.

        Args:
            before: Also look up the previous state of each document, where possible.
        """

    # writing, compared

    @abstractmethod
    async def create(
        self, writing: WriteSession, key: Any, content: Mapping[str, Any]
    ) -> RawBSONDocument | None:
        """Write a document's first version, or the next after its deletion; None if it exists.

        Raises:
            ConcurrentWrite: Try again.
        """

    @abstractmethod
    async def alter(
        self,
        writing: WriteSession,
        key: Any,
        pipeline: Pipeline,
        *,
        expected: LastVersion | None = None,
        demands: Sequence[Mapping[str, Any]] = (),
    ) -> RawBSONDocument | None:
        """Write a document's next version; None if it does not exist or does not match.

        Args:
            pipeline: Creates it from the current one, as in MongoDB's updates.
            expected: The current version must have exactly this content.
            demands: Queries that it must match.

        Returns:
            The document after the write.

        Raises:
            ConcurrentWrite: Try again.
            VersionTooLarge: The version does not fit.
        """

    @abstractmethod
    async def remove(
        self,
        writing: WriteSession,
        key: Any,
        change: Document,
        *,
        expected: LastVersion | None = None,
        demands: Sequence[Mapping[str, Any]] = (),
    ) -> bool:
        """Delete a document; return False if it does not exist or does not match.

        Args:
            change: The `_change`, where the layout can store it.
            expected, demands: As in `alter`.

        Raises:
            ConcurrentWrite: Try again.
            VersionTooLarge: The version does not fit.
        """

    async def count_unfinished(self) -> int:
        """Return the number of documents with an unfinished update, running or crashed."""
        return 0

    async def recover(self, *, settle_s: float = SETTLE_S) -> int:
        """Repair updates that a crash has left unfinished. Returns the number of repaired
        documents.

        Args:
            settle_s: Where it matters, an update without progress for so long counts as crashed.
        """
        return 0
