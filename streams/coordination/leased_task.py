"""Keep one listener's work running in exactly one process: acquire the lease, work, renew, give
way, take over; and leave to others what is more than this process's share.

Guarantees: work runs only while the lease holds; it is cancelled before the lease can run out, and
the lease is given back on the way out. Work that MongoDB's absence or slowness ended is begun again
at a later turn; any other failure of the work is not retried: it ends `run`, and with it the
process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Literal

from revstream.streams.coordination.lease import Lease, Leases
from revstream.streams.coordination.membership import Membership
from revstream.streams.core.errors import GatewayError, LeaseLost, TimeLimit, Unavailable
from revstream.streams.core.task_cleanup import cancel_and_wait

__all__ = ["LeasedTask", "TaskState"]

log = logging.getLogger(__name__)

TaskState = Literal["waiting", "following", "recording"]
Work = Callable[[int], Awaitable[None]]


class LeasedTask:
    """`work(fencing_token)` runs until it is cancelled or raises.

    Args:
        members: says which listeners are this process's share; without it, it takes what it gets.
    Attributes:
        fencing_token: of the lease that it holds or held last; 0 where it never held one.
        trouble: why it cannot work or ask for the lease; None where all is well.
        changes, fences_refused, interruptions: how often it got the lease, a write of its work was
            refused because another process had taken over, MongoDB's absence ended the work.
    """

    def __init__(
        self,
        name: str,
        leases: Leases,
        work: Work,
        *,
        members: Membership | None = None,
        release_limit_s: float = 2.0,
    ) -> None:
        self.name = name
        self.state: TaskState = "waiting"
        self.lease: Lease | None = None
        self.fencing_token = 0
        self.trouble: str | None = None
        self.changes = self.fences_refused = self.interruptions = 0
        # How long work must live, and until when, before it is believed to be well again.
        self._proof_s = self._suspect_until = 0.0
        # The last request for the lease, which may still be on its way.
        self._request: asyncio.Future[Lease | None] | None = None
        self._leases = leases
        self._work = work
        self._members = members
        self._release_limit_s = release_limit_s

    async def run(self) -> None:
        """Never ends by itself; raises what the work raises, but `LeaseLost`, `Unavailable` and
        `TimeLimit`."""
        while True:
            if self._members is not None and not self._members.is_assigned(self.name):
                self.state = "following"
                # It is for another one to work.
                self.trouble = None
                await self._members.wait_for_assignment(self.name, assigned=True)
            try:
                if await self._acquire():
                    assert self.lease is not None
                    await self._hold(self.lease)
            finally:
                self.state = "following" if self.lease is None else "waiting"
                await self._release_in_time()
            # Who has taken over is not raced for it, and an outage is not met with a busy loop.
            await asyncio.sleep(self._leases.options.renew_every_s)

    async def _acquire(self) -> bool:
        """Whether it has the lease now."""
        try:
            self.lease = await self._request_lease()
        except (Unavailable, TimeLimit) as exc:
            self._note_trouble("lease cannot be asked for", exc.message)
            return False
        if self.lease is None:
            # Another one works.
            self.trouble = None
            return False
        self.state = "recording"
        self.changes += 1
        self.fencing_token = self.lease.fencing_token
        log.info(
            "lease acquired",
            extra={"listener": self.name, "fencing_token": self.fencing_token},
        )
        return True

    async def _request_lease(self) -> Lease | None:
        # Shielded: MongoDB does what it was asked to whether or not somebody still waits for the
        # answer, and a lease that nobody knows to be held is not given back.
        self._request = asyncio.ensure_future(self._leases.acquire(self.name))
        return await asyncio.shield(self._request)

    async def _hold(self, lease: Lease) -> None:
        """Work until the lease is lost or the work fails."""
        began = time.monotonic()
        self._suspect_until = began + self._proof_s
        work = asyncio.ensure_future(self._work(lease.fencing_token))
        given_up = asyncio.ensure_future(self._reassigned())
        try:
            while not work.done():
                await asyncio.wait(
                    [work, given_up],
                    timeout=self._until_renewal_s(),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if work.done():
                    break
                if given_up.done():
                    log.info("lease handed over", extra={"listener": self.name})
                    return
                if not await self._renew():
                    log.warning("lease lost", extra={"listener": self.name})
                    return
            await work
        except LeaseLost as exc:
            self.fences_refused += 1
            log.warning("lease lost", extra={"listener": self.name, "reason": exc.message})
        except (Unavailable, TimeLimit) as exc:
            # A server that is too busy to answer in time is away, for now.
            self.interruptions += 1
            lived_s = time.monotonic() - began
            # Never shorter while it is in trouble: a quick failure is no sign of an end. At least a
            # lease: what failed at once may take a while to fail the next time.
            duration_s = self._leases.options.duration_s
            self._proof_s = max(self._proof_s, duration_s, 2 * min(lived_s, duration_s))
            self._note_trouble("work interrupted", exc.message)
        finally:
            given_up.cancel()
            await cancel_and_wait(work)

    def _note_trouble(self, event: str, reason: str) -> None:
        if self.trouble is None:
            log.warning(event, extra={"listener": self.name, "reason": reason})
        self.trouble = f"{event}: {reason}"

    async def _reassigned(self) -> None:
        """Return once the lease is another's share."""
        if self._members is None:
            await asyncio.Event().wait()
        else:
            await self._members.wait_for_assignment(self.name, assigned=False)

    def _until_renewal_s(self) -> float:
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
                renewed = await self._request_lease()
        except (Unavailable, TimeLimit, TimeoutError) as exc:
            self._note_trouble("lease cannot be renewed", str(exc) or "no answer in time")
            return not self.lease.expired
        if renewed is None or renewed.fencing_token != self.lease.fencing_token:
            return False
        self.lease = renewed
        # What ended the work the last time has not done so for longer than it took.
        if time.monotonic() >= self._suspect_until:
            self.trouble, self._proof_s = None, 0.0
        return True

    async def _release_in_time(self) -> None:
        try:
            # Majority acknowledgement has no bound of its own.
            async with asyncio.timeout(self._release_limit_s):
                await self._release()
        except (TimeoutError, GatewayError) as exc:
            log.warning(
                "lease not released: it runs out by itself",
                extra={"listener": self.name, "reason": str(exc)},
            )

    async def _release(self) -> None:
        lease, self.lease = self.lease, None
        asking, self._request = self._request, None
        if asking is not None:
            # What it still brings is held as well; if it fails, that has been told.
            with contextlib.suppress(GatewayError):
                lease = await asking or lease
        if lease is not None:
            await self._leases.release(lease)
            log.info("lease released", extra={"listener": self.name})
