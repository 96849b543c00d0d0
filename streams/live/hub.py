"""Hub: passes the events of one change stream on to the subscribers of this process.

Guarantees: `publish` never waits, and its cost depends on the receivers of the event: a subscriber
of one document, or of documents with certain values, is found by hash. A subscriber whose backlog
is full is ended with SLOW_CONSUMER and removed; it resumes after its last token and loses nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from revstream.streams.changefeed.event import ChangeEvent, EventBatch
from revstream.streams.changefeed.ring_buffer import Ring
from revstream.streams.changefeed.routing import EVERYTHING, Interest, Routing
from revstream.streams.changefeed.source import Source
from revstream.streams.core.errors import (
    GatewayError,
    SlowConsumer,
    TimeLimit,
    Unavailable,
    reason_from_error,
)
from revstream.streams.core.log_throttle import LogThrottle
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.layouts.core.translation import translate_events

__all__ = ["EVENTS_PER_READ", "Hub", "HubOptions", "Subscriber", "publish_source"]

log = logging.getLogger(__name__)

# Maximum number of events per read: a subscriber keeps what it builds from them for as long as its
# client does not read.
EVENTS_PER_READ = 200
# Seconds until events that could not be read are read again.
_RETRY_S = 0.25
# Deletions kept per collection, about 300 bytes each.
_DELETIONS = 10_000


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion in the stream.

    Attributes:
        key_hash: Hash of the document's `_id`, which may be of any length.
        all: The event concerns the whole collection.
    """

    token: str
    key_hash: int
    all: bool
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """Options of the hub.

    Attributes:
        ring_events, ring_bytes: Size of a collection's ring buffer, for clients that reconnect.
        backlog_events, backlog_bytes: Size of a subscriber's backlog; several batches, since a
            burst
            sends a batch at once. Not more than the ring buffer, which shares the events' memory.
    """

    ring_events: int = 10_000
    ring_bytes: int = 64 * 1024 * 1024
    backlog_events: int = 5000
    backlog_bytes: int = 64 * 1024 * 1024


class Subscriber:
    """Bounded backlog of one receiver. Created by `Hub.attach`, ended by `close`."""

    def __init__(
        self,
        collection: str,
        interest: Interest,
        options: HubOptions,
        close: Callable[[], None],
    ) -> None:
        self.collection = collection
        self.interest = interest
        self.close = close
        self._options = options
        self._backlog: deque[ChangeEvent] = deque()
        self._backlog_bytes = 0
        self._wake: asyncio.Future[None] | None = None
        self._end: GatewayError | None = None

    def __len__(self) -> int:
        return len(self._backlog)

    async def next(self, timeout_s: float | None = None) -> Sequence[ChangeEvent]:
        """Wait for events and return at most `EVENTS_PER_READ`; none after `timeout_s`.

        Raises:
            SlowConsumer: The backlog was full; raised after its events were returned.
            Unavailable: The stream of the hub was interrupted; resume.

        Cancellation: safe; events stay in the backlog until they are returned.
        """
        if not self._backlog and self._end is None:
            await self._wait_for_event(timeout_s)
        if self._backlog:
            size = min(len(self._backlog), EVENTS_PER_READ)
            taken = [self._backlog.popleft() for _ in range(size)]
            self._backlog_bytes -= sum(each.size_bytes for each in taken)
            return taken
        if self._end is None:
            return ()
        raise self._end

    async def _wait_for_event(self, timeout_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._wake = loop.create_future()
        # Once per event: `asyncio.timeout` takes four times as long.
        timer = None if timeout_s is None else loop.call_later(timeout_s, self._notify)
        try:
            await self._wake
        finally:
            self._wake = None
            if timer is not None:
                timer.cancel()

    def offer(self, event: ChangeEvent) -> bool:
        """Add an event; False where the backlog is full, which ends this subscriber."""
        count, options = len(self._backlog), self._options
        total = self._backlog_bytes + event.size_bytes
        if count >= options.backlog_events:
            problem = f"backlog: {count:,} events, maximum is {options.backlog_events:,}"
        elif count and total > options.backlog_bytes:
            problem = f"backlog: {total:,} bytes, maximum is {options.backlog_bytes:,}"
        else:
            self._backlog.append(event)
            self._backlog_bytes = total
            self._notify()
            return True
        self.end(SlowConsumer(f"{problem}; subscribe again after the last token received"))
        return False

    def end(self, error: GatewayError) -> None:
        """Raise the error once the pending events were returned."""
        self._end = error
        self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Hub:
    """Ring buffers and subscribers by collection. Used by one event loop only: no locks.

    Args:
        topics: Collections whose events share a ring buffer, with the name of that buffer.

    Attributes:
        moved_at: Time of the stream's last report, on `time.monotonic`.
    """

    def __init__(
        self,
        collections: Sequence[str],
        *,
        position: str,
        options: HubOptions | None = None,
        topics: Mapping[str, str] | None = None,
    ) -> None:
        self._options = options or HubOptions()
        self._topics = topics or {}
        self._collections = tuple(dict.fromkeys([*collections, *self._topics.values()]))
        self._routing = {name: Routing[Subscriber]() for name in self._collections}
        self._observers: dict[str, list[tuple[Callable[[ChangeEvent], None], Callable[[], None]]]]
        self._observers = {name: [] for name in self._collections}
        self._slow_consumers: Counter[str] = Counter()
        self._published: Counter[str] = Counter()
        self._moved: asyncio.Event = asyncio.Event()
        self._followed = False
        self.restart(position)

    def restart(self, position: str) -> None:
        """Continue at a position that does not follow the last one; all subscribers must resume."""
        self._rings = {name: self._new_ring(position) for name in self._collections}
        self._deletions = {
            name: Ring[Deletion](position, capacity_events=_DELETIONS, capacity_bytes=1)
            for name in self._collections
        }
        self._move(position)
        self._interrupt()
        for each in self._subscribers(self._collections):
            # One error per subscriber: facts about that subscriber are added to it.
            each.end(
                Unavailable("change stream: interrupted; subscribe again after the last token")
            )
            self._detach(each)

    @property
    def topics(self) -> Sequence[str]:
        """Names of the shared ring buffers."""
        return tuple(dict.fromkeys(self._topics.values()))

    def drop_events(self, collection: str) -> None:
        """Drop a collection's events, so that the archive serves new subscribers; current ones
        continue.
        """
        self._rings[collection] = self._new_ring(self.position)

    def _new_ring(self, position: str) -> Ring[ChangeEvent]:
        return Ring[ChangeEvent](
            position,
            capacity_events=self._options.ring_events,
            capacity_bytes=self._options.ring_bytes,
        )

    def ring(self, collection: str) -> Ring[ChangeEvent]:
        return self._rings[collection]

    def deletions(self, collection: str) -> Ring[Deletion]:
        """Return the last deletions; they may reach further back than the ring buffer."""
        return self._deletions[collection]

    def attach(self, collection: str, interest: Interest = EVERYTHING) -> Subscriber:
        """Subscribe to every event of a collection, from now on, that matches an interest."""
        subscriber = Subscriber(
            collection, interest, self._options, lambda: self._detach(subscriber)
        )
        self._routing[collection].add(subscriber)
        return subscriber

    def add_observer(
        self, collection: str, take: Callable[[ChangeEvent], None], interrupted: Callable[[], None]
    ) -> None:
        """Call `take` for each event before its receivers, and `interrupted` where events are
        missing.

        The observer stays for the life of the hub. `interrupted` is also called for an event of the
        whole database.
        """
        self._observers[collection].append((take, interrupted))

    def publish(self, batch: EventBatch) -> None:
        """Send a batch to all matching subscribers. Not a coroutine: no receiver can slow it."""
        for event in batch.events:
            # A rename concerns two collections.
            for named in {event.collection, event.renamed_to}:
                name = self._topics.get(named or "", named)
                if name in self._rings:
                    self._distribute(name, event)
            if not event.collection:
                self._interrupt()
        self._move(batch.position)

    def _distribute(self, collection: str, event: ChangeEvent) -> None:
        self._rings[collection].append(event)
        if event.operation == "delete" or not event.is_write:
            deletion = Deletion(event.token, event.key_hash, not event.is_write)
            self._deletions[collection].append(deletion)
        for take, _ in self._observers[collection]:
            take(event)
        self._published[collection] += 1
        for each in self._routing[collection].route(event):
            if not each.offer(event):
                self._slow_consumers[collection] += 1
                self._detach(each)

    def _interrupt(self) -> None:
        for companions in self._observers.values():
            for _, interrupted in companions:
                interrupted()

    def _move(self, position: str) -> None:
        self.position = position
        self.moved_at = time.monotonic()
        self._moved.set()
        self._moved = asyncio.Event()

    @property
    def silent_s(self) -> float:
        """Seconds since the stream's last report; 0 where no stream is published."""
        return time.monotonic() - self.moved_at if self._followed else 0.0

    def start_following(self) -> None:
        """Note that a stream is published from now on: silence means trouble."""
        self._followed, self.moved_at = True, time.monotonic()

    async def wait_until(self, token: str) -> None:
        """Return once everything up to a token has been published. Cancellation: safe."""
        while self.position < token:
            await self._moved.wait()

    def statistics(self, collection: str | None = None) -> dict[str, int]:
        """Return counts of one collection, or of all.

        Walks the subscribers for the deepest backlog: 2 ms per scrape for 10,000; to maintain it
        would cost time with each event and subscriber.
        """
        names = self._collections if collection is None else (collection,)
        subscribers = self._subscribers(names)
        rings = [self._rings[name] for name in names]
        return {
            "subscribers": len(subscribers),
            "deepest_backlog": max(map(len, subscribers), default=0),
            "slow_consumers": sum(self._slow_consumers[name] for name in names),
            "published": sum(self._published[name] for name in names),
            "ring_events": sum(map(len, rings)),
            "ring_bytes": sum(ring.size_bytes for ring in rings),
        }

    def _subscribers(self, collections: Iterable[str]) -> list[Subscriber]:
        return [each for name in collections for each in self._routing[name]]

    def _detach(self, subscriber: Subscriber) -> None:
        self._routing[subscriber.collection].discard(subscriber)


async def publish_source(
    source: Source, hub: Hub, layouts: Mapping[str, Layout] | None = None
) -> None:
    """Publish a source's events from the hub's position on. Never ends.

    Args:
        layouts: Layouts of the collections that keep versions themselves, by name; they translate
            events into writes of documents.
    """
    layouts = layouts or {}
    left_out = LogThrottle(
        log, "event not sent to subscribers: it cannot be translated", level=logging.ERROR
    )
    hub.start_following()
    async for batch in source.batches(hub.position):
        if batch.passed_over or any(
            each.bare and each.collection in layouts for each in batch.events
        ):
            # The archive reads the current documents again; subscribers resume from there.
            hub.restart(batch.position)
        else:
            hub.publish(await _translate_batch(batch, layouts, left_out) if layouts else batch)


async def _translate_batch(
    batch: EventBatch, layouts: Mapping[str, Layout], left_out: LogThrottle
) -> EventBatch:
    """Translate the events of a batch into writes of documents."""
    events: list[ChangeEvent] = []
    for name, group in itertools.groupby(batch.events, key=lambda each: each.collection):
        layout = layouts.get(name)
        if layout is None:
            events += group
        else:
            events += await _translate_events(layout, list(group), left_out)
    return EventBatch(tuple(events), batch.position)


async def _translate_events(
    layout: Layout, events: Sequence[ChangeEvent], left_out: LogThrottle
) -> Sequence[ChangeEvent]:
    warned = False
    while True:
        try:
            found, untranslated = await translate_events(layout, events, before=True)
        except (Unavailable, TimeLimit) as exc:
            # Repeated while MongoDB is unavailable; the stream itself waits as well.
            if not warned:
                facts = {"collection": layout.collection, "reason": exc.message}
                log.warning("events not sent yet: MongoDB is unavailable", extra=facts)
            warned = True
            await asyncio.sleep(_RETRY_S)
            continue
        for event, fault in untranslated:
            # The recorder sets the event aside.
            facts = {"collection": layout.collection, "key": str(event.key)}
            left_out.note(**facts, reason=reason_from_error(fault))
        return found
