"""Two recorders of one collection: writes of the deposed one are refused, and it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Checkpoint, Checkpoints
from revstream.streams.coordination.partition import Partition
from revstream.streams.core.errors import LeaseLost
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.transactions import WriteSession
from tests.support.eventually import eventually
from tests.support.streams import Recording, outline, stop_task

Client = MongoClient[dict[str, Any]]


class Gate:
    """Blocks calls until it is opened, like a suspended process."""

    def __init__(self) -> None:
        self.closed = False
        self.held = 0
        self._open = asyncio.Event()

    async def through(self) -> None:
        if self.closed:
            self.held += 1
            await self._open.wait()

    def open(self) -> None:
        self.closed = False
        self._open.set()


class HeldArchive(Archive):
    def __init__(self, mongo: Mongo, gate: Gate) -> None:
        super().__init__(mongo, "things")
        self._gate = gate

    async def insert(self, records: Sequence[Document]) -> bool:
        await self._gate.through()
        return await super().insert(records)


class HeldCheckpoints(Checkpoints):
    def __init__(self, mongo: Mongo, gate: Gate) -> None:
        super().__init__(mongo)
        self._gate = gate

    async def save(self, name: str, checkpoint: Checkpoint, *, fencing_token: int) -> None:
        await self._gate.through()
        await super().save(name, checkpoint, fencing_token=fencing_token)


class SlowlyRead(Checkpoints):
    """Checkpoints whose reader is suspended after it has read them."""

    def __init__(self, mongo: Mongo, gate: Gate) -> None:
        super().__init__(mongo)
        self._gate = gate

    async def load_collection(
        self, collection: str, writing: WriteSession | None = None
    ) -> dict[Partition, Checkpoint]:
        found = await super().load_collection(collection, writing)
        await self._gate.through()
        return found


def write(client: Client, name: str, turn: int) -> None:
    things = client[name].things
    things.insert_many([{"_id": f"{turn}.{n}"} for n in range(3)])
    things.update_many({}, {"$set": {"turn": turn}})


@pytest.mark.parametrize("images", [True, False])
@pytest.mark.parametrize("held", ["archive", "checkpoint"])
async def test_a_late_write_of_a_deposed_recorder_is_refused_and_ends_it(
    mongo: Mongo, client: Client, held: str, images: bool
) -> None:
    """It is suspended before a write, another one continues, and the late write has no effect."""
    options = {"changeStreamPreAndPostImages": {"enabled": True}} if images else {}
    await mongo.command({"create": "things", **options})
    archive, checkpoints = Gate(), Gate()
    gate = {"archive": archive, "checkpoint": checkpoints}[held]
    deposed = Recording(
        mongo,
        archive=HeldArchive(mongo, archive),
        checkpoints=HeldCheckpoints(mongo, checkpoints),
    )
    await deposed.begin()
    task = asyncio.create_task(deposed.recorder.run(1))
    write(client, mongo.name, 1)
    await deposed.at_rest(task)

    gate.closed = True
    write(client, mongo.name, 2)
    await eventually(lambda: gate.held == 1)
    # While a checkpoint waits, later batches are written, before the successor's.
    archive.closed = True
    successor = Recording(mongo)
    async with successor.running(2) as successors:
        write(client, mongo.name, 3)
        await successor.caught_up(successors)
        archive.open()
        checkpoints.open()
        with pytest.raises(LeaseLost):
            await task
        write(client, mongo.name, 4)
        await successor.caught_up(successors)

    records = await successor.versions()
    assert outline(records, "2.0") == [
        ("INSERT", 1, False),
        ("UPDATE", 2, False),
        ("UPDATE", 3, False),
        ("UPDATE", 4, False),
    ]
    assert len(records) == 12 + 3 + 6 + 9 + 12
    checkpoint = await successor.checkpoints.load(successor.name)
    assert checkpoint is not None
    assert checkpoint.fencing_token == 2


async def test_a_deposed_recorder_that_writes_first_restarts_its_successor(
    mongo: Mongo, client: Client
) -> None:
    """Its records equal those of the successor, which continues after them."""
    first, second = Gate(), Gate()
    deposed = Recording(mongo, archive=HeldArchive(mongo, first))
    await deposed.begin()
    task = asyncio.create_task(deposed.recorder.run(1))
    await deposed.at_rest(task)
    successor = Recording(mongo, archive=HeldArchive(mongo, second))
    first.closed = second.closed = True
    successors = asyncio.create_task(successor.recorder.run(2))
    await successor.at_rest(successors)
    write(client, mongo.name, 1)
    # Both have read the events; the deposed one writes first, and only then learns of it.
    await eventually(lambda: (first.held, second.held) == (1, 1))
    first.open()
    with pytest.raises(LeaseLost, match="fencing token 1, minimum is 2"):
        await task
    second.open()
    with pytest.raises(LeaseLost, match="another process wrote to"):
        await successors
    records = await Recording(mongo).record(fencing_token=3)
    assert outline(records, "1.1") == [("INSERT", 1, False), ("UPDATE", 2, False)]
    assert len(records) == 6


async def test_a_checkpoint_that_a_successor_has_read_is_not_changed_by_its_predecessor(
    mongo: Mongo, client: Client
) -> None:
    """So the first checkpoint that the successor saves is never before a stored one."""
    deposed = Recording(mongo)
    await deposed.begin()
    task = asyncio.create_task(deposed.recorder.run(1))
    await deposed.at_rest(task)
    gate = Gate()
    gate.closed = True
    successor = Recording(mongo, checkpoints=SlowlyRead(mongo, gate))
    successors = asyncio.create_task(successor.recorder.run(2))
    await eventually(lambda: gate.held == 1)
    read = await deposed.checkpoints.load(deposed.name)
    write(client, mongo.name, 1)
    with pytest.raises(LeaseLost, match="fencing token 1, minimum is 2"):
        await deposed.at_rest(task)
    assert await deposed.checkpoints.load(deposed.name) == read
    gate.open()
    await successor.caught_up(successors)
    await stop_task(successors)
    records = await successor.versions()
    assert outline(records, "1.1") == [("INSERT", 1, False), ("UPDATE", 2, False)]
    assert len(records) == 6


async def test_a_recorder_with_an_older_fencing_token_is_refused_at_once(
    mongo: Mongo, client: Client
) -> None:
    """It is refused before it reads an event."""
    recording = Recording(mongo)
    await recording.begin()
    await recording.record(fencing_token=5)
    client[mongo.name].things.insert_one({"_id": 1})
    late = Recording(mongo)
    with pytest.raises(LeaseLost):
        await late.recorder.run(4)
    assert late.recorder.statistics()["batches"] == 0
    assert await late.versions() == []


@pytest.mark.parametrize("mongo", ["motor"], indirect=True)
async def test_a_recorder_with_a_new_lease_continues_from_the_archive(
    mongo: Mongo, client: Client
) -> None:
    """It does not use its cache: another one has written versions in between."""
    one, two = Recording(mongo), Recording(mongo)
    await one.begin()
    things = client[mongo.name].things
    things.insert_one({"_id": 1})
    await one.record(fencing_token=1)
    things.update_one({"_id": 1}, {"$set": {"n": 1}})
    await two.record(fencing_token=2)
    things.update_one({"_id": 1}, {"$set": {"n": 2}})
    records = await one.record(fencing_token=3)
    assert outline(records) == [("INSERT", 1, False), ("UPDATE", 2, False), ("UPDATE", 3, False)]
