"""Attribution of deletions: stored by the deleting transaction, and found by the recorder at any
later time.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.streams.coordination.checkpoint import Checkpoint, Checkpoints
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.transactions import WriteSession, write
from revstream.streams.recording.options import RecorderOptions
from revstream.streams.recording.versions.delete_attribution import COLLECTION, DeleteAttributions
from tests.integration.test_recorder_crashes import Fuse, Killed, crashing, forgotten
from tests.support.streams import Recording

Client = MongoClient[dict[str, Any]]
one_driver = pytest.mark.parametrize("mongo", ["motor"], indirect=True)

SMALL = RecorderOptions(chunk_documents=2, cache_bytes=2000)


@pytest.fixture(autouse=True)
async def start(mongo: Mongo) -> Checkpoint:
    """Start history with the test; no recorder runs yet."""
    await DeleteAttributions(mongo).prepare()
    await mongo.command({"create": "things", "changeStreamPreAndPostImages": {"enabled": True}})
    return await Recording(mongo).begin()


async def delete(mongo: Mongo, key: Any, by: str, why: str | None = None) -> None:
    """Delete as a mutation does."""
    change = {"id": f"{by}-{key}", "by": by, **({} if why is None else {"why": why})}

    async def work(writing: WriteSession) -> None:
        assert await writing.remove("things", {"_id": key}) is not None
        await DeleteAttributions.add(writing, "things", key, change)

    await write(mongo, work, transaction=True)


async def insert(mongo: Mongo, key: Any) -> None:
    async def work(writing: WriteSession) -> None:
        await writing.insert("things", {"_id": key})

    await write(mongo, work)


def by(records: list[dict[str, Any]], key: Any = None) -> list[tuple[str, str | None]]:
    """Return (operation, author) of each version."""
    return [(each["op"], each["by"]) for each in records if key is None or each["doc"] == key]


async def test_an_attributed_delete_is_recorded_with_its_author(mongo: Mongo) -> None:
    """Its comment is recorded, too, under the id by which a repeated mutation finds it."""
    recording = Recording(mongo)
    async with recording.running() as task:
        await insert(mongo, 1)
        await recording.caught_up(task)
        await delete(mongo, 1, "ann", "broken")
        await recording.at_rest(task)
    [_, record] = await recording.versions()
    assert (record["op"], record["by"], record["why"]) == ("DELETE", "ann", "broken")
    assert record["change"] == {"id": "ann-1", "by": "ann", "why": "broken"}


async def test_the_author_is_found_by_a_later_recorder(mongo: Mongo, client: Client) -> None:
    """The batch may contain many other events."""
    for key in range(5):
        await insert(mongo, key)
    client[mongo.name]["things"].delete_one({"_id": 3})
    await delete(mongo, 1, "ann")
    await delete(mongo, 4, "bob")
    records = await Recording(mongo).record()
    deleted = {each["doc"]: each["by"] for each in records if each["op"] == "DELETE"}
    assert deleted == {1: "ann", 3: None, 4: "bob"}


async def test_each_delete_of_one_document_by_one_session_has_its_own_author(mongo: Mongo) -> None:
    """The driver reuses sessions: the last transaction before the event counts."""
    for author in ("ann", "bob", "carol"):
        await insert(mongo, 1)
        await delete(mongo, 1, author)
    noted = await mongo.find(COLLECTION, {})
    assert len({bytes(each["session"]) for each in noted}) == 1, "or it shows nothing"
    records = await Recording(mongo).record()
    assert by(records) == [
        ("INSERT", None),
        ("DELETE", "ann"),
        ("INSERT", None),
        ("DELETE", "bob"),
        ("INSERT", None),
        ("DELETE", "carol"),
    ]


@pytest.mark.parametrize("in_transaction", [False, True], ids=["alone", "transaction"])
async def test_a_delete_by_another_program_in_between_has_no_author(
    mongo: Mongo, client: Client, in_transaction: bool
) -> None:
    """It gets neither the earlier nor the later author."""
    things = client[mongo.name]["things"]
    await insert(mongo, 1)
    await delete(mongo, 1, "ann")
    things.insert_one({"_id": 1})
    with client.start_session() as session:
        if in_transaction:
            with session.start_transaction():
                things.delete_one({"_id": 1}, session=session)
        else:
            things.delete_one({"_id": 1}, session=session)
    await insert(mongo, 1)
    await delete(mongo, 1, "bob")
    records = await Recording(mongo).record()
    assert [who for operation, who in by(records) if operation == "DELETE"] == ["ann", None, "bob"]


async def test_a_delete_without_author_by_the_same_session_has_none(mongo: Mongo) -> None:
    """A mutation without attribution deletes without a transaction."""

    async def remove(writing: WriteSession) -> None:
        assert await writing.remove("things", {"_id": 1}) is not None

    for author in ("ann", None):
        await insert(mongo, 1)
        if author is None:
            await write(mongo, remove)
        else:
            await delete(mongo, 1, author)
    records = await Recording(mongo).record()
    assert [who for operation, who in by(records) if operation == "DELETE"] == ["ann", None]


@one_driver
async def test_equal_ids_of_two_collections_are_two_documents(mongo: Mongo) -> None:
    """The ids `true` and 1 are two documents, too."""

    async def work(writing: WriteSession) -> None:
        for collection, key in (("things", 1), ("others", 1), ("things", True)):
            await writing.insert(collection, {"_id": key})

    async def remove(writing: WriteSession) -> None:
        for collection, key, author in (
            ("things", 1, "ann"),
            ("others", 1, "bob"),
            ("things", True, "carol"),
        ):
            assert await writing.remove(collection, {"_id": key}) is not None
            change: Mapping[str, Any] = {"id": author, "by": author}
            await DeleteAttributions.add(writing, collection, key, change)

    await write(mongo, work, transaction=True)
    await write(mongo, remove, transaction=True)
    records = await Recording(mongo).record()
    deleted = [(each["doc"], each["by"]) for each in records if each["op"] == "DELETE"]
    assert deleted == [(1, "ann"), (True, "carol")]
    assert [type(key) for key, _ in deleted] == [int, bool]


@one_driver
async def test_an_aborted_deletion_leaves_no_author(mongo: Mongo) -> None:
    """Deletion and author are one transaction: both are stored or neither."""

    async def work(writing: WriteSession) -> None:
        await writing.remove("things", {"_id": 1})
        await DeleteAttributions.add(writing, "things", 1, {"id": "x", "by": "ann"})
        raise Killed

    await insert(mongo, 1)
    with pytest.raises(Killed):
        await write(mongo, work, transaction=True)
    assert await mongo.find(COLLECTION, {}) == []
    assert by(await Recording(mongo).record()) == [("INSERT", None)]


@one_driver
async def test_a_recorder_killed_at_any_step_finds_the_same_authors(
    mongo: Mongo, client: Client, start: Checkpoint
) -> None:
    """The records and tokens are the same, whatever the last step was and however late the next
    recorder runs.
    """
    for key in (1, 2):
        await insert(mongo, key)
        await delete(mongo, key, "ann", "broken")
        await insert(mongo, key)
    client[mongo.name]["things"].delete_one({"_id": 1})
    await delete(mongo, 2, "bob")
    fuse = Fuse(10**9)
    expected = await crashing(mongo, fuse).record()
    steps = 10**9 - fuse.left
    assert [each["by"] for each in expected if each["op"] == "DELETE"] == [
        "ann",
        "ann",
        None,
        "bob",
    ]
    for last_step in range(1, steps + 1):
        await forgotten(mongo, start)
        fuse = Fuse(last_step)
        with suppress(Killed):
            await crashing(mongo, fuse).record()
        records = await Recording(mongo, options=SMALL).record(fencing_token=2)
        assert records == expected, f"after step {last_step}, {fuse.at}"


@one_driver
async def test_a_recorder_that_starts_again_records_the_same(
    mongo: Mongo, start: Checkpoint
) -> None:
    """It has an old checkpoint and a full archive: its versions collide with equal ones."""
    await insert(mongo, 1)
    await delete(mongo, 1, "ann")
    expected = await Recording(mongo).record()
    await mongo.command({"delete": "revstream.checkpoints", "deletes": [{"q": {}, "limit": 0}]})
    await Checkpoints(mongo).save("recorder:things", start, fencing_token=0)
    assert await Recording(mongo).record(fencing_token=2) == expected
