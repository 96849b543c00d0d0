"""Large pages that come again while nothing in their collection has changed: told once more as they
were.

MongoDB is asked what time it is, which costs it a tenth of what a page of 200 documents does. Where
the stream has passed that time and has told of no change since before the page was read, reading it
again would find the same.

Guarantees: nothing staler than what a read would find that was begun when the page was asked for,
but for what was written then and is not acknowledged yet.
One event loop's property: no locks.

Source: docs/decisions/0037-unchanged-pages.md
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import bson

from streams import tokens
from streams.documents import RAW, Document
from streams.interning import Interning
from streams.tasks import seen
from streams.wire_pool import WirePool

__all__ = ["Pages", "Stream", "Unchanged"]

# What fewer documents cost is next to nothing beside the asking. The last one tells whether more
# follow.
_SMALLEST = 52
# Of all pages of a collection; those that hold fewer than the smallest count as that.
_MOST_DOCUMENTS = 200_000
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
        found: by the command that they were read by.
        documents: of all of them.
    """

    since: float = field(default_factory=time.monotonic)
    found: dict[bytes, list[Document]] = field(default_factory=dict)
    documents: int = 0


class Unchanged:
    """Args:
        wires: that are asked for the time.
        interning: whose documents they are: pages are known for as long as it knows all of them.
        extra: of every command, as its database.

    Attributes:
        told: pages, without being read.
    """

    def __init__(self, wires: WirePool, interning: Interning, extra: Document) -> None:
        self.told = 0
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

    def keep(self, pages: Pages, command: bytes, found: list[Document]) -> None:
        """Args:
        pages: from before it was read.
        """
        if pages.documents > _MOST_DOCUMENTS:
            pages.found.clear()
            pages.documents = 0
        if command not in pages.found:
            pages.documents += max(len(found), _SMALLEST)
        pages.found[command] = found

    async def again(self, collection: str, command: bytes) -> list[Document] | None:
        """What that command would find; None where it has to be sent."""
        pages, stream = self.pages(collection), self._stream
        found = None if pages is None else pages.found.get(command)
        if found is None or stream is None or stream.position < self._behind:
            return None
        if self._time is None:
            self._time = asyncio.create_task(self._ask(), name="time of MongoDB")
            self._time.add_done_callback(seen)
        # Shielded: others wait for it, too.
        now = await asyncio.shield(self._time)
        if now is None:
            return None
        if stream.position < now:
            self._behind = now
            return None
        if self.pages(collection) is not pages:
            return None
        self.told += 1
        return [*found]

    async def _ask(self) -> str | None:
        """Behind all that MongoDB has done by now."""
        # Whoever comes from now on may come after it was asked.
        self._time = None
        connection = await self._wires.reads.checkout()
        reply = None if connection is None else await connection.ask(self._asking_time)
        if reply is None:
            return None
        said = bson.decode(bytes(reply), RAW)
        # One that has stepped down may be behind, and would refuse the read.
        primary = said.get("ok") == 1 and said["isWritablePrimary"]
        return tokens.moment(said["operationTime"]) if primary else None

    def _forget(self, collection: str, change: object = None) -> None:
        # Another one each time: what is being read belongs to the last one.
        self._pages[collection] = Pages()
