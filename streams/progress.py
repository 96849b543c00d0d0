"""How far each archive has come, and waiting for it: what makes a read of history complete.

Where the recorder runs in this process it says so itself; where it runs elsewhere, its checkpoint
does, together with this process's own stream: if that has passed the moment and its last event is
archived, then so is everything up to the moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

from streams import tokens
from streams.checkpoints import Checkpoint, Checkpoints
from streams.errors import ArchiveBehind
from streams.hub import Hub

__all__ = ["Progress"]


class Progress:
    """Positions of the recorders of all collections, as this process knows them."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        hub: Hub,
        *,
        listener: Callable[[str], str],
        limit_s: float = 5.0,
        poll_s: float = 0.02,
    ) -> None:
        self._checkpoints = checkpoints
        self._hub = hub
        self._listener = listener
        self._limit_s = limit_s
        self._poll_s = poll_s
        self._known: dict[str, str] = {}
        self._local: set[str] = set()
        self._moved: dict[str, asyncio.Event] = {}
        self._asking: dict[str, asyncio.Future[Checkpoint | None]] = {}

    def advance(self, collection: str, token: str) -> None:
        """The recorder in this process has archived everything up to a token."""
        self._local.add(collection)
        self._known[collection] = max(token, self._known.get(collection, ""))
        moved = self._moved.pop(collection, None)
        if moved is not None:
            moved.set()

    def leave(self, collection: str) -> None:
        """The recorder in this process has stopped: from now on another one's checkpoint tells."""
        self._local.discard(collection)
        moved = self._moved.pop(collection, None)
        if moved is not None:
            moved.set()

    async def position(self, collection: str) -> str:
        """Everything of this collection at or before this token is archived; "" where nothing was.

        Those who ask while the answer is on its way share it.
        """
        if collection not in self._local:
            asking = self._asking.get(collection)
            if asking is None:
                asking = asyncio.ensure_future(self.checkpoint(collection))
                asking.add_done_callback(lambda _: self._asking.pop(collection, None))
                self._asking[collection] = asking
            # Shielded, since it is not only ours to cancel.
            checkpoint = await asyncio.shield(asking)
            if checkpoint is not None:
                self._known[collection] = max(checkpoint.token, self._known.get(collection, ""))
        return self._known.get(collection, "")

    async def checkpoint(self, collection: str) -> Checkpoint | None:
        return await self._checkpoints.load(self._listener(collection))

    async def wait(self, collection: str, token: str, *, limit_s: float | None = None) -> None:
        """Return once everything up to a token is archived.

        Raises:
            ArchiveBehind: not within the bound; carries the lag in seconds.
        """
        limit_s = self._limit_s if limit_s is None else limit_s
        deadline = time.monotonic() + limit_s
        while self._known.get(collection, "") < token:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise await self._behind(collection, token, limit_s)
            if collection in self._local:
                moved = self._moved.setdefault(collection, asyncio.Event())
                try:
                    async with asyncio.timeout(remaining):
                        await moved.wait()
                except TimeoutError:
                    continue
                continue
            known = await self.position(collection)
            if known >= token or self._joined(collection, known, token):
                self._known[collection] = max(token, known)
                return
            await asyncio.sleep(min(self._poll_s, remaining))

    def seen(self, collection: str) -> str:
        """A place that the collection is known to have come to, without asking; never behind what
        is known to be archived."""
        return max(self._hub.position, self._known.get(collection, ""))

    def lag_s(self, collection: str) -> float:
        """The age of the oldest change, seen by this process, that is not known to be archived; 0
        where there is none."""
        waiting = self._hub.ring(collection).after(self._known.get(collection, ""))
        if waiting is None:
            # More are waiting than the ring holds: its oldest is younger than the oldest of them.
            waiting = self._hub.ring(collection).after(self._hub.ring(collection).floor) or []
        if not waiting:
            return 0.0
        return max(0.0, (datetime.now(UTC) - waiting[0].wall).total_seconds())

    def _joined(self, collection: str, known: str, token: str) -> bool:
        """Whether this process's stream shows that nothing lies between what is archived and the
        token."""
        if self._hub.position < token:
            return False
        later = self._hub.ring(collection).after(known)
        return later is not None and not any(event.token <= token for event in later)

    async def _behind(self, collection: str, token: str, limit_s: float) -> ArchiveBehind:
        known = await self.position(collection)
        wanted_at = tokens.cluster_time(token).as_datetime()
        if not known:
            return ArchiveBehind(
                f"no recorder has ever run for {collection}; "
                "start `revstream serve` or `revstream record`",
                collection=collection,
            )
        reached_at = tokens.cluster_time(known).as_datetime()
        lag_s = max(0.0, (wanted_at - reached_at).total_seconds())
        return ArchiveBehind(
            f"the archive of {collection} has reached {reached_at:%F %T}Z, "
            f"and {wanted_at:%F %T}Z was asked for; "
            f"waited {limit_s:g} s; try again, or look at Query.streams",
            collection=collection,
            lagSeconds=lag_s,
        )
