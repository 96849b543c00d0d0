"""A task that runs in exactly one process: it acquires its lease, works, renews, releases, takes
over.

With a membership, a process runs only the tasks that are assigned to it.

Guarantees: the work runs only while the lease is valid; it is cancelled before the lease can
expire, and the lease is released at the end. Work that failed because MongoDB was unavailable or
slow is started again later. Any other failure of the work is not retried: it ends `run`, and with
it the process.
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
    """A task under a lease; `work(fencing_token)` runs until it is cancelled or raises.

    Args:
        members: Decides which tasks this process should run; without it, each lease that is free.

    Attributes:
        fencing_token: Fencing token of the current or last lease; 0 before the first.
        trouble: Reason why the task cannot work or acquire its lease; None where all is well.
        changes: Number of leases acquired.
        fences_refused: Number of writes refused because another process had taken over.
        interruptions: Number of runs that ended because MongoDB was unavailable.
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
        # Seconds that the work must run, and the time until which it must, before it counts as
        # recovered.
        self._proof_s = self._suspect_until = 0.0
        # The last request for the lease, which may still be in flight.
        self._request: asyncio.Future[Lease | None] | None = None
        self._leases = leases
        self._work = work
        self._members = members
        self._release_limit_s = release_limit_s

    async def run(self) -> None:
        """Run for ever; raise what the work raises, except `LeaseLost`, `Unavailable` and
        `TimeLimit`.
        """
        while True:
            if self._members is not None and not self._members.is_assigned(self.name):
                self.state = "following"
                # Another process should do the work.
                self.trouble = None
                await self._members.wait_for_assignment(self.name, assigned=True)
            try:
                if await self._acquire():
                    assert self.lease is not None
                    await self._hold(self.lease)
            finally:
                self.state = "following" if self.lease is None else "waiting"
                await self._release_in_time()
            # Neither compete with a process that has just taken over, nor retry in a busy loop
            # while MongoDB is unavailable.
            await asyncio.sleep(self._leases.options.renew_every_s)

    async def _acquire(self) -> bool:
        """Try to acquire the lease; return whether the process has it."""
        try:
            self.lease = await self._request_lease()
        except (Unavailable, TimeLimit) as exc:
            self._note_trouble("lease request failed", exc.message)
            return False
        if self.lease is None:
            # Another process does the work.
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
        # Shielded: MongoDB executes the command even if the caller is cancelled, and a lease whose
        # reply is lost would not be released.
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
                    given_up.result()
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
            # A server that is too busy to answer in time counts as temporarily unavailable.
            self.interruptions += 1
            lived_s = time.monotonic() - began
            # Never shorten it during trouble: a quick failure does not show recovery. At least the
            # duration of a lease: work that failed at once may take longer to fail the next time.
            duration_s = self._leases.options.duration_s
            self._proof_s = max(self._proof_s, duration_s, 2 * min(lived_s, duration_s))
            self._note_trouble("work interrupted", exc.message)
        finally:
            await cancel_and_wait(work, given_up)

    def _note_trouble(self, event: str, reason: str) -> None:
        if self.trouble is None:
            log.warning(event, extra={"listener": self.name, "reason": reason})
        self.trouble = f"{event}: {reason}"

    async def _reassigned(self) -> None:
        """Return once the task is assigned to another process."""
        if self._members is None:
            await asyncio.Event().wait()
        else:
            await self._members.wait_for_assignment(self.name, assigned=False)

    def _until_renewal_s(self) -> float:
        """Return the seconds until the next renewal, or until expiry where the last renewal has
        failed.
        """
        assert self.lease is not None
        remaining_s = self.lease.expires_at - time.monotonic()
        return max(0.0, min(self._leases.options.renew_every_s, remaining_s))

    async def _renew(self) -> bool:
        """Renew the lease; False where another process has it, or it expired while MongoDB was
        unavailable.
        """
        assert self.lease is not None
        try:
            # Lease times use time.monotonic, which is also the event loop's clock.
            async with asyncio.timeout_at(self.lease.expires_at):
                renewed = await self._request_lease()
        except (Unavailable, TimeLimit, TimeoutError) as exc:
            self._note_trouble("lease renewal failed", str(exc) or "no response in time")
            return not self.lease.expired
        if renewed is None or renewed.fencing_token != self.lease.fencing_token:
            return False
        self.lease = renewed
        # The cause of the last failure has not returned for longer than the proof time.
        if time.monotonic() >= self._suspect_until:
            self.trouble, self._proof_s = None, 0.0
        return True

    async def _release_in_time(self) -> None:
        try:
            # A write with majority acknowledgement has no time limit of its own.
            async with asyncio.timeout(self._release_limit_s):
                await self._release()
        except (TimeoutError, GatewayError) as exc:
            log.warning(
                "lease not released: it expires by itself",
                extra={"listener": self.name, "reason": str(exc)},
            )

    async def _release(self) -> None:
        lease, self.lease = self.lease, None
        asking, self._request = self._request, None
        if asking is not None:
            # A lease that its reply still grants is released too; a failure was already reported.
            with contextlib.suppress(GatewayError):
                lease = await asking or lease
        if lease is not None:
            await self._leases.release(lease)
            log.info("lease released", extra={"listener": self.name})
