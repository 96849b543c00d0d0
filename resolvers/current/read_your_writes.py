"""What this process has written and the recorder may not have come to yet: reads of history that
could miss it wait, within a bound."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from bson import Timestamp

from revstream.resolvers.current.version_number_cache import VersionNumberCache
from revstream.streams.changefeed.event import identity
from revstream.streams.core import resume_tokens
from revstream.streams.live.archive_progress import ArchiveProgress

__all__ = ["OwnWrites", "ReadPositions"]

_ASK_EVERY_S = 1.0


class ReadPositions:
    """Places in the stream, as they were: one for each collection that is asked about."""

    __slots__ = ("_archived", "_position", "_written")

    def __init__(self, written: Mapping[str, str], position: str, archived: Mapping[str, str]):
        self._written = written
        self._position = position
        self._archived = archived

    def __getitem__(self, collection: str) -> str:
        written = self._written.get(collection, "")
        return max(written, self._position, self._archived.get(collection, ""))


class OwnWrites:
    """Of all collections, the last write to each document.

    Args:
        numbers: of which those of documents that are written to are forgotten.
        most: documents remembered per collection; of those forgotten only the latest write is.
    """

    def __init__(
        self, progress: ArchiveProgress, numbers: VersionNumberCache, *, most: int = 10_000
    ) -> None:
        self.numbers = numbers
        self._progress = progress
        self._most = most
        self._latest: Mapping[str, str] = {}
        self._by_document: dict[str, OrderedDict[Any, str]] = {}
        self._forgotten: dict[str, str] = {}
        self._asked_at: dict[str, float] = {}

    def note(self, collection: str, key: Any, at: Timestamp) -> None:
        """A write was acknowledged."""
        self.numbers.forget(collection, key, at)
        token = resume_tokens.token_from_time(at)
        latest = max(token, self._latest.get(collection, ""))
        # Whoever has `seen` it keeps it as it was.
        self._latest = {**self._latest, collection: latest}
        written = self._by_document.setdefault(collection, OrderedDict())
        written[identity(key)] = token
        written.move_to_end(identity(key))
        while len(written) > self._most:
            _, forgotten = written.popitem(last=False)
            self._forgotten[collection] = max(forgotten, self._forgotten.get(collection, ""))

    def seen(self) -> ReadPositions:
        """By collection, a place in the stream that no read of it, begun from now on, is behind."""
        return ReadPositions(self._latest, *self._progress.known_positions())

    async def archived(self, collection: str) -> str:
        """So far the archive has come, at least. Where another process records, that is asked now
        and then only."""
        now = time.monotonic()
        if now - self._asked_at.get(collection, -_ASK_EVERY_S) < _ASK_EVERY_S:
            return self._progress.known_position(collection)
        self._asked_at[collection] = now
        return await self._progress.position(collection)

    async def recorded(self, collection: str, keys: Iterable[Any] | None = None) -> None:
        """Return once the archive has all of them: to these documents, or to any.

        Raises:
            ArchiveBehind: not within the bound.
        """
        if keys is None:
            token = self._latest.get(collection, "")
        else:
            written: Mapping[Any, str] = self._by_document.get(collection, {})
            of_these = (written.get(identity(each), "") for each in keys)
            token = max(of_these, default="")
            token = max(token, self._forgotten.get(collection, ""))
        if token:
            await self._progress.wait(collection, token)

    async def settled(self, collection: str, now: Timestamp) -> None:
        """Return once the archive has all that anybody has written by a moment, and all that was
        there before it began: what it lacks then was not.

        Raises:
            ArchiveBehind: not within the bound.
        """
        await self._progress.wait_complete(collection, resume_tokens.token_from_time(now))

    async def deletions(self, collection: str, keys: Iterable[Any], now: Timestamp) -> None:
        """Return once the archive has all deletions of these documents by a moment.

        Raises:
            ArchiveBehind: not within the bound.
        """
        await self._progress.wait_deletions(
            collection, resume_tokens.token_from_time(now), list(keys)
        )

    def known(self, collection: str) -> str:
        """Return the place up to which the archive is known to have all; asks nobody."""
        return self._progress.known_position(collection)

    def begun(self, collection: str) -> bool:
        """Return whether what was there before the archive began is known to have been read."""
        return self._progress.has_begun(collection)

    def whole(self, collection: str) -> bool:
        """Return whether that is read, and not being read again after a loss of history."""
        return self._progress.is_complete(collection)
