"""Tasks that end slowly, or fail while ending."""

from __future__ import annotations

import asyncio

import pytest

from revstream.streams.core.errors import Unavailable
from revstream.streams.core.task_cleanup import cancel_and_wait
from tests.support.streams import turn


async def test_all_tasks_end_with_any_errors() -> None:
    """Tasks that have failed before are included; None is ignored."""

    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ZeroDivisionError

    tasks = [asyncio.ensure_future(each) for each in (fails(), asyncio.sleep(3600))]
    await turn()
    await cancel_and_wait(None, *tasks)
    assert [each.done() for each in tasks] == [True, True]
    await cancel_and_wait(None)


async def test_a_caller_cancelled_meanwhile_is_cancelled_once_they_have_ended() -> None:
    """A recorder that continued would be awaited forever."""
    ending, end, after = asyncio.Event(), asyncio.Event(), []

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ending.set()
            await end.wait()

    task = asyncio.ensure_future(slow())
    await turn()

    async def waits() -> None:
        await cancel_and_wait(task)
        after.append("went on")

    waiting = asyncio.ensure_future(waits())
    await ending.wait()
    waiting.cancel()
    await turn()
    assert not waiting.done()
    end.set()
    await asyncio.wait([waiting], timeout=10)
    assert (waiting.cancelled(), task.done(), after) == (True, True, [])


@pytest.mark.parametrize(
    ("raised", "logged"),
    [
        (ZeroDivisionError("a fault"), True),
        (Unavailable("MongoDB is away"), False),
        (StopAsyncIteration(), False),
        (ConnectionError("expected"), False),
    ],
)
async def test_a_bug_in_a_cancelled_task_is_logged(
    raised: Exception, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """No caller awaits the task; an operation that was refused is not logged."""

    async def fails() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise raised

    task = asyncio.ensure_future(fails())
    await turn()
    await cancel_and_wait(task, expected=(ConnectionError,))
    found = [each.exc_info[1] for each in caplog.records if each.exc_info]
    assert found == ([raised] if logged else [])


@pytest.mark.parametrize("how", ["itself", "cause", "context"])
async def test_a_fault_that_the_caller_is_raising_is_not_logged(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It was awaited: the code that handles it reports it."""
    fault, other = ZeroDivisionError("a fault"), LookupError("because of it")

    async def fails() -> None:
        raise fault

    async def work() -> None:
        task = asyncio.ensure_future(fails())
        try:
            try:
                await task
            except ZeroDivisionError as exc:
                if how == "cause":
                    raise other from exc
                if how == "context":
                    raise other  # noqa: B904 (the case)
                raise
        finally:
            await cancel_and_wait(task, asyncio.ensure_future(asyncio.sleep(3600)))

    with pytest.raises((ZeroDivisionError, LookupError)) as raised:
        await work()
    assert raised.value is (fault if how == "itself" else other)
    assert [each.message for each in caplog.records] == []
