"""Serialized subscription events, and the targets that they are written to.

Bytes that are the same for many subscriptions are built once.

Source: docs/decisions/0028-shared-subscriptions.md
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextvars import ContextVar
from typing import Protocol

from revstream.gql.server.writer import Writer

__all__ = [
    "CURRENT_TARGET",
    "BroadcastMessage",
    "BroadcastTarget",
    "broadcast",
    "chunk_events",
    "send_events",
]

# Size of one write to one target.
_CHUNK_BYTES = 32 * 1024


class BroadcastTarget(Protocol):
    """Write target of one subscription.

    Attributes:
        token: the token of the last event that was written.
        own: bytes that are specific to this subscription; empty, or the same in each message.
    """

    token: str
    writer: Writer

    @property
    def own(self) -> bytes: ...

    @property
    def kind(self) -> Hashable:
        """A key that is equal for targets with the same bytes around their own."""
        ...

    def around(self, payload: bytes, shown: str) -> tuple[bytes, bytes]:
        """Return the bytes of a message before and after the target's own."""
        ...


CURRENT_TARGET: ContextVar[BroadcastTarget | None] = ContextVar("target", default=None)
"""The target of the operation of this task; None if its transport has none."""


class BroadcastMessage:
    """The serialized response to one event.

    Attributes:
        shown: the resume token as the API shows it.
        counts: false for a checkpoint.
    """

    __slots__ = ("__weakref__", "_around", "counts", "payload", "shown", "token")

    def __init__(self, token: str, payload: bytes, *, shown: str, counts: bool) -> None:
        self.token = token
        self.shown = shown
        self.payload = payload
        self.counts = counts
        self._around: dict[Hashable, tuple[bytes, bytes]] = {}

    @property
    def size_bytes(self) -> int:
        """About its size in memory, with the frame of an HTTP stream."""
        return 2 * len(self.payload) + 500

    def around(self, target: BroadcastTarget) -> tuple[bytes, bytes]:
        """Return the bytes before and after the target's own, built once per kind of target."""
        found = self._around.get(target.kind)
        if found is None:
            found = self._around[target.kind] = target.around(self.payload, self.shown)
        return found


def broadcast(
    events: Sequence[BroadcastMessage], targets: Sequence[BroadcastTarget]
) -> tuple[int, list[BroadcastTarget]]:
    """Write events to all targets, with one call per target and without awaiting.

    The loop runs for thousands of targets: one call more in it is measurable.

    Returns:
        The number of deliveries, and the targets whose buffers are full.
    """
    first, last, many = events[0].token, events[-1].token, len(events)
    count, refusing = 0, []
    kind: Hashable = None
    around: Sequence[bytes] = ()
    for target in targets:
        if target.token >= first:
            # Skip the events that the target has received already.
            delivered, taken = send_events([e for e in events if e.token > target.token], target)
            count += delivered
            if not taken:
                refusing.append(target)
            continue
        if target.kind is not kind:
            kind = target.kind
            around = _around(events, target)
        if not target.writer.write(target.own.join(around)):
            refusing.append(target)
            continue
        target.token = last
        count += many
    return count, refusing


def _around(events: Sequence[BroadcastMessage], target: BroadcastTarget) -> list[bytes]:
    """Return the bytes before, between and after the target's own, which comes once per event."""
    parts = [b""]
    for event in events:
        before, behind = event.around(target)
        parts[-1] += before
        parts.append(behind)
    return parts


def send_events(events: Sequence[BroadcastMessage], target: BroadcastTarget) -> tuple[int, bool]:
    """Write events to one target, without awaiting.

    Returns:
        The number of changes written, and whether the target has accepted all events.
    """
    count = 0
    for portion in chunk_events(events):
        if not target.writer.write(target.own.join(_around(portion, target))):
            return count, False
        target.token = max(target.token, portion[-1].token)
        count += sum(each.counts for each in portion)
    return count, True


def chunk_events(events: Sequence[BroadcastMessage]) -> Iterator[Sequence[BroadcastMessage]]:
    """Split events into parts of at most `_CHUNK_BYTES`, or of one event; none is empty."""
    first = size = 0
    for number, each in enumerate(events):
        if size > _CHUNK_BYTES:
            yield events[first:number]
            first, size = number, 0
        size += each.size_bytes
    if first < len(events):
        yield events[first:]
