"""Keep one listener's work running in exactly one process: acquire the lease, work, renew, give
way, take over.

Guarantees: work runs only while the lease holds; it is cancelled before the lease can run out, and
the lease is given back on the way out. Work that MongoDB's absence ended is begun again at a later
turn; any other failure of the work is not retried: it ends `run`, and with it the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Literal

from streams.errors import GatewayError, LeaseLost, Unavailable
from streams.lease import Lease, Leases

__all__ = ["Listener", "ListenerState"]

log = logging.getLogger(__name__)

ListenerState = Literal["waiting", "following", "recording"]
Work = Callable[[int], Awaitable[None]]


class Listener:
    """`work(fencing_token)` runs until it is cancelled or raises."""

    def __init__(
        self, name: str, leases: Leases, work: Work, *, release_limit_s: float = 2.0
    ) -> None:
        self.name = name
        self.state: ListenerState = "waiting"
        self.lease: Lease | None = None
        self.changes = 0
        self._leases = leases
        self._work = work
        self._release_limit_s = release_limit_s

    async def run(self) -> None:
        """Never ends by itself; raises what the work raises, but `LeaseLost` and `Unavailable`."""
        options = self._leases.options
        while True:
            try:
                self.lease = await self._leases.acquire(self.name)
            except Unavailable as exc:
                log.warning(
                    "lease cannot be asked for",
                    extra={"listener": self.name, "reason": exc.message},
                )
                self.lease = None
            if self.lease is None:
                self.state = "following"
                await asyncio.sleep(options.renew_every_s)
                continue
            self.changes += 1
            log.info(
                "lease acquired",
                extra={
                    "listener": self.name,
                    "fencing_token": self.lease.fencing_token,
                },
            )
            self.state = "recording"
            try:
                await self._hold(self.lease)
            finally:
                self.state = "waiting"
                await self._give_back()
            # Who has taken over is not raced for it, and an outage is not met with a busy loop.
            await asyncio.sleep(options.renew_every_s)

    async def _hold(self, lease: Lease) -> None:
        """Work until the lease is lost or the work fails."""
        work = asyncio.ensure_future(self._work(lease.fencing_token))
        try:
            while not work.done():
                await asyncio.wait([work], timeout=self._next_turn_s())
                if not work.done() and not await self._renew():
                    log.warning("lease lost", extra={"listener": self.name})
                    return
            await work
        except LeaseLost as exc:
            log.warning("lease lost", extra={"listener": self.name, "reason": exc.message})
        except Unavailable as exc:
            log.warning("work interrupted", extra={"listener": self.name, "reason": exc.message})
        finally:
            work.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await work

    def _next_turn_s(self) -> float:
        """Until the next renewal, or until the lease runs out where the last one has failed."""
        assert self.lease is not None
        remaining_s = self.lease.expires_at - time.monotonic()
        return max(0.0, min(self._leases.options.renew_every_s, remaining_s))

    async def _renew(self) -> bool:
        """False once the lease is another's, or has run out while MongoDB could not be reached."""
        assert self.lease is not None
        try:
            # Lease times are on time.monotonic, which is also the event loops' clock.
            async with asyncio.timeout_at(self.lease.expires_at):
                renewed = await self._leases.acquire(self.name)
        except (Unavailable, TimeoutError):
            return not self.lease.expired
        if renewed is None or renewed.fencing_token != self.lease.fencing_token:
            return False
        self.lease = renewed
        return True

    async def _give_back(self) -> None:
        if self.lease is None:
            return
        lease, self.lease = self.lease, None
        try:
            # Majority acknowledgement has no bound of its own.
            async with asyncio.timeout(self._release_limit_s):
                await self._leases.release(lease)
        except (TimeoutError, GatewayError) as exc:
            log.warning("lease not released: it runs out by itself", extra={"reason": str(exc)})
