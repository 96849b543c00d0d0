"""Cluster time of the database, as several callers read it at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from bson import Timestamp

from revstream.resolvers.access.cluster_time import ClusterTime
from revstream.streams.core import resume_tokens
from tests.support.streams import turn


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_fault_of_a_read_is_logged_if_its_caller_is_gone(
    cancelled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A caller that waits for it raises it."""
    begun, end, fault = asyncio.Event(), asyncio.Event(), ZeroDivisionError("a fault")

    async def read() -> Timestamp:
        begun.set()
        await end.wait()
        raise fault

    mongo: Any = SimpleNamespace(operation_time=read, confirmed_time=read)
    progress: Any = SimpleNamespace(known_positions=lambda: [""])
    token = resume_tokens.token_from_time(Timestamp(1, 1))
    checking = asyncio.create_task(ClusterTime(mongo, progress).check_reached(token))
    await begun.wait()
    if cancelled:
        checking.cancel()
        await turn()
    end.set()
    await asyncio.wait([checking])
    await turn()
    # From Python 3.14 on, asyncio logs it, too.
    ours = [each for each in caplog.records if each.name.startswith("revstream.")]
    logged = [each.exc_info[1] for each in ours if each.exc_info]
    assert logged == ([fault] if cancelled else [])
    assert cancelled or checking.exception() is fault
