"""Version numbers of the events that this process has just seen, where they are known before the
recorder has written them down: it tells them as soon as it has drafted the versions.

Guarantees: a number is the one that the recorder gives, or it is not known. What is not known, the
archive says once it has come that far.

One event loop's property: no locks.
Source: docs/decisions/0010-version-of-a-current-document.md
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.coordination.partition import Partition

__all__ = ["NumberedEvent", "PendingVersions"]

# As many as the ring has events, for those who come back.
_EVENTS = 10_000
# A recorder that is further behind than this waits for the archive, as its readers may.
_PATIENCE_S = 0.5


class NumberedEvent(NamedTuple):
    """The number of an event's version, and of the one before it, where there is one; who has made
    it, and why."""

    number: int
    previous: int | None
    by: str | None = None
    why: str | None = None


class PendingVersions:
    """Of one collection that does not keep versions itself."""

    def __init__(self) -> None:
        self._numbered: OrderedDict[str, NumberedEvent] = OrderedDict()
        # Of each partition whose recorder is here: up to where it has drafted.
        self._reached: dict[Partition, str] = {}
        self._moved: asyncio.Future[None] | None = None

    def add(self, partition: Partition, upto: str, numbered: Mapping[str, NumberedEvent]) -> None:
        """A recorder in this process has drafted all that there is up to a token.

        Args:
            numbered: by token, those of the versions it has made of it for which that is all there
                is to tell.
        """
        self._reached[partition] = upto
        self._numbered.update(numbered)
        while len(self._numbered) > _EVENTS:
            self._numbered.popitem(last=False)
        self._wake()

    def remove_partition(self, partition: Partition) -> None:
        """That recorder has stopped, or has missed something: what it drafted and did not write may
        be written otherwise."""
        self._reached.pop(partition, None)
        self._numbered.clear()
        self._wake()

    def clear(self) -> None:
        """Let go of what was drafted: the archive says it."""
        self._numbered.clear()

    async def lookup(self, events: Sequence[ChangeEvent]) -> Mapping[str, NumberedEvent]:
        """The numbers of writes that are known, by token.

        Waits until recorders in this process have drafted them, unless that takes them long, or one
        of the collection's is elsewhere.

        Args:
            events: in the stream's order.
        """
        known = self._numbered
        if any(each.token not in known for each in events):
            await self._wait_for_drafts(events[-1].token)
        return {each.token: known[each.token] for each in events if each.token in known}

    async def _wait_for_drafts(self, upto: str) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                while self._all_here() and min(self._reached.values()) < upto:
                    if self._moved is None:
                        self._moved = asyncio.get_running_loop().create_future()
                    # Shielded: others wait for it, too.
                    await asyncio.shield(self._moved)

    def _all_here(self) -> bool:
        return any(each.count == len(self._reached) for each in self._reached)

    def _wake(self) -> None:
        if self._moved is not None:
            self._moved.set_result(None)
            self._moved = None
