"""Pending versions: numbers of recent events before the recorder has stored them.

The recorder reports them as soon as it has built the versions.

Guarantees: a number is the one that the recorder assigns, or it is not known. For unknown numbers,
read the archive once it has come that far.

Used by one event loop only: no locks. Source: docs/decisions/0010-version-of-a-current-document.md
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

# As many as the ring buffer has events, for clients that reconnect.
_EVENTS = 10_000
# Maximum wait for the recorder; beyond it, readers wait for the archive.
_PATIENCE_S = 0.5


class NumberedEvent(NamedTuple):
    """Number and attribution of an event's version, and the number before, if any."""

    number: int
    previous: int | None
    by: str | None = None
    why: str | None = None
    traceparent: str | None = None


class PendingVersions:
    """Pending versions of one collection that does not keep versions itself."""

    def __init__(self) -> None:
        self._numbered: OrderedDict[str, NumberedEvent] = OrderedDict()
        # Token up to which each recorder in this process has built versions.
        self._reached: dict[Partition, str] = {}
        self._moved: asyncio.Future[None] | None = None

    def add(self, partition: Partition, upto: str, numbered: Mapping[str, NumberedEvent]) -> None:
        """Note that a recorder in this process has built all versions up to a token.

        Args:
            numbered: By token, the versions whose number is all that their events lack.
        """
        self._reached[partition] = upto
        self._numbered.update(numbered)
        while len(self._numbered) > _EVENTS:
            self._numbered.popitem(last=False)
        self._wake()

    def remove_partition(self, partition: Partition) -> None:
        """Drop the entries after a recorder stopped or missed events: others may write other
        versions.
        """
        self._reached.pop(partition, None)
        self._numbered.clear()
        self._wake()

    def clear(self) -> None:
        """Drop all entries: the archive has them."""
        self._numbered.clear()

    async def lookup(self, events: Sequence[ChangeEvent]) -> Mapping[str, NumberedEvent]:
        """Return the known numbers of writes, by token.

        Waits until recorders in this process have built the versions, unless that takes long, or
        another process records a part of the collection.

        Args:
            events: In stream order.
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
                    # Shielded: other callers wait for it too.
                    await asyncio.shield(self._moved)

    def _all_here(self) -> bool:
        return any(each.count == len(self._reached) for each in self._reached)

    def _wake(self) -> None:
        if self._moved is not None:
            self._moved.set_result(None)
            self._moved = None
