"""The fan-out point: what one change stream brings goes to every subscriber of this process.

Guarantees: `publish` never waits, and costs what its receivers cost: a subscriber of one document,
or of those with certain values, is found by hash. A subscriber whose backlog is full is ended with
SLOW_CONSUMER and forgotten; it resumes from its last token and lost nothing.
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

# Events that a subscriber takes at once: what is made of them is its own, and stays with it for as
# long as its client does not read.
EVENTS_PER_READ = 200
# How soon what could not be read is read again.
_RETRY_S = 0.25
# Deletions that are remembered per collection, some 300 bytes each.
_DELETIONS = 10_000


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion that the stream brought. `key_hash`: of the document's `_id`, which may be of any
    length; `all`: it befell the whole collection."""

    token: str
    key_hash: int
    all: bool
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """Args:
    ring_events, ring_bytes: what is kept in memory per collection for those who reconnect.
    backlog_events, backlog_bytes: what one subscriber may have waiting before it is ended; several
        batches of the stream, since a burst hands out one of them at once. Not more than the ring
        has: the events are the same ones, and take memory once.
    """

    ring_events: int = 10_000
    ring_bytes: int = 64 * 1024 * 1024
    backlog_events: int = 5000
    backlog_bytes: int = 64 * 1024 * 1024


class Subscriber:
    """One receiver's bounded backlog. Made by `Hub.attach`, ended by `close`."""

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
            SlowConsumer: the backlog was full; raised once what lies in it has been taken.
            Unavailable: the stream behind the hub was broken; resume.

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
        # Waited for anew behind each event: `asyncio.timeout` takes four times as long.
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
            problem = f"{count} events are waiting and {options.backlog_events} are allowed"
        elif count and total > options.backlog_bytes:
            problem = f"{total} bytes are waiting and {options.backlog_bytes} are allowed"
        else:
            self._backlog.append(event)
            self._backlog_bytes = total
            self._notify()
            return True
        self.end(SlowConsumer(f"{problem}; subscribe again after the last token received"))
        return False

    def end(self, error: GatewayError) -> None:
        """Let the receiver take what is waiting, then raise."""
        self._end = error
        self._notify()

    def _notify(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)


class Hub:
    """Rings and subscribers by collection. One event loop's property: no locks.

    Args:
        topics: collections whose events have one ring together, each with the name of that ring.
    Attributes:
        moved_at: when the stream was last heard of, on `time.monotonic`.
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
        """Begin anew at a position that does not join the last one: whoever is attached must
        resume."""
        self._rings = {name: self._new_ring(position) for name in self._collections}
        self._deletions = {
            name: Ring[Deletion](position, capacity_events=_DELETIONS, capacity_bytes=1)
            for name in self._collections
        }
        self._move(position)
        self._interrupt()
        for each in self._subscribers(self._collections):
            # One for each: who raises it adds what only concerns that subscriber.
            each.end(
                Unavailable("the stream was interrupted; subscribe again after the last token")
            )
            self._detach(each)

    @property
    def topics(self) -> Sequence[str]:
        """Names of rings of several collections."""
        return tuple(dict.fromkeys(self._topics.values()))

    def drop_events(self, collection: str) -> None:
        """Let go of a collection's events: whoever resumes is served from the archive. Those who
        are attached go on."""
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
        """Return the last deletions; they reach further back than the ring where others came
        between them."""
        return self._deletions[collection]

    def attach(self, collection: str, interest: Interest = EVERYTHING) -> Subscriber:
        """From now on, every event of a collection that concerns an interest."""
        subscriber = Subscriber(
            collection, interest, self._options, lambda: self._detach(subscriber)
        )
        self._routing[collection].add(subscriber)
        return subscriber

    def add_observer(
        self, collection: str, take: Callable[[ChangeEvent], None], interrupted: Callable[[], None]
    ) -> None:
        """For as long as this hub lives: be given each event before its receivers are, and told
        where events are missing in between, or befall the whole database."""
        self._observers[collection].append((take, interrupted))

    def publish(self, batch: EventBatch) -> None:
        """Hand a batch to all it concerns. An ordinary function: it cannot be slowed by a
        receiver."""
        for event in batch.events:
            # A rename befalls two collections.
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
        """Seconds since the stream was last heard of; 0 where nothing publishes it."""
        return time.monotonic() - self.moved_at if self._followed else 0.0

    def start_following(self) -> None:
        """From now on a stream is published: silence means trouble."""
        self._followed, self.moved_at = True, time.monotonic()

    async def wait_until(self, token: str) -> None:
        """Return once everything up to a token has been published. Cancellation: safe."""
        while self.position < token:
            await self._moved.wait()

    def statistics(self, collection: str | None = None) -> dict[str, int]:
        """Of one collection, or of all. Walks the subscribers for the deepest backlog: 10,000 take
        2 ms per scrape; to keep it would cost something with each event and subscriber."""
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
        layouts: of the collections that keep versions themselves, by name: of their events, the
            writes of documents that they mean.
    """
    layouts = layouts or {}
    left_out = LogThrottle(log, "event cannot be told to subscribers", level=logging.ERROR)
    hub.start_following()
    async for batch in source.batches(hub.position):
        if batch.passed_over or any(
            each.bare and each.collection in layouts for each in batch.events
        ):
            # The archive reads the present again; subscribers resume from there.
            hub.restart(batch.position)
        else:
            hub.publish(await _translate_batch(batch, layouts, left_out) if layouts else batch)


async def _translate_batch(
    batch: EventBatch, layouts: Mapping[str, Layout], left_out: LogThrottle
) -> EventBatch:
    """The writes of documents that a batch means."""
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
    told = False
    while True:
        try:
            found, untranslated = await translate_events(layout, events, before=True)
        except (Unavailable, TimeLimit) as exc:
            # As long as an outage lasts; the stream itself waits as well.
            if not told:
                facts = {"collection": layout.collection, "reason": exc.message}
                log.warning("events cannot be told yet", extra=facts)
            told = True
            await asyncio.sleep(_RETRY_S)
            continue
        for event, fault in untranslated:
            # Its recorder sets it aside.
            facts = {"collection": layout.collection, "key": str(event.key)}
            left_out.note(**facts, reason=reason_from_error(fault))
        return found
