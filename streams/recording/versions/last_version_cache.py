"""Cache of last versions, bounded by bytes, so that a burst costs no read per event."""

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
    """Least-recently-used cache over an archive; it also knows documents without a version.

    Pending versions must stay until they are archived: `load` evicts only if `crowded` is true
    before.
    """

    def __init__(self, archive: Archive, *, capacity_bytes: int) -> None:
        self._archive = archive
        self._capacity_bytes = capacity_bytes
        self._size_bytes = 0
        self._entries: OrderedDict[Any, LastVersion | None] = OrderedDict()

    @property
    def crowded(self) -> bool:
        """True if the next `load` evicts entries, which are then read from the archive again."""
        return self._size_bytes > self._capacity_bytes

    async def load(self, keys: Iterable[Any]) -> None:
        """Load the missing keys with one read; evict first if the cache is full."""
        self._shrink()
        missing = {name: key for key in keys if (name := identity(key)) not in self._entries}
        if not missing:
            return
        found = await self._archive.last_versions(missing.values())
        for name in missing:
            self._set(name, _detached(found.get(name)))

    def get(self, key: Any) -> LastVersion | None:
        """Return the last version of a key that was loaded or put since the last `load`."""
        name = identity(key)
        self._entries.move_to_end(name)
        return self._entries[name]

    def put(self, key: Any, last: LastVersion) -> None:
        """Store a version that was just built: see `LastVersion`."""
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
        # Only between batches: entries of a batch must stay until it is recorded.
        if not self.crowded:
            return
        # A quarter at once: each time, the pipeline must be drained before.
        while self._size_bytes > self._capacity_bytes * 3 // 4 and self._entries:
            self._size_bytes -= _size(self._entries.popitem(last=False)[1])


def _detached(last: LastVersion | None) -> LastVersion | None:
    """Copy the content into bytes of its own.

    PyMongo returns documents of 4 KB and more as views of the reply (4.18, `RawBSONDocument.raw`),
    and each view keeps the whole reply, up to 16 MB, in memory. A raw document also caches its
    decoded fields, five times its bytes for 300 bytes: decoding it again takes 8 µs.
    """
    if last is None or last.full is None:
        return last
    return replace(last, full=RawBSONDocument(bytes(last.full.raw), RAW))


def _size(last: LastVersion | None) -> int:
    return 300 if last is None else last.size_bytes
