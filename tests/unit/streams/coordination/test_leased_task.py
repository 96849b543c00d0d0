"""Leased tasks with scripted leases."""

from __future__ import annotations

import asyncio
import time

import pytest

from revstream.streams.coordination.lease import Lease, LeaseOptions
from revstream.streams.coordination.leased_task import LeasedTask
from revstream.streams.core.errors import LeaseLost, TimeLimit, Unavailable
from tests.support.eventually import eventually
from tests.support.streams import stop_task, turn

NAME = "recorder:things"


class ScriptedLeases:
    """Leases with scripted answers; the last answer is repeated forever."""

    def __init__(self, *answers: int | Exception | None, lasts_s: float = 60.0) -> None:
        self.options = LeaseOptions(duration_s=0.5, renew_every_s=0.005)
        self.released: list[int] = []
        self.requests = 0
        self._answers = list(answers)
        self._lasts_s = lasts_s

    async def acquire(self, name: str) -> Lease | None:
        self.requests += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return None
        return Lease(name, "me", answer, time.monotonic() + self._lasts_s)

    async def release(self, lease: Lease) -> None:
        self.released.append(lease.fencing_token)


class Work:
    """Runs until it is cancelled; records the fencing tokens with which it began and ended."""

    def __init__(self, *failures: Exception | None) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.running = 0
        self.most_running = 0
        self._failures = list(failures)

    async def __call__(self, fencing_token: int) -> None:
        self.begun.append(fencing_token)
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            failure = self._failures.pop(0) if self._failures else None
            if failure is not None:
                raise failure
            await asyncio.Event().wait()
        finally:
            self.running -= 1
            self.ended.append(fencing_token)


def listening(leases: ScriptedLeases, work: Work) -> tuple[LeasedTask, asyncio.Task[None]]:
    listener = LeasedTask(NAME, leases, work)  # type: ignore[arg-type]
    return listener, asyncio.create_task(listener.run())


async def test_work_runs_while_the_lease_is_renewed() -> None:
    """It runs once, with the fencing token of the lease."""
    leases, work = ScriptedLeases(7), Work()
    listener, task = listening(leases, work)
    await eventually(lambda: leases.requests > 3)
    assert (work.begun, work.running, listener.state, listener.changes) == ([7], 1, "recording", 1)
    assert listener.lease is not None
    await stop_task(task)
    assert (work.ended, leases.released, listener.lease) == ([7], [7], None)


async def test_a_lease_that_is_not_granted_is_requested_again() -> None:
    """The task follows meanwhile, also while MongoDB is unavailable."""
    leases, work = ScriptedLeases(None, Unavailable("gone"), TimeLimit("slow"), None, 3), Work()
    listener, task = listening(leases, work)
    await eventually(lambda: work.begun == [3])
    assert listener.changes == 1
    await stop_task(task)


async def test_a_follower_does_not_work() -> None:
    """It does not release a lease that it does not hold."""
    leases, work = ScriptedLeases(None), Work()
    listener, task = listening(leases, work)
    await eventually(lambda: leases.requests > 3)
    assert (listener.state, work.begun) == ("following", [])
    await stop_task(task)
    assert leases.released == []


@pytest.mark.parametrize("answer", [None, 8], ids=["another holds it", "another held it"])
async def test_work_is_cancelled_when_the_lease_is_lost(answer: int | None) -> None:
    """A lease regained with a new fencing token was held by another process in between."""
    leases, work = ScriptedLeases(7, 7, answer, 9), Work()
    _, task = listening(leases, work)
    await eventually(lambda: work.begun == [7, 9])
    assert (work.ended, work.most_running) == ([7], 1)
    await stop_task(task)


async def test_work_is_cancelled_before_a_lease_that_cannot_be_renewed_expires() -> None:
    """The task wakes for the expiry, not only for the next renewal."""
    leases, work = ScriptedLeases(7, Unavailable("gone"), lasts_s=1.0), Work()
    leases.options = LeaseOptions(duration_s=1000, renew_every_s=0.9)
    begun_at = time.monotonic()
    _, task = listening(leases, work)
    await eventually(lambda: work.ended == [7])
    assert time.monotonic() - begun_at < 1.7
    await stop_task(task)


async def test_work_continues_through_a_short_outage() -> None:
    """It runs as long as the lease has not expired."""
    leases, work = ScriptedLeases(7, Unavailable("gone"), Unavailable("gone"), 7), Work()
    _, task = listening(leases, work)
    await eventually(lambda: leases.requests > 5)
    assert (work.begun, work.ended) == ([7], [])
    await stop_task(task)


@pytest.mark.parametrize("failure", [LeaseLost("refused"), Unavailable("the primary has changed")])
async def test_work_that_was_refused_or_interrupted_is_started_again(failure: Exception) -> None:
    """The lease is released first, for a better placed process; there is no busy loop."""
    leases, work = ScriptedLeases(7, 8), Work(failure)
    leases.options = LeaseOptions(duration_s=100, renew_every_s=0.05)
    begun_at = time.monotonic()
    _, task = listening(leases, work)
    await eventually(lambda: len(work.begun) == 2)
    assert (work.begun, leases.released) == ([7, 8], [7])
    assert time.monotonic() - begun_at >= 0.05
    await stop_task(task)


async def test_any_other_failure_of_the_work_ends_the_task() -> None:
    """The failure is raised, not retried; the lease is released."""
    leases, work = ScriptedLeases(7), Work(ZeroDivisionError("a bug"))
    listener, task = listening(leases, work)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        await task
    assert leases.released == [7]
    assert listener.state == "waiting"


async def test_a_cancelled_task_waits_for_its_work_to_end() -> None:
    """The lease is not released while the work still writes."""
    leases, ends = ScriptedLeases(7), asyncio.Event()
    released_while_working = []

    async def slow_to_end(fencing_token: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await ends.wait()
            released_while_working.extend(leases.released)

    listener = LeasedTask(NAME, leases, slow_to_end)  # type: ignore[arg-type]
    task = asyncio.create_task(listener.run())
    await eventually(lambda: listener.state == "recording")
    task.cancel()
    await turn()
    ends.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (released_while_working, leases.released) == ([], [7])


async def test_a_release_that_hangs_does_not_block() -> None:
    """Majority acknowledgement may never arrive; the lease then expires by itself."""

    class Stuck(ScriptedLeases):
        async def release(self, lease: Lease) -> None:
            await asyncio.Event().wait()

    listener = LeasedTask(NAME, Stuck(7), Work(), release_limit_s=0.01)  # type: ignore[arg-type]
    task = asyncio.create_task(listener.run())
    await eventually(lambda: listener.state == "recording")
    await stop_task(task)


async def test_a_release_that_fails_does_not_hide_how_the_work_ended() -> None:
    """The work's own failure is raised."""

    class Failing(ScriptedLeases):
        async def release(self, lease: Lease) -> None:
            raise Unavailable("gone")

    listener = LeasedTask(NAME, Failing(7), Work(ZeroDivisionError()))  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        await listener.run()


def lines(caplog: pytest.LogCaptureFixture, event: str) -> int:
    return [each.getMessage() for each in caplog.records].count(event)


async def test_an_outage_is_logged_once_and_reported_until_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """There is no line for each renewal, and a waiting follower is healthy."""
    leases, work = ScriptedLeases(*[Unavailable("gone")] * 5, None), Work()
    listener, task = listening(leases, work)
    await eventually(lambda: listener.trouble is not None)
    assert listener.trouble == "lease request failed: gone"
    await eventually(lambda: leases.requests > 6)
    assert listener.trouble is None
    assert lines(caplog, "lease request failed") == 1
    await stop_task(task)


async def test_work_that_is_interrupted_repeatedly_is_in_trouble_until_it_survives(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Getting the lease again is not enough; the work must run until a renewal."""
    failures = [Unavailable("no primary"), TimeLimit("no primary"), Unavailable("no primary")]
    leases, work = ScriptedLeases(7), Work(*failures)
    listener, task = listening(leases, work)
    await eventually(lambda: listener.trouble == "work interrupted: no primary")
    assert len(work.begun) < 4
    await eventually(lambda: len(work.begun) == 4 and listener.trouble is None)
    assert (len(work.begun), listener.interruptions, listener.state) == (4, 3, "recording")
    assert lines(caplog, "work interrupted") == 1
    await stop_task(task)


async def test_a_task_cancelled_while_its_work_ends_is_cancelled() -> None:
    """The work takes some time to end."""
    ending, end = asyncio.Event(), asyncio.Event()

    async def slow(fencing_token: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await end.wait()

    listener = LeasedTask(NAME, ScriptedLeases(7, None), slow)  # type: ignore[arg-type]
    task = asyncio.create_task(listener.run())
    await ending.wait()
    task.cancel()
    await turn()
    end.set()
    await asyncio.wait([task], timeout=10)
    assert task.cancelled()


class Share:
    """Decides whether this process should hold the lease."""

    def __init__(self) -> None:
        self.is_mine = True

    def is_assigned(self, name: str) -> bool:
        return self.is_mine

    async def wait_for_assignment(self, name: str, *, assigned: bool) -> None:
        await eventually(lambda: self.is_mine is assigned, within_s=60)


async def test_a_lease_assigned_to_another_process_is_no_trouble() -> None:
    """An outage in which other members joined ends this way."""
    leases, share = ScriptedLeases(Unavailable("gone")), Share()
    listener = LeasedTask(NAME, leases, Work(), members=share)  # type: ignore[arg-type]
    task = asyncio.create_task(listener.run())
    await eventually(lambda: listener.trouble is not None)
    share.is_mine = False
    await eventually(lambda: listener.trouble is None)
    assert listener.state == "following"
    await stop_task(task)


async def test_a_fault_of_the_assignment_ends_the_task() -> None:
    """It is not taken for a hand-over to another process."""

    class Broken(Share):
        async def wait_for_assignment(self, name: str, *, assigned: bool) -> None:
            raise ZeroDivisionError

    listener = LeasedTask(NAME, ScriptedLeases(1), Work(), members=Broken())  # type: ignore[arg-type]
    listener_task = asyncio.create_task(listener.run())
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(listener_task, 10)


async def test_work_that_fails_later_each_time_stays_in_trouble() -> None:
    """It survives renewals without progress: it must run for longer than before."""
    begun = 0
    seen: list[str | None] = []

    async def fails_late(fencing_token: int) -> None:
        nonlocal begun
        begun += 1
        for _ in range(10):
            await asyncio.sleep(0.005)
            seen.append(listener.trouble)
        if begun <= 3:
            raise Unavailable("cannot write")
        await asyncio.Event().wait()

    listener = LeasedTask(NAME, ScriptedLeases(7), fails_late)  # type: ignore[arg-type]
    task = asyncio.create_task(listener.run())
    await eventually(lambda: begun == 4 and listener.trouble is None)
    assert seen[10:30] == ["work interrupted: cannot write"] * 20
    await stop_task(task)


async def test_a_failed_renewal_is_trouble_before_the_lease_is_lost() -> None:
    """The trouble ends with the next renewal."""
    leases, work = ScriptedLeases(7, Unavailable("gone"), Unavailable("gone"), 7), Work()
    listener, task = listening(leases, work)
    await eventually(lambda: listener.trouble == "lease renewal failed: gone")
    await eventually(lambda: listener.trouble is None)
    assert work.begun == [7]
    await stop_task(task)


async def test_refused_writes_are_counted_and_the_fencing_token_is_kept() -> None:
    """The metrics show both after the lease is released, too."""
    leases, work = ScriptedLeases(7, None), Work(LeaseLost("refused"))
    listener, task = listening(leases, work)
    await eventually(lambda: listener.state == "following")
    assert (listener.fences_refused, listener.fencing_token, listener.changes) == (1, 7, 1)
    assert listener.lease is None
    await stop_task(task)
