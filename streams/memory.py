"""The last versions of the documents written lately, bounded by bytes, so that a burst costs no
read per event."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from streams.archive import Archive
from streams.events import identity
from streams.versions import Last

__all__ = ["LastVersions"]


class LastVersions:
    """A least-recently-used cache over an archive. A document that has no version is known to have
    none."""

    def __init__(self, archive: Archive, *, capacity_bytes: int) -> None:
        self._archive = archive
        self._capacity_bytes = capacity_bytes
        self._size_bytes = 0
        self._known: OrderedDict[Any, Last | None] = OrderedDict()

    def lacks(self, keys: Iterable[Any]) -> bool:
        """Whether `load` would have to read, or to make room."""
        return self._size_bytes > self._capacity_bytes or any(
            identity(key) not in self._known for key in keys
        )

    async def load(self, keys: Iterable[Any]) -> None:
        """Make sure that `get` knows these, in one read for all that are missing; what does not fit
        leaves first."""
        self._shrink()
        missing = {name: key for key in keys if (name := identity(key)) not in self._known}
        if not missing:
            return
        found = await self._archive.last(missing.values())
        for name in missing:
            self._set(name, found.get(name))

    def get(self, key: Any) -> Last | None:
        """Of a key that was loaded or put since the last `load`."""
        name = identity(key)
        self._known.move_to_end(name)
        return self._known[name]

    def put(self, key: Any, last: Last) -> None:
        self._set(identity(key), last)

    def clear(self) -> None:
        self._known.clear()
        self._size_bytes = 0

    def _set(self, name: Any, last: Last | None) -> None:
        earlier = self._known.get(name)
        self._size_bytes += _size(last) - (_size(earlier) if name in self._known else 0)
        self._known[name] = last
        self._known.move_to_end(name)

    def _shrink(self) -> None:
        # Only between batches: what a batch has loaded must stay until it is recorded.
        while self._size_bytes > self._capacity_bytes and self._known:
            self._size_bytes -= _size(self._known.popitem(last=False)[1])


def _size(last: Last | None) -> int:
    return 300 if last is None else last.size_bytes
