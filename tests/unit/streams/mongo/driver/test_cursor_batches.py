"""Cursor batches: reading ahead."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pymongo.errors
import pytest

from revstream.streams.core.errors import Unavailable
from revstream.streams.mongo.driver.cursor_batches import cursor_batches
from tests.support.eventually import eventually


class Server:
    """Answers one batch after the other; at the end it is silent, or gone."""

    def __init__(self, batches: list[list[int]], *, end: str = "silent") -> None:
        self.requests = 0
        self.cancelled = 0
        self.killed: list[Any] = []
        self._batches = batches
        self._end = end

    async def ask(self, command: dict[str, Any]) -> dict[str, Any]:
        self.requests += 1
        part = "nextBatch" if "getMore" in command else "firstBatch"
        if self._batches:
            batch = self._batches.pop(0)
            last = not self._batches and self._end == "closed"
            return {"cursor": {"id": 0 if last else 7, part: batch}}
        if self._end == "gone":
            raise pymongo.errors.AutoReconnect("connection closed")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise AssertionError

    async def kill(self, command: dict[str, Any]) -> None:
        self.killed += command["cursors"]

    def rounds(self, *, ahead: bool) -> Any:
        return cursor_batches(
            self.ask, self.kill, "things", {"find": "things"}, size=2, ahead=ahead
        )


async def test_the_next_batch_is_requested_while_one_is_processed() -> None:
    """The request is sent before the caller needs it."""
    server = Server([[1], [2], [3]])
    async with aclosing(server.rounds(ahead=True)) as opened:
        for n in (1, 2):
            assert (await anext(opened))["batch"] == [n]
            await eventually(lambda n=n: server.requests == n + 1)
    assert server.killed == [7]


async def test_without_reading_ahead_a_batch_is_requested_when_needed() -> None:
    """There is one request per batch read."""
    server = Server([[1], [2]])
    async with aclosing(server.rounds(ahead=False)) as opened:
        await anext(opened)
        await asyncio.sleep(0)
        assert server.requests == 1
    assert server.killed == [7]


async def test_a_caller_that_leaves_does_not_wait_for_a_pending_batch() -> None:
    """The request is cancelled and the cursor killed."""
    server = Server([[1]])
    async with aclosing(server.rounds(ahead=True)) as opened:
        await anext(opened)
        await eventually(lambda: server.requests == 2)
    assert (server.cancelled, server.killed) == (1, [7])


@pytest.mark.parametrize("looking", [False, True])
async def test_a_lost_connection_is_raised_after_the_batch(
    looking: bool,
) -> None:
    """No received batch is lost; no error is raised if the caller has left."""
    server = Server([[1], [2]], end="gone")
    async with aclosing(server.rounds(ahead=True)) as opened:
        assert [(await anext(opened))["batch"] for _ in range(2)] == [[1], [2]]
        await eventually(lambda: server.requests == 3)
        if looking:
            with pytest.raises(Unavailable):
                await anext(opened)


async def test_iteration_ends_when_the_server_closes_the_cursor() -> None:
    """There is no further request, and no kill."""
    server = Server([[1], [2]], end="closed")
    async with aclosing(server.rounds(ahead=True)) as opened:
        assert [each["batch"] async for each in opened] == [[1], [2]]
    assert (server.requests, server.killed) == (2, [])
