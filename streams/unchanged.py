"""Pages that are large or asked for together, and documents that others refer to, that come again
while nothing in their collection has changed: told once more as they were.

For pages MongoDB is asked what time it is, which costs it a tenth of what 200 documents do; for
documents it has just said so, in its answer to whatever refers to them. Where the stream has passed
that time and has told of no change since before they were read, reading them again would find the
same.

Guarantees: nothing staler than what a read would find that was begun when they were asked for, or
what refers to them was, but for what was written then and is not acknowledged yet.
One event loop's property: no locks.

Source: docs/decisions/0037-unchanged-pages.md, 0038-unchanged-references.md
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import bson
from bson import Timestamp

from streams import tokens
from streams.documents import RAW, Document
from streams.interning import Interned, Interning
from streams.tasks import seen
from streams.wire_pool import WirePool

__all__ = ["Pages", "Stream", "Unchanged"]

# What fewer documents cost a page that is asked for alone is next to nothing beside the asking. The
# last one tells whether more follow.
_SMALLEST = 52
# Of all pages of a collection; what else a page takes is as much as so many documents.
_MOST_DOCUMENTS = 200_000
_LEAST_COUNTED = 52
# What a reply of a replica set ends with: "operationTime", a timestamp, and the end.
_TIME = b"\x11operationTime\0"
_TIME_AT, _TIME_END = -len(_TIME) - 9, -9
# What has changed a moment ago will soon change again: asking for the time would be in vain, and
# that costs, too.
_QUIET_S = 0.1


class Stream(Protocol):
    """As `streams.hub.Hub`: what it tells, it tells before it moves behind it."""

    position: str

    def accompany(
        self, collection: str, take: Callable[[Any], None], interrupted: Callable[[], None]
    ) -> None: ...


@dataclass(slots=True)
class Pages:
    """Of one collection, between two changes of it.

    Attributes:
        since: when the first of the two was told, on `time.monotonic`.
        found: by what is asked of them.
        documents: of all of them.
        by_name: documents by the names of their `_id`s, and None of those that are not there, by
            what was read of them.
    """

    since: float = field(default_factory=time.monotonic)
    found: dict[Hashable, list[Document]] = field(default_factory=dict)
    documents: int = 0
    by_name: dict[Hashable, dict[Hashable, Document | None]] = field(default_factory=dict)


class Unchanged:
    """Args:
        wires: that are asked for the time.
        interning: whose documents they are: pages are known for as long as it knows all of them.
        extra: of every command, as its database.

    Attributes:
        told: pages, and told_by_name: documents, without being read.
    """

    def __init__(self, wires: WirePool, interning: Interning, extra: Document) -> None:
        self.told = self.told_by_name = 0
        self._wires = wires
        self._interning = interning
        # Others than the usual reads wait for more than the time says.
        self._usual = "readConcern" not in extra
        self._asking_time = bson.encode({"hello": 1, **extra})
        self._stream: Stream | None = None
        self._pages: dict[str, Pages] = {}
        # Connections lost, of which one may have been to a primary whose last writes are undone;
        # and documents that have left.
        self._then = 0, 0
        # The stream has not come so far yet.
        self._behind = ""
        self._time: asyncio.Task[str | None] | None = None
        # Of the last read that was begun of all that are answered: when, and the time that MongoDB
        # said behind it, as it was sent and as a place in the stream.
        self._heard_of = 0.0
        self._heard = b""
        self._heard_place: str | None = None

    def follow(self, stream: Stream, collections: Sequence[str]) -> None:
        """From now on the pages of these collections are known, by what a stream tells."""
        if not self._usual:
            return
        self._stream = stream
        for name in collections:
            self._pages[name] = Pages()
            forget = partial(self._forget, name)
            stream.accompany(name, forget, forget)

    def worth(self, command: Document) -> bool:
        """Whether a `find` may be one of them."""
        return command.get("limit", 0) >= _SMALLEST and command["find"] in self._pages

    def pages(self, collection: str) -> Pages | None:
        """Where what is read from now on is kept, until something changes; None where that is
        likely to be soon."""
        then = self._wires.lost, self._interning.left
        if then != self._then:
            self._then = then
            self._pages = {name: Pages() for name in self._pages}
        pages = self._pages.get(collection)
        quiet = pages is not None and time.monotonic() - pages.since > _QUIET_S
        return pages if quiet else None

    def keep(self, pages: Pages, name: Hashable, found: list[Document]) -> None:
        """Args:
        pages: from before it was read.
        name: equal where the same is asked for.
        found: as `Interning` has them, or nothing is kept.
        """
        if any(each.__class__ is not Interned for each in found):
            return
        self._make_room(pages)
        if name not in pages.found:
            pages.documents += max(len(found), _LEAST_COUNTED)
        pages.found[name] = found

    def heard(self, begun: float, reply: memoryview | bytes) -> None:
        """A read was answered by the primary.

        Args:
            begun: when it was sent, at the latest, on `time.monotonic`.
        """
        if begun > self._heard_of and reply[_TIME_AT:_TIME_END] == _TIME:
            self._heard_of = begun
            self._heard = bytes(reply[_TIME_END:-1])
            self._heard_place = None

    def by_name(
        self, collection: str, kind: Hashable, names: Sequence[Hashable], begun: float
    ) -> list[Document | None] | None:
        """What a read of these documents would find; None where it has to be made.

        Args:
            kind: equal where the same is read of them.
            begun: when, at the latest, what they are asked for by was asked for, on
                `time.monotonic`.
        """
        if self._heard_of < begun or self._stream is None:
            return None
        pages = self.pages(collection)
        kept = None if pages is None else pages.by_name.get(kind)
        if kept is None:
            return None
        if self._heard_place is None:
            low, high = self._heard[:4], self._heard[4:]
            at = Timestamp(int.from_bytes(high, "little"), int.from_bytes(low, "little"))
            self._heard_place = tokens.moment(at)
        if self._stream.position < self._heard_place:
            return None
        try:
            found = [kept[name] for name in names]
        except KeyError:
            return None
        self.told_by_name += len(found)
        return found

    def keep_by_name(
        self,
        pages: Pages,
        kind: Hashable,
        names: Sequence[Hashable],
        found: Mapping[Hashable, Document],
    ) -> None:
        """Args:
        pages: from before they were read.
        found: those of them that are there; it is as `Interning` has them, or nothing is kept.
        """
        if any(each.__class__ is not Interned for each in found.values()):
            return
        self._make_room(pages)
        kept = pages.by_name.setdefault(kind, {})
        before = len(kept)
        kept.update((name, found.get(name)) for name in names)
        pages.documents += len(kept) - before

    async def again(
        self, collection: str, names: Sequence[Hashable]
    ) -> list[list[Document] | None]:
        """What reads of these pages would find; None of each that has to be read."""
        pages = self.pages(collection)
        found = [None] * len(names) if pages is None else list(map(pages.found.get, names))
        known = len(found) - found.count(None)
        if pages is None or not known or not await self._current(collection, pages):
            return [None] * len(names)
        self.told += known
        return [None if each is None else [*each] for each in found]

    async def again_by_name(
        self, collection: str, kind: Hashable, names: Sequence[Hashable]
    ) -> list[Document | None] | None:
        """As `by_name`, of documents that are asked for by nothing but their names."""
        pages = self.pages(collection)
        kept = None if pages is None else pages.by_name.get(kind)
        if pages is None or kept is None:
            return None
        try:
            found = [kept[name] for name in names]
        except KeyError:
            return None
        if not await self._current(collection, pages):
            return None
        self.told_by_name += len(found)
        return found

    async def _current(self, collection: str, pages: Pages) -> bool:
        """Whether nothing has changed by now; MongoDB is asked for the time."""
        stream = self._stream
        if stream is None or stream.position < self._behind:
            return False
        if self._time is None:
            self._time = asyncio.create_task(self._ask(), name="time of MongoDB")
            self._time.add_done_callback(seen)
        # Shielded: others wait for it, too.
        now = await asyncio.shield(self._time)
        if now is None:
            return False
        if stream.position < now:
            self._behind = now
            return False
        return self.pages(collection) is pages

    async def _ask(self) -> str | None:
        """Behind all that MongoDB has done by now."""
        # Whoever comes from now on may come after it was asked.
        self._time = None
        connection = await self._wires.reads.checkout()
        begun = time.monotonic()
        reply = None if connection is None else await connection.ask(self._asking_time)
        if reply is None:
            return None
        said = bson.decode(bytes(reply), RAW)
        # One that has stepped down may be behind, and would refuse the read.
        primary = said.get("ok") == 1 and said["isWritablePrimary"]
        if not primary:
            return None
        self.heard(begun, reply)
        return tokens.moment(said["operationTime"])

    def _make_room(self, pages: Pages) -> None:
        if pages.documents > _MOST_DOCUMENTS:
            pages.found.clear()
            pages.by_name.clear()
            pages.documents = 0

    def _forget(self, collection: str, change: object = None) -> None:
        # Another one each time: what is being read belongs to the last one.
        self._pages[collection] = Pages()
