"""What every layout can do, whatever a collection is like inside.

A *document* here is `{_id, <number>, …}` without anything of the layout's own. Each layout's
methods may be used by themselves.
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
from revstream.streams.mongo.transactions import Pipeline, WriteSession
from revstream.streams.versioning.version import LastVersion

__all__ = ["SETTLE_S", "Layout"]

SETTLE_S = 10.0
"""A state between two writes of an update that lasts for so long is a crash's: about a lease."""


class Layout(ABC):
    """Of one collection.

    Attributes:
        keeps: whether the collection keeps versions itself, and the archive only what is said of
            them.
        removes: whether a document that is deleted leaves nothing in the collection that says so.
        beside: other collections that it keeps versions in.
        snapshot: whether the present has to be read as of one moment, or else a document that is
            being written to may be missed.
    """

    keeps: bool = True
    removes: bool = False
    beside: tuple[str, ...] = ()
    snapshot: bool = False

    def __init__(self, mongo: Mongo, collection: str) -> None:
        self.mongo = mongo
        self.collection = collection

    async def prepare(self, *, create: bool = True) -> bool:
        """Create the indexes that it rests on.

        Args:
            create: where there is no collection for them, too.
        Returns: whether they are there.

        Raises:
            Unsuitable: one cannot be made over the data that is there.
        """
        return True

    def index_fields(self, fields: Sequence[str]) -> tuple[list[str], Document] | None:
        """Where fields of current documents lie, and options, for an index over them; None where
        none would be used."""
        return list(fields), {}

    def document_path(self, path: str) -> str:
        """The other way: where in a document that lies which an index is over."""
        return path

    # the present

    @abstractmethod
    async def find(
        self,
        query: Mapping[str, Any],
        *,
        projection: Mapping[str, Any] | None = None,
        sort: Sequence[tuple[str, int]] = (),
        limit: int = 0,
        at: Timestamp | None = None,
        raw: bool = False,
        naive: bool = False,
    ) -> list[Any]:
        """The current documents that match, as `Mongo.find`."""

    @abstractmethod
    async def count(self, query: Mapping[str, Any], *, at: Timestamp | None = None) -> int:
        """How many current documents match."""

    @abstractmethod
    def pages(
        self, query: Mapping[str, Any], *, size: int, at: Timestamp
    ) -> AsyncGenerator[list[Document]]:
        """The current documents that match, in `_id` order, in lists of at most `size`."""

    @abstractmethod
    def lookup_stages(self, field: str) -> tuple[Document, list[Document]]:
        """For a `$lookup` of the current documents whose `field` is the `key` of each document that
        comes to it, or in that list: its arguments, and with which stages its pipeline begins."""

    @abstractmethod
    def scan_current(
        self, *, size: int, at: Timestamp
    ) -> AsyncGenerator[tuple[list[RawBSONDocument], bool]]:
        """The current documents in `_id` order, in lists of about `size`, each with whether no
        others follow: but for the last one none is empty."""

    # the past

    @abstractmethod
    async def versions(
        self, wanted: Sequence[tuple[Any, int]]
    ) -> dict[tuple[Any, int], StoredVersion]:
        """n (`_id`, number) -> the versions by (`identity` of it, number); those that are not there
        are left out."""

    @abstractmethod
    async def history(self, key: Any, *, at: Timestamp | None = None) -> list[StoredVersion]:
        """All versions of a document, the oldest first."""

    # the stream

    @abstractmethod
    async def translate(
        self, events: Sequence[ChangeEvent], *, before: bool = False
    ) -> list[ChangeEvent]:
        """The writes of documents that change events mean, each with the token of its event; an
        event that means none is left out, and one of the whole collection left as it is.

        Args:
            before: what each document was before is wanted, too, as far as it can be had.
        """

    # writing, compared

    @abstractmethod
    async def create(
        self, writing: WriteSession, key: Any, content: Mapping[str, Any]
    ) -> RawBSONDocument | None:
        """Write a document's first version, or the one after its deletion; None where it is there.

        Raises:
            Overtaken: try again.
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
        """Make a document's next version of the current one.

        Args:
            pipeline: makes it, as MongoDB's updates do.
            expected: what must be the current one, exactly.
            demands: queries that it must match.
        Returns: the document after it; None where it is not there, or not as it must be.

        Raises:
            Overtaken: try again.
            NoRoom.
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
        """Delete a document; False where it is not there, or not as it must be.

        Args:
            change: the `_change`, for where there is a place for it.
            expected, demands: as of `alter`.

        Raises:
            Overtaken: try again.
            NoRoom.
        """

    async def count_unfinished(self) -> int:
        """How many documents have what a crash, or an update under way, has left."""
        return 0

    async def recover(self, *, settle_s: float = SETTLE_S) -> int:
        """Mend what crashes between the writes of one update have left.

        Args:
            settle_s: what has not moved for so long is of a crash, and not of an update under way,
                where that makes a difference.
        Returns: how many documents were mended.
        """
        return 0
