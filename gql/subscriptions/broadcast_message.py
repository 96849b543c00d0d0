"""The response to one event, and where it is written to: what is the same for many is made once.

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

# Of what one is told at once.
_PORTION_BYTES = 32 * 1024


class BroadcastTarget(Protocol):
    """Where one subscription is written to.

    Attributes:
        token: behind what it was told last.
        own: what is written to it alone; empty, or each time the same.
    """

    token: str
    writer: Writer

    @property
    def own(self) -> bytes: ...

    @property
    def kind(self) -> Hashable:
        """Equal where what is around its own is."""
        ...

    def around(self, payload: bytes, shown: str) -> tuple[bytes, bytes]:
        """What comes before and behind its own, to be told a response."""
        ...


CURRENT_TARGET: ContextVar[BroadcastTarget | None] = ContextVar("seat", default=None)
"""Of the operation of this task; None where its transport has none."""


class BroadcastMessage:
    """The response to one event.

    Attributes:
        shown: the token as the API shows it.
        counts: it is of a change, and no checkpoint.
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
        """About what it takes in memory, framed for streams as well."""
        return 2 * len(self.payload) + 500

    def around(self, seat: BroadcastTarget) -> tuple[bytes, bytes]:
        """Before and behind its own; the first of a kind makes it for all of them."""
        found = self._around.get(seat.kind)
        if found is None:
            found = self._around[seat.kind] = seat.around(self.payload, self.shown)
        return found


def broadcast(
    events: Sequence[BroadcastMessage], seats: Sequence[BroadcastTarget]
) -> tuple[int, list[BroadcastTarget]]:
    """Events, as one write to each and without waiting: how often one was told, and who does not
    take them.

    Of thousands: what is done for one seat more than has to be is felt, a call as well.
    """
    first, last, many = events[0].token, events[-1].token, len(events)
    count, refusing = 0, []
    kind: Hashable = None
    around: Sequence[bytes] = ()
    for seat in seats:
        if seat.token >= first:
            # Who stands behind some of them already is not told those.
            told, taken = send_events([e for e in events if e.token > seat.token], seat)
            count += told
            if not taken:
                refusing.append(seat)
            continue
        if seat.kind is not kind:
            kind = seat.kind
            around = _around(events, seat)
        if not seat.writer.write(seat.own.join(around)):
            refusing.append(seat)
            continue
        seat.token = last
        count += many
    return count, refusing


def _around(events: Sequence[BroadcastMessage], seat: BroadcastTarget) -> list[bytes]:
    """Before, between and behind its own: once for each event."""
    parts = [b""]
    for event in events:
        before, behind = event.around(seat)
        parts[-1] += before
        parts.append(behind)
    return parts


def send_events(events: Sequence[BroadcastMessage], seat: BroadcastTarget) -> tuple[int, bool]:
    """To one seat, without waiting: how many changes it was told, and whether it has taken all of
    them."""
    count = 0
    for portion in chunk_events(events):
        if not seat.writer.write(seat.own.join(_around(portion, seat))):
            return count, False
        seat.token = max(seat.token, portion[-1].token)
        count += sum(each.counts for each in portion)
    return count, True


def chunk_events(events: Sequence[BroadcastMessage]) -> Iterator[Sequence[BroadcastMessage]]:
    """As much as is written at once; none is empty."""
    first = size = 0
    for number, each in enumerate(events):
        if size > _PORTION_BYTES:
            yield events[first:number]
            first, size = number, 0
        size += each.size_bytes
    if first < len(events):
        yield events[first:]
