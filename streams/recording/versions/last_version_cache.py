"""The last versions of the documents written lately, bounded by bytes, so that a burst costs no
read per event."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from bson.raw_bson import RawBSONDocument

from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.mongo.driver.codecs import RAW
from revstream.streams.versioning.version import LastVersion

__all__ = ["LastVersionCache"]


class LastVersionCache:
    """A least-recently-used cache over an archive. A document that has no version is known to have
    none.

    What was put and is still on its way into the archive must stay: `load` makes room only where
    `crowded` says so beforehand.
    """

    def __init__(self, archive: Archive, *, capacity_bytes: int) -> None:
        self._archive = archive
        self._capacity_bytes = capacity_bytes
        self._size_bytes = 0
        self._entries: OrderedDict[Any, LastVersion | None] = OrderedDict()

    @property
    def crowded(self) -> bool:
        """Whether the next `load` lets something go, which is then read from the archive again."""
        return self._size_bytes > self._capacity_bytes

    async def load(self, keys: Iterable[Any]) -> None:
        """Make sure that `get` knows these, in one read for all that are missing; what does not fit
        leaves first."""
        self._shrink()
        missing = {name: key for key in keys if (name := identity(key)) not in self._entries}
        if not missing:
            return
        found = await self._archive.last_versions(missing.values())
        for name in missing:
            self._set(name, _detached(found.get(name)))

    def get(self, key: Any) -> LastVersion | None:
        """Of a key that was loaded or put since the last `load`."""
        name = identity(key)
        self._entries.move_to_end(name)
        return self._entries[name]

    def put(self, key: Any, last: LastVersion) -> None:
        """One that was just made: see `LastVersion`."""
        self._set(identity(key), last)

    def clear(self) -> None:
        self._entries.clear()
        self._size_bytes = 0

    def _set(self, name: Any, last: LastVersion | None) -> None:
        earlier = self._entries.get(name)
        self._size_bytes += _size(last) - (_size(earlier) if name in self._entries else 0)
        self._entries[name] = last
        self._entries.move_to_end(name)

    def _shrink(self) -> None:
        # Only between batches: what a batch has loaded must stay until it is recorded.
        if not self.crowded:
            return
        # A quarter at once: each time, the archive must first have caught up.
        while self._size_bytes > self._capacity_bytes * 3 // 4 and self._entries:
            self._size_bytes -= _size(self._entries.popitem(last=False)[1])


def _detached(last: LastVersion | None) -> LastVersion | None:
    """With bytes of its own, and nothing else.

    PyMongo cuts documents of 4 KB and more out of a reply as views (4.18, `RawBSONDocument.raw`),
    each of which would keep the whole reply, 16 MB at most, in memory. And a raw document that was
    looked into keeps what it has decoded, five times its bytes where they are 300: decoding it
    again takes 8 µs.
    """
    if last is None or last.full is None:
        return last
    return replace(last, full=RawBSONDocument(bytes(last.full.raw), RAW))


def _size(last: LastVersion | None) -> int:
    return 300 if last is None else last.size_bytes
