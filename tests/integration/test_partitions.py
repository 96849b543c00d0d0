"""Partitions: the archive equals that of a single recorder, and one partition's progress never
counts for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from revstream.streams.archive.horizon import Horizons
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.source import Source
from revstream.streams.coordination.checkpoint import (
    Baseline,
    Checkpoint,
    Checkpoints,
    furthest_checkpoint,
)
from revstream.streams.coordination.partition import Partition, collection_partitions
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import Hub, publish_source
from revstream.streams.live.replay import BufferedEvents, LiveEvents, Replay, ReplayedRecords
from revstream.streams.maintenance.verification import Verification, VerificationResult
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession
from revstream.streams.recording.bootstrap.starting_checkpoint import (
    remove_former_checkpoints,
    starting_checkpoint,
)
from revstream.streams.recording.options import RecorderOptions
from tests.support.eventually import eventually
from tests.support.streams import BRISK, PartitionRecorders, Recording, outline, stop_task, token_at

Client = MongoClient[dict[str, Any]]
Things = Collection[dict[str, Any]]
pytestmark = pytest.mark.parametrize("mongo", ["motor"], indirect=True)

# Ids of each of three partitions.
IDS = (7, 9, 10, 2, 3, 4, 0, 1, 8)


async def verified(mongo: Mongo) -> VerificationResult:
    stored = await Checkpoints(mongo).load_collection("things")
    archive = Archive(mongo, "things")
    return await Verification(
        mongo, archive, furthest_checkpoint(stored), version_field="version", partitioned=True
    ).run()


async def assert_sound(mongo: Mongo, documents: int) -> None:
    found = await verified(mongo)
    assert found.findings == []
    assert found.documents == documents


def counted(things: Things, times: int, keys: tuple[int, ...] = IDS) -> None:
    """Write to each document a number of times; the document counts the writes."""
    for _ in range(times):
        for key in keys:
            things.update_one({"_id": key}, {"$inc": {"n": 1}}, upsert=True)


def assert_counted(records: list[dict[str, Any]], times: int) -> None:
    """Check that each write is recorded once and in order, and no document was snapshotted
    instead.
    """
    for key in IDS:
        mine = [each for each in records if each["doc"] == key]
        assert [each["full"]["n"] for each in mine] == list(range(1, times + 1)), key
        assert [each["v"] for each in mine] == list(range(1, times + 1)), key
    assert not any(each.get("gap") for each in records)
    assert len({each["_id"] for each in records}) == len(IDS) * times


async def test_each_partition_records_its_own_documents(mongo: Mongo, client: Client) -> None:
    """Skipped events leave no record, and all of its own are recorded."""
    divided = PartitionRecorders(mongo, 3)
    await divided.begin()
    counted(client[mongo.name].things, 4)
    assert_counted(await divided.record(), 4)
    statistics = [each.recorder.statistics() for each in divided.parts]
    assert [each["versions"] for each in statistics] == [12, 12, 12]
    await assert_sound(mongo, 9)


async def test_a_drop_and_a_rename_delete_each_document_once(mongo: Mongo, client: Client) -> None:
    """The partitions use distinct tokens; reinserted documents are recorded by their partition."""
    database = client[mongo.name]
    divided = PartitionRecorders(mongo, 3, options=RecorderOptions(chunk_documents=2))
    await divided.begin()
    async with divided.running() as task:
        counted(database.things, 1)
        database.things.drop()
        counted(database.things, 1)
        database.things.rename("elsewhere")
        await divided.at_rest(task)
        database.elsewhere.update_one({"_id": 7}, {"$set": {"n": 70}})
        database.elsewhere.rename("things")
        await divided.at_rest(task)
    records = await divided.parts[0].versions()
    for key in IDS:
        assert outline(records, key) == [
            ("INSERT", 1, False),
            ("DELETE", 2, False),
            ("INSERT", 3, False),
            ("DELETE", 4, False),
            ("BASELINE", 5, False),
        ]
    [back] = [each for each in records if each["doc"] == 7 and each["v"] == 5]
    assert back["full"]["n"] == 70
    await assert_sound(mongo, 9)


async def test_a_large_drop_continues_after_a_kill(mongo: Mongo, client: Client) -> None:
    """No number is used twice and no document is left out, even if it began undivided."""
    things = client[mongo.name].things
    recording = Recording(mongo)
    start = await recording.begin(baseline_done=True)
    things.insert_many([{"_id": n} for n in range(2500)])
    things.drop()
    whole = await recording.record()
    [place] = {each["_id"].partition("-")[0] for each in whole if each["op"] == "DELETE"}

    async def cut(first: int) -> None:
        """Remove all but the first records of the drop."""
        found = await mongo.find(
            "things.versions", {"_id": {"$gt": place}}, FindOptions(sort=[("_id", 1)])
        )
        gone = [each["doc"] for each in found[first:]]
        archive = client[mongo.name]["things.versions"]
        archive.delete_many({"op": "DELETE", "doc": {"$in": gone}})
        client[mongo.name]["revstream.checkpoints"].delete_many({})

    for left, count in ((700, 3), (1500, 3), (1200, 1), (1000, 4)):
        await cut(left)
        divided = PartitionRecorders(mongo, count)
        await divided.begin_at(start)
        records = await divided.record()
        assert len(records) == 5000
        assert {each["doc"] for each in records if each["op"] == "DELETE"} == set(range(2500))


async def test_the_initial_snapshot_has_partitions(mongo: Mongo, client: Client) -> None:
    """Each document gets one BASELINE from concurrent snapshots.

    Documents that change or vanish meanwhile have their versions in order.
    """
    things = client[mongo.name].things
    things.insert_many([{"_id": n, "n": 1} for n in range(100)])
    divided = PartitionRecorders(mongo, 3, options=RecorderOptions(chunk_documents=7))
    await divided.begin()
    async with divided.running() as task:
        things.update_many({"_id": {"$lt": 5}}, {"$inc": {"n": 1}})
        things.delete_many({"_id": {"$gte": 95}})
        await divided.at_rest(task)
    records = await divided.parts[0].versions()
    assert {outline(records, n)[0] for n in range(5, 95)} == {("BASELINE", 1, False)}
    assert sum(each["op"] == "BASELINE" and each["doc"] < 95 for each in records) == 95
    # Some may have been read after the position that all have reached.
    assert (await verified(mongo)).findings == []


async def test_the_number_of_partitions_may_change(mongo: Mongo, client: Client) -> None:
    """All writes are recorded once and in order with 1, 4, 2 and again 1 partitions.

    Old checkpoints are deleted, and no document is snapshotted again.
    """
    things = client[mongo.name].things
    await Recording(mongo).begin(baseline_done=True)
    start = (await Checkpoints(mongo).load_collection("things"))[Partition("things")].start
    for turn, count in enumerate((1, 4, 2, 1, 4), 1):
        counted(things, 1)
        divided = PartitionRecorders(mongo, count)
        async with divided.running(turn) as task:
            counted(things, 1)
            await divided.at_rest(task)
        stored = await Checkpoints(mongo).load_collection("things")
        assert set(stored) == set(collection_partitions("things", count))
        assert {(each.start, each.baseline.done) for each in stored.values()} == {(start, True)}
        assert_counted(await divided.parts[0].versions(), 2 * turn)
        await assert_sound(mongo, 9)


async def test_a_new_partition_begins_at_the_earliest_old_checkpoint(
    mongo: Mongo, client: Client
) -> None:
    """Two of four old ones are ahead: their records are skipped, and the rest is recorded.

    The initial snapshot is done only if all had done it.
    """
    things = client[mongo.name].things
    before = PartitionRecorders(mongo, 4)
    await before.begin(baseline_done=True)
    counted(things, 3)
    for each in before.parts[:2]:
        task = asyncio.create_task(each.recorder.run(1))
        await eventually(lambda each=each: each.recorder.statistics()["versions"])
        await stop_task(task)
    behind = furthest_checkpoint(await Checkpoints(mongo).load_collection("things"))
    assert behind is not None
    divided = PartitionRecorders(mongo, 2)
    assert_counted(await divided.record(), 3)
    statistics = [each.recorder.statistics() for each in divided.parts]
    assert sum(each["duplicates"] for each in statistics) > 0

    unfinished = {part: Checkpoint("1", "0") for part in collection_partitions("things", 2)}
    done = (await Checkpoints(mongo).load_collection("things"))[Partition("things", 0, 2)]
    part = furthest_checkpoint(unfinished | {Partition("things", 0, 2): done})
    assert part is not None
    assert (part.token, part.start, part.baseline.done) == ("1", done.start, False)


async def test_recorders_of_two_partition_counts_lose_and_repeat_nothing(
    mongo: Mongo, client: Client
) -> None:
    """One was suspended for longer than its lease: unique keys refuse its second records."""
    things = client[mongo.name].things
    await Recording(mongo).begin(baseline_done=True)
    whole, divided = Recording(mongo), PartitionRecorders(mongo, 3)
    turns = 0

    async def again_and_again(recorder: Any) -> None:
        nonlocal turns
        task = asyncio.current_task()
        assert task is not None
        # A recorder that is refused while it is cancelled raises the refusal.
        while not task.cancelling():
            turns += 1
            with pytest.raises(Exception, match=r"another process|refused"):
                await recorder.run(turns)

    recorders = [whole.recorder, *(each.recorder for each in divided.parts)]
    tasks = [asyncio.create_task(again_and_again(each)) for each in recorders]
    for _ in range(8):
        counted(things, 1)
        await asyncio.sleep(0)
    archive = client[mongo.name]["things.versions"]
    await eventually(lambda: archive.count_documents({}) == 72, within_s=15)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert_counted(await Recording(mongo).record(fencing_token=turns + 1), 8)


class Meeting(Checkpoints):
    """Checkpoints of two processes that read at the same time, before either removes any.

    Attributes:
        reads: Number of reads that wait for the other process; later ones do not.
    """

    def __init__(self, mongo: Mongo, barrier: asyncio.Barrier, reads: int) -> None:
        super().__init__(mongo)
        self._barrier, self._reads = barrier, reads

    async def load_collection(
        self, collection: str, writing: WriteSession | None = None
    ) -> dict[Partition, Checkpoint]:
        found = await super().load_collection(collection, writing)
        if self._reads:
            self._reads -= 1
            await self._barrier.wait()
        return found


@pytest.mark.parametrize("reads", [1, 2])
async def test_recorders_of_two_counts_do_not_remove_each_others_checkpoints(
    mongo: Mongo, reads: int
) -> None:
    """Remove one of two sets that have reached equally far, at the same time; one set stays."""
    whole, parts = Partition("things"), collection_partitions("things", 3)
    start = resume_tokens.token_from_time(await mongo.operation_time())
    for each in (whole, *parts):
        await Checkpoints(mongo).save(each.name, Checkpoint(start, start), fencing_token=0)
    barrier = asyncio.Barrier(2)
    removed = await asyncio.gather(
        *(
            remove_former_checkpoints(mongo, Meeting(mongo, barrier, reads), each)
            for each in (whole, parts[0])
        )
    )
    left = set(await Checkpoints(mongo).load_collection("things"))
    assert left in ({whole}, set(parts))
    assert sorted(map(len, removed)) == [0, 4 - len(left)]


async def test_a_partition_that_starts_after_the_others_recorded_begins_where_they_began(
    mongo: Mongo, client: Client
) -> None:
    """Record all versions of a partition whose first start follows versions of another one."""
    divided = PartitionRecorders(mongo, 3)
    start = await divided.parts[0].begin(baseline_done=True)
    counted(client[mongo.name].things, 4)
    first = divided.parts[0]
    task = asyncio.create_task(first.recorder.run(1))
    await eventually(lambda: first.recorder.statistics()["versions"] == 12)
    await stop_task(task)
    assert_counted(await divided.record(2), 4)
    stored = await Checkpoints(mongo).load_collection("things")
    assert {each.start for each in stored.values()} == {start.start}


async def test_a_partition_that_starts_after_the_others_shares_their_doubt(mongo: Mongo) -> None:
    """Start at the place where the oplog becomes valid, as the others: after it was imported."""
    stored = Checkpoint(token_at(9), token_at(2), Baseline(doubt=token_at(5)))
    certain = Checkpoint(token_at(9), token_at(2))
    await Checkpoints(mongo).save("recorder:things:1/3", stored, fencing_token=1)
    await Checkpoints(mongo).save("recorder:things:2/3", certain, fencing_token=1)
    found = await starting_checkpoint(mongo, Checkpoints(mongo), Partition("things", 2, 3))
    assert found == Checkpoint(token_at(5), token_at(2), Baseline(doubt=token_at(5)))


class Counted(Checkpoints):
    asked = 0

    async def load_collection(
        self, collection: str, writing: WriteSession | None = None
    ) -> dict[Partition, Checkpoint]:
        self.asked += 1
        return await super().load_collection(collection, writing)


@asynccontextmanager
async def following(mongo: Mongo, hub: Hub) -> AsyncIterator[None]:
    """Feed the hub from now on."""
    hub.restart(resume_tokens.token_from_time(await mongo.operation_time()))
    source = Source(mongo, ["things"], before_images=True, options=BRISK)
    task = asyncio.create_task(publish_source(source, hub))
    try:
        yield
    finally:
        await stop_task(task)


async def test_reads_of_history_wait_for_the_slowest_partition(
    mongo: Mongo, client: Client
) -> None:
    """The collection's progress is that of the slowest one.

    A replay skips nothing that is recorded later, and a read as of now waits.
    """
    # Before the initial snapshot.
    things = client[mongo.name].create_collection("things")
    divided = PartitionRecorders(mongo, 3)
    start = await divided.begin(baseline_done=True)
    checkpoints = Counted(mongo)
    progress = ArchiveProgress(checkpoints, divided.hub, limit_s=15)
    archive = Archive(mongo, "things")
    received: list[str] = []

    async def receive() -> None:
        replay = Replay(archive, divided.hub, progress, Horizons(mongo), page=4, quiet_s=0.01)
        async with aclosing(replay.follow(start.token)) as parts:
            async for part in parts:
                if isinstance(part, ReplayedRecords):
                    received.extend(each["_id"] for each in part.records)
                elif isinstance(part, BufferedEvents | LiveEvents):
                    received.extend(each.token for each in part.events)

    async with following(mongo, divided.hub):
        ahead = [asyncio.create_task(each.recorder.run(1)) for each in divided.parts[1:]]
        counted(things, 4)
        now = resume_tokens.token_from_time(await mongo.operation_time())
        await divided.hub.wait_until(now)
        count = client[mongo.name]["things.versions"].count_documents
        await eventually(lambda: count({}) == 24)
        receiver = asyncio.create_task(receive())
        await eventually(lambda: checkpoints.asked > 5)
        assert received == []
        assert await progress.position("things") <= start.token
        with pytest.raises(ArchiveBehind):
            await divided.progress.wait("things", now, limit_s=0.05)
        # Unrecorded versions are not taken for missing.
        assert (await verified(mongo)).findings == []
        assert divided.progress.lag_s(divided.partitions[0]) > 0
        assert divided.progress.lag_s(divided.partitions[1]) == 0

        ahead.append(asyncio.create_task(divided.parts[0].recorder.run(1)))
        await progress.wait("things", now)
        counted(things, 1)
        # Some events are sent before their versions are recorded.
        await divided.progress.wait(
            "things", resume_tokens.token_from_time(await mongo.operation_time())
        )
        await eventually(lambda: len(received) >= count({}))
        for task in [receiver, *ahead]:
            await stop_task(task)
    records = await divided.parts[0].versions()
    assert received == [each["_id"] for each in records]
    assert_counted(records, 5)


async def test_idle_partitions_delay_no_read(mongo: Mongo, client: Client) -> None:
    """They rarely save checkpoints, but another process sees that no event is theirs."""
    divided = PartitionRecorders(mongo, 3, options=RecorderOptions(idle_save_s=3600))
    hub = Hub(["things"], position=resume_tokens.token_from_time(await mongo.operation_time()))
    elsewhere = ArchiveProgress(Checkpoints(mongo), hub, limit_s=5)
    async with following(mongo, hub):
        await divided.begin(baseline_done=True)
        async with divided.running():
            for _ in range(3):
                counted(client[mongo.name].things, 2, keys=(7, 2))
                await elsewhere.wait(
                    "things", resume_tokens.token_from_time(await mongo.operation_time())
                )
            stored = await Checkpoints(mongo).load_collection("things")
            assert min(each.token for each in stored.values()) < await elsewhere.position("things")


async def test_a_subscriber_during_a_drop_gets_the_rest_of_all_partitions(
    mongo: Mongo, client: Client
) -> None:
    """Events are in the order of the archive, from any token on."""
    things = client[mongo.name].things
    divided = PartitionRecorders(mongo, 3)
    await divided.begin(baseline_done=True)
    async with following(mongo, divided.hub), divided.running() as task:
        counted(things, 1)
        things.drop()
        counted(things, 1)
        await divided.at_rest(task)
        await divided.hub.wait_until(resume_tokens.token_from_time(await mongo.operation_time()))
        records = await divided.parts[0].versions()
        dropped = [each["_id"] for each in records if each["op"] == "DELETE"]
        assert len(dropped) == 9
        replay = Replay(
            Archive(mongo, "things"), divided.hub, divided.progress, Horizons(mongo), page=2
        )
        for place in (dropped[0], dropped[4], dropped[8]):
            received: list[str] = []
            expected = [each["_id"] for each in records if each["_id"] > place]
            async with aclosing(replay.follow(place)) as parts:
                async for part in parts:
                    if isinstance(part, ReplayedRecords):
                        received += [each["_id"] for each in part.records]
                    elif isinstance(part, BufferedEvents | LiveEvents):
                        received += [each.token for each in part.events]
                    if len(received) >= len(expected):
                        break
            assert received == expected
