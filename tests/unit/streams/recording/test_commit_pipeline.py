"""Concurrent writes of the commit pipeline, and their order, with slow writes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from bson import Timestamp

from revstream.streams.coordination.checkpoint import Baseline, Checkpoint
from revstream.streams.core.errors import LeaseLost, Unavailable
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.recording.commit_pipeline import CommitPipeline
from revstream.streams.recording.versions.version_batch import VersionBatch
from tests.support.eventually import eventually
from tests.support.streams import FIRST_DAY, turn


class SlowArchive:
    """An archive and its checkpoints; each write waits until the test completes it."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.refused: set[str] = set()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._held = True

    async def insert(self, records: Sequence[Document]) -> bool:
        name = "insert " + " ".join(each["_id"] for each in records)
        await self._through(name)
        return name not in self.refused

    async def save(self, checkpoint: Checkpoint) -> None:
        await self._through(f"save {checkpoint.token}")
        if f"save {checkpoint.token}" in self.refused:
            raise LeaseLost("refused")

    async def done(self, name: str) -> None:
        self._waiting.pop(name).set_result(None)
        await _turns()

    async def failed(self, name: str, exc: Exception) -> None:
        self._waiting.pop(name).set_exception(exc)
        await _turns()

    def complete_all(self) -> None:
        """Complete all writes from now on without delay."""
        self._held = False
        for each in self._waiting.values():
            each.set_result(None)

    async def _through(self, name: str) -> None:
        self.begun.append(name)
        if not self._held:
            return
        self._waiting[name] = asyncio.get_running_loop().create_future()
        await self._waiting[name]

    @property
    def on_their_way(self) -> set[str]:
        return set(self._waiting)


async def _turns() -> None:
    for _ in range(10):
        await turn()


class World:
    def __init__(self, save_every_s: float = 0) -> None:
        self.slow = SlowArchive()
        self.on_archived: list[str] = []
        archive: Any = self.slow
        self.committing = CommitPipeline(
            "recorder:things",
            archive,
            self.slow.save,
            on_archived=self.on_archived.append,
            idle_save_s=60,
            save_every_s=save_every_s,
        )

    async def put(self, token: str) -> None:
        """Put a batch of one version."""
        draft = VersionBatch()
        record = {"_id": token, "v": 2, "at": Timestamp(5, 1), "wall": FIRST_DAY, "full": None}
        draft.add(record, None)
        await self.committing.put(draft, Checkpoint(token, ""), worth_saving=True)
        await _turns()


async def test_both_writes_run_beside_those_of_the_next_batch() -> None:
    """There is one write of each kind at a time, in the order of the batches."""
    world = World()
    slow = world.slow
    await world.put("B")
    assert slow.on_their_way == {"insert B"}
    await world.put("C")
    assert world.on_archived == []
    await slow.done("insert B")
    assert slow.on_their_way == {"save B", "insert C"}
    assert world.on_archived == ["B"]
    await world.put("D")
    # There is no second write of a kind, whichever ends first.
    await slow.done("insert C")
    await slow.done("insert D")
    assert slow.on_their_way == {"save B"}
    assert world.on_archived == ["B", "C", "D"]
    # Checkpoints in between are skipped.
    await slow.done("save B")
    assert slow.on_their_way == {"save D"}
    await slow.done("save D")
    await world.committing.drain()


async def test_versions_that_arrive_during_an_insert_are_inserted_together() -> None:
    """They are one write."""
    world = World()
    for token in "BCD":
        await world.put(token)
    await world.slow.done("insert B")
    assert world.slow.on_their_way == {"save B", "insert C D"}
    await world.slow.done("insert C D")
    assert world.on_archived == ["B", "D"]
    world.slow.complete_all()
    await world.committing.drain()


async def test_checkpoints_are_saved_at_most_once_per_interval() -> None:
    """The last one is saved when the interval is over."""
    world = World(save_every_s=0.05)
    world.slow.complete_all()
    await world.committing.save(Checkpoint("A", ""))
    for token in "BCD":
        await world.put(token)
    assert world.on_archived == ["B", "C", "D"]
    await eventually(lambda: world.slow.begun[-1] == "save D")
    await world.committing.abort()


async def test_of_several_waiting_checkpoints_the_last_is_saved() -> None:
    """It is saved at once if a caller waits for it, or if it holds more than a position."""
    world = World(save_every_s=3600)
    slow = world.slow
    slow.complete_all()
    await world.committing.save(Checkpoint("A", ""))
    for token in "BCD":
        await world.put(token)
    assert slow.begun == ["save A", "insert B", "insert C", "insert D"]
    await world.committing.drain()
    assert slow.begun[4:] == ["save D"]
    await world.put("E")
    assert slow.begun[5:] == ["insert E"]
    await world.committing.flush()
    assert slow.begun[5:] == ["insert E", "save E"]
    further = Checkpoint("F", "", Baseline(started=True))
    await world.committing.put(VersionBatch(), further, worth_saving=False)
    await _turns()
    assert slow.begun[7:] == ["save F"]
    await world.committing.abort()


async def test_put_waits_while_the_pipeline_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, however slow MongoDB is."""
    monkeypatch.setattr("revstream.streams.recording.commit_pipeline._MOST_RECORDS", 2)
    world = World()
    for token in "ABC":
        await world.put(token)
    more = asyncio.create_task(world.put("D"))
    await _turns()
    assert not more.done()
    await world.slow.done("insert A")
    await more
    assert world.slow.begun[:2] == ["insert A", "insert B C"]
    await world.committing.abort()


@pytest.mark.parametrize(
    ("broken", "refused"),
    [
        ("insert C", False),
        ("insert C", True),
        ("save B", False),
        ("save B", True),
    ],
)
async def test_a_failed_write_is_raised_by_the_next_put(broken: str, refused: bool) -> None:
    """Either kind of write may fail; waiting for all of them raises the error too."""
    world = World()
    await world.put("B")
    await world.put("C")
    await world.slow.done("insert B")
    if refused:
        world.slow.refused.add(broken)
        await world.slow.done(broken)
    else:
        await world.slow.failed(broken, Unavailable("gone"))
    raised = LeaseLost if refused else Unavailable
    with pytest.raises(raised):
        await world.put("D")
    world.slow.complete_all()
    with pytest.raises(raised):
        await world.committing.drain()
    await world.committing.abort()
