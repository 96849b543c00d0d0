"""Drafting of versions beside other tasks."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from revstream.streams.coordination.checkpoint import Baseline
from revstream.streams.coordination.partition import Partition
from revstream.streams.recording.version_builder import VersionBuilder
from tests.support.streams import event, stop_task


class EmptyArchive:
    """An archive without versions."""

    collection = "things"

    def __init__(self, *, keeps: bool) -> None:
        self.layout = SimpleNamespace(keeps=keeps)

    async def last_versions(self, keys: Any) -> dict[Any, Any]:
        return {}

    async def known(self, keys: Any) -> list[Any]:
        return []


@pytest.mark.parametrize("keeps", [False, True])
async def test_other_tasks_run_while_many_versions_are_drafted(keeps: bool) -> None:
    """This holds for self-versioned layouts too, which await nothing."""
    turns, seen = 0, []

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def drain() -> None:
        pass

    drafting = VersionBuilder(
        None,  # type: ignore[arg-type]
        EmptyArchive(keeps=keeps),  # type: ignore[arg-type]
        Partition("things"),
        version_field=None,
        deltas=False,
        cache_bytes=10_000,
        drain=drain,
    )
    add = drafting._add

    def note(*arguments: Any, **options: Any) -> None:
        seen.append(turns)
        if not keeps:
            add(*arguments, **options)

    drafting._add = note  # type: ignore[method-assign]
    if keeps:
        drafting._build_from_layout = note  # type: ignore[method-assign]
    ticking = asyncio.create_task(tick())
    events = [event(n, key=n, operation="insert", after={"_id": n}) for n in range(1, 300)]
    await drafting.build_from_events(events, Baseline(done=True))
    await stop_task(ticking)
    assert len(seen) == len(events)
    assert seen[-1] - seen[0] >= 4
