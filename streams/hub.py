"""The fan-out point: what one change stream brings goes to every subscriber of this process.

Guarantees: `publish` never waits, and costs what its receivers cost: a subscriber of one document
is found by hash. A subscriber whose backlog is full is ended with SLOW_CONSUMER and forgotten; it
resumes from its last token and lost nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from streams.errors import GatewayError, SlowConsumer, Unavailable
from streams.events import Batch, ChangeEvent, identity
from streams.ring import Ring
from streams.source import Source

__all__ = ["Hub", "HubOptions", "Subscriber", "follow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """Args:
    ring_events, ring_bytes: what is kept in memory per collection for those who reconnect.
    backlog_events: what one subscriber may have waiting before it is ended; several batches of the
        stream, since a burst hands out one of them at once.
    """

    ring_events: int = 10_000
    ring_bytes: int = 64 * 1024 * 1024
    backlog_events: int = 5000


class Subscriber:
    """One receiver's bounded backlog. Made by `Hub.attach`, ended by `close`."""

    def __init__(
        self, collection: str, key: Any, backlog_events: int, close: Callable[[], None]
    ) -> None:
        self.collection = collection
        self.key = key
        self.close = close
        self._limit = backlog_events
        self._backlog: deque[ChangeEvent] = deque()
        self._wake: asyncio.Future[None] | None = None
        self._end: GatewayError | None = None

    def __len__(self) -> int:
        return len(self._backlog)

    async def next(self, timeout_s: float | None = None) -> Sequence[ChangeEvent]:
        """Wait for events; an empty list after `timeout_s` without any.

        Raises:
            SlowConsumer: the backlog was full; raised once what lies in it has been taken.
            Unavailable: the stream behind the hub was broken; resume.

        Cancellation: safe; events stay in the backlog until they are returned.
        """
        if not self._backlog and self._end is None:
            self._wake = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wake
            except TimeoutError:
                return ()
            finally:
                self._wake = None
        if self._backlog:
            taken = list(self._backlog)
            self._backlog.clear()
            return taken
        assert self._end is not None
        raise self._end

    def offer(self, event: ChangeEvent) -> bool:
        """Add an event; False where the backlog is full, which ends this subscriber."""
        if len(self._backlog) >= self._limit:
            self.end(
                SlowConsumer(
                    f"{len(self._backlog)} events are waiting and {self._limit} are allowed; "
                    "subscribe again after the last token received"
                )
            )
            return False
        self._backlog.append(event)
        self._notify()
        return True

    def end(self, error: GatewayError) -> None:
        """Let the receiver take what is waiting, then raise."""
        self._end = error
        self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Hub:
    """Rings and subscribers by collection. One event loop's property: no locks.

    Attributes:
        moved_at: when the stream was last heard of, on `time.monotonic`.
    """

    def __init__(
        self,
        collections: Sequence[str],
        *,
        position: str,
        options: HubOptions | None = None,
    ) -> None:
        self._options = options or HubOptions()
        self._collections = tuple(collections)
        self._whole: dict[str, set[Subscriber]] = {name: set() for name in collections}
        self._by_key: dict[str, dict[Any, set[Subscriber]]] = {name: {} for name in collections}
        self._slow_consumers = 0
        self._published = 0
        self._moved: asyncio.Event = asyncio.Event()
        self.restart(position)

    def restart(self, position: str) -> None:
        """Begin anew at a position that does not join the last one: whoever is attached must
        resume."""
        self._rings = {
            name: Ring(
                position,
                capacity_events=self._options.ring_events,
                capacity_bytes=self._options.ring_bytes,
            )
            for name in self._collections
        }
        self._move(position)
        self.end_all(
            Unavailable("the stream was interrupted; subscribe again after the last token")
        )

    def ring(self, collection: str) -> Ring:
        return self._rings[collection]

    def attach(self, collection: str, key: Any = None) -> Subscriber:
        """From now on, every event of a collection, or of one document where `key` is given."""
        if key is None:
            group = self._whole[collection]
        else:
            group = self._by_key[collection].setdefault(identity(key), set())
        subscriber = Subscriber(
            collection,
            key,
            self._options.backlog_events,
            lambda: self._detach(subscriber),
        )
        group.add(subscriber)
        return subscriber

    def publish(self, batch: Batch) -> None:
        """Hand a batch to all it concerns. An ordinary function: it cannot be slowed by a
        receiver."""
        for event in batch.events:
            # A rename befalls two collections.
            for name in {event.collection, event.renamed_to}:
                if name in self._rings:
                    self._hand_out(name, event)
        self._move(batch.position)

    def _hand_out(self, collection: str, event: ChangeEvent) -> None:
        self._rings[collection].append(event)
        self._published += 1
        receivers = list(self._whole[collection])
        if event.is_write:
            receivers += self._by_key[collection].get(identity(event.key), ())
        else:
            for group in self._by_key[collection].values():
                receivers += group
        for each in receivers:
            if not each.offer(event):
                self._slow_consumers += 1
                self._detach(each)

    def _move(self, position: str) -> None:
        self.position = position
        self.moved_at = time.monotonic()
        self._moved.set()
        self._moved = asyncio.Event()

    async def reached(self, token: str) -> None:
        """Return once everything up to a token has been published. Cancellation: safe."""
        while self.position < token:
            await self._moved.wait()

    def end_all(self, error: GatewayError) -> None:
        for each in self._subscribers():
            each.end(error)
            self._detach(each)

    def statistics(self) -> dict[str, int]:
        subscribers = self._subscribers()
        return {
            "subscribers": len(subscribers),
            "deepest_backlog": max(map(len, subscribers), default=0),
            "slow_consumers": self._slow_consumers,
            "published": self._published,
            "ring_events": sum(map(len, self._rings.values())),
            "ring_bytes": sum(ring.size_bytes for ring in self._rings.values()),
        }

    def _subscribers(self) -> list[Subscriber]:
        found = [each for group in self._whole.values() for each in group]
        for groups in self._by_key.values():
            found += [each for group in groups.values() for each in group]
        return found

    def _detach(self, subscriber: Subscriber) -> None:
        self._whole[subscriber.collection].discard(subscriber)
        if subscriber.key is not None:
            groups = self._by_key[subscriber.collection]
            group = groups.get(identity(subscriber.key))
            if group is not None:
                group.discard(subscriber)
                if not group:
                    del groups[identity(subscriber.key)]


async def follow(source: Source, hub: Hub) -> None:
    """Publish a source's events from the hub's position on. Never ends."""
    async for batch in source.batches(hub.position):
        hub.publish(batch)
