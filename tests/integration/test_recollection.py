"""What a recorder knows of documents before they are written again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from pymongo import MongoClient

from streams.archive import Archive
from streams.events import identity
from streams.memory import LastVersions
from streams.mongo import Mongo
from streams.partitions import partitions_of
from streams.recollection import Recollection
from streams.versions import Last
from tests.support.eventually import eventually
from tests.support.streams import Recording, told

Client = MongoClient[dict[str, Any]]
pytestmark = pytest.mark.parametrize("mongo", ["motor"], indirect=True)


class Asked(Archive):
    """Notes of which documents the last versions are read."""

    def __init__(self, mongo: Mongo) -> None:
        super().__init__(mongo, "things")
        self.asked: list[Any] = []

    async def last(self, keys: Iterable[Any]) -> dict[Any, Last]:
        wanted = list(keys)
        self.asked += wanted
        return await super().last(wanted)


@pytest.fixture
async def archive(mongo: Mongo, client: Client) -> Asked:
    """Of ten documents: 1 to 9 were written once more, backwards, 10 was deleted behind them."""
    await mongo.command({"create": "things", "changeStreamPreAndPostImages": {"enabled": True}})
    recording = Recording(mongo)
    await recording.begin()
    things = client[mongo.name].things
    things.insert_many([{"_id": n, "text": "x" * 100} for n in range(1, 11)])
    for n in range(9, 0, -1):
        things.update_one({"_id": n}, {"$set": {"n": n}})
    things.delete_one({"_id": 10})
    await recording.record()
    return Asked(mongo)


async def test_after_a_start_nothing_is_asked_of_what_was_written_lately(
    archive: Asked, mongo: Mongo, client: Client
) -> None:
    """Their next versions are drafted from what was found out while nothing happened."""
    again = Recording(mongo, archive=archive)

    async with again.running(2) as task:
        await again.caught_up(task)
        await eventually(lambda: len(archive.asked) >= 10)
        archive.asked.clear()
        client[mongo.name].things.update_many({}, {"$set": {"again": True}})
        client[mongo.name].things.insert_one({"_id": 10})
        await again.caught_up(task)
    assert archive.asked == []
    records = await again.versions()
    for n in range(1, 10):
        assert told(records, n)[1:] == [("UPDATE", 2, False), ("UPDATE", 3, False)]
    assert told(records, 10)[1:] == [("DELETE", 2, False), ("INSERT", 3, False)]


async def test_the_newest_are_looked_at_first_and_all_that_is_known_is_so(
    archive: Asked,
) -> None:
    """Each step a page further back, until there are no more; then nothing is read."""
    lasts = LastVersions(archive, capacity_bytes=10**6)
    recollection = Recollection(archive, lasts, *partitions_of("things", 1), page=4)
    steps = []
    for _ in range(7):
        await recollection.step()
        steps.append(list(archive.asked))
        archive.asked.clear()
    # Of twenty records: ten that were written last, then those that they replaced.
    assert steps == [[10, 1, 2, 3], [4, 5, 6, 7], [8, 9], [], [], [], []]
    found = await archive.last(range(1, 11))
    assert [lasts.get(n) for n in range(1, 11)] == [found[identity(n)] for n in range(1, 11)]


async def test_half_of_the_memory_is_left_for_what_is_written(archive: Asked) -> None:
    """A large archive does not push out what it has just brought in."""
    found = (await archive.last([1]))[identity(1)]
    archive.asked.clear()
    lasts = LastVersions(archive, capacity_bytes=10 * found.size_bytes)
    recollection = Recollection(archive, lasts, *partitions_of("things", 1), page=2)
    for _ in range(10):
        await recollection.step()
    assert lasts.half_full
    assert not lasts.crowded
    assert archive.asked == [10, 1, 2, 3, 4, 5]


async def test_so_many_records_are_looked_at_and_no_more(archive: Asked) -> None:
    """Where few documents have all the versions, there is little to find far back."""
    lasts = LastVersions(archive, capacity_bytes=10**6)
    recollection = Recollection(archive, lasts, *partitions_of("things", 1), page=3, most=6)
    for _ in range(5):
        await recollection.step()
    assert archive.asked == [10, 1, 2, 3, 4, 5]


async def test_each_partition_knows_its_own(archive: Asked) -> None:
    """The others' documents are passed over, and read by nobody twice."""
    asked = []
    for partition in partitions_of("things", 3):
        lasts = LastVersions(archive, capacity_bytes=10**6)
        recollection = Recollection(archive, lasts, partition, page=5)
        for _ in range(5):
            await recollection.step()
        assert all(map(partition.holds, archive.asked))
        asked += archive.asked
        archive.asked.clear()
    assert sorted(asked) == list(range(1, 11))


async def test_who_begins_anew_looks_again(archive: Asked) -> None:
    """Another process may have recorded in between."""
    lasts = LastVersions(archive, capacity_bytes=10**6)
    recollection = Recollection(archive, lasts, *partitions_of("things", 1))
    await recollection.step()
    lasts.clear()
    recollection.begin_anew()
    await recollection.step()
    assert archive.asked == [10, *range(1, 10)] * 2
