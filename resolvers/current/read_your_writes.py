"""Writes of this process that may not be archived yet: reads of history wait for them."""

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
    """Resume tokens by collection that later reads reach; a snapshot that does not change."""

    __slots__ = ("_archived", "_position", "_written")

    def __init__(self, written: Mapping[str, str], position: str, archived: Mapping[str, str]):
        self._written = written
        self._position = position
        self._archived = archived

    def __getitem__(self, collection: str) -> str:
        written = self._written.get(collection, "")
        return max(written, self._position, self._archived.get(collection, ""))


class OwnWrites:
    """Resume tokens of the last writes of this process, per document and collection.

    Args:
        numbers: the cache from which the numbers of written documents are evicted.
        most: maximum number of documents per collection; of evicted ones only the newest token
            stays.
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
        """Store the cluster time of an acknowledged write."""
        self.numbers.forget(collection, key, at)
        token = resume_tokens.token_from_time(at)
        latest = max(token, self._latest.get(collection, ""))
        # Replaced, not changed: `ReadPositions` hold the former mapping.
        self._latest = {**self._latest, collection: latest}
        written = self._by_document.setdefault(collection, OrderedDict())
        written[identity(key)] = token
        written.move_to_end(identity(key))
        while len(written) > self._most:
            _, forgotten = written.popitem(last=False)
            self._forgotten[collection] = max(forgotten, self._forgotten.get(collection, ""))

    def read_positions(self) -> ReadPositions:
        """Return resume tokens by collection that all reads begun from now on reach."""
        return ReadPositions(self._latest, *self._progress.known_positions())

    async def archived(self, collection: str) -> str:
        """Return a resume token that the archive has reached.

        If another process records, its checkpoint is read at most once a second.
        """
        now = time.monotonic()
        if now - self._asked_at.get(collection, -_ASK_EVERY_S) < _ASK_EVERY_S:
            return self._progress.known_position(collection)
        self._asked_at[collection] = now
        return await self._progress.position(collection)

    async def recorded(self, collection: str, keys: Iterable[Any] | None = None) -> None:
        """Wait until the archive has this process's writes to some documents, or to any.

        Args:
            keys: the documents; None for all of the collection.

        Raises:
            ArchiveBehind: the archive did not reach them in time.
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
        """Wait until the archive is complete up to a cluster time, baselines included.

        Afterwards, a document without a version did not exist then.

        Raises:
            ArchiveBehind: the archive did not reach the time in time.
        """
        await self._progress.wait_complete(collection, resume_tokens.token_from_time(now))

    async def deletions(self, collection: str, keys: Iterable[Any], now: Timestamp) -> None:
        """Wait until the archive has all deletions of some documents up to a cluster time.

        Raises:
            ArchiveBehind: the archive did not reach them in time.
        """
        await self._progress.wait_deletions(
            collection, resume_tokens.token_from_time(now), list(keys)
        )

    def known_position(self, collection: str) -> str:
        """Return the token up to which the archive is known to be complete, without a read."""
        return self._progress.known_position(collection)

    def has_begun(self, collection: str) -> bool:
        """Return whether the baselines of the collection are known to be archived."""
        return self._progress.has_begun(collection)

    def is_complete(self, collection: str) -> bool:
        """Return whether all baselines are archived and no gap is being closed."""
        return self._progress.is_complete(collection)
