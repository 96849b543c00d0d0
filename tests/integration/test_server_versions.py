"""A server with resume tokens of MongoDB 7 and 8, and changes between the two forms: nothing is
recorded or delivered twice, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from pymongo import MongoClient

from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.changefeed.source import Source
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.core import resume_tokens
from revstream.streams.mongo.database import Mongo
from tests.support.bare_mongod import BareMongod, short_lived_replica_set
from tests.support.streams import BRISK, Recording, outline

Client = MongoClient[dict[str, Any]]

KEYS: list[Any] = [
    *(1, -7, 0, 2.5, -0.1, Int64(2**40), Decimal128("1.5"), True, None, MinKey(), MaxKey()),
    *("text", "", "null\0inside", "ä", "x" * 3000, ObjectId(), Timestamp(5, 6), Binary(b"\0\xff")),
    *(datetime(2024, 1, 1, tzinfo=UTC), uuid4().hex),
    *({}, {"a": 1, "b": {"c": ["x", None]}}, {"documentKey": {"operationType": "insert"}}),
]


@pytest.fixture(scope="module")
def server() -> Iterator[BareMongod]:
    """Start a MongoDB that creates the requested form of tokens."""
    with short_lived_replica_set("--setParameter", "enableTestCommands=1") as server:
        yield server


@pytest.fixture(scope="module")
def client(server: BareMongod) -> Iterator[Client]:
    with Client(server.uri, uuidRepresentation="standard") as client:
        yield client


@pytest.fixture
async def mongo(server: BareMongod) -> AsyncIterator[Mongo]:
    async with Mongo.connect(server.uri, f"versions_{uuid4().hex[:8]}") as mongo:
        # The option is added to the driver's command.
        wires, mongo.wires = mongo.wires, None
        yield mongo
        mongo.wires = wires


def upgraded(mongo: Mongo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server create the tokens of 7.0 from now on."""
    rounds = mongo._rounds

    def asked(where: str, command: dict[str, Any], *args: Any, **more: Any) -> Any:
        newer = {"$_generateV2ResumeTokens": True} if where == "$cmd.aggregate" else {}
        return rounds(where, command | newer, *args, **more)

    monkeypatch.setattr(mongo, "_rounds", asked)


def write_everything(client: Client, name: str) -> None:
    """Write events of all kinds, of documents with ids of all types."""
    database = client[name]
    for key in KEYS:
        database.things.insert_one({"_id": key})
    database.things.update_one({"_id": 1}, {"$set": {"n": 1}})
    database.things.replace_one({"_id": "text"}, {"n": 1})
    database.things.delete_one({"_id": 2.5})
    with client.start_session() as session, session.start_transaction():
        for n in range(300):
            database.things.insert_one({"_id": f"t{n}"}, session=session)
    database.things.rename("people")
    database.people.rename("things")
    database.things.drop()
    database.things.insert_one({"_id": 5})
    client.drop_database(name)
    database.things.insert_one({"_id": 6})


async def read(mongo: Mongo, after: str) -> list[ChangeEvent]:
    """Return every event after a token, up to now."""
    until = resume_tokens.token_from_time(await mongo.operation_time())
    found: list[ChangeEvent] = []
    source = Source(mongo, ["things"], before_images=False, options=BRISK)
    async with aclosing(source.batches(after)) as batches:
        async for batch in batches:
            found += batch.events
            if batch.position >= until:
                return found
    raise AssertionError("the stream ended")


async def test_events_have_the_same_tokens_on_both_servers(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for any operation, and for ids of any type and length."""
    begin = resume_tokens.token_from_time(await mongo.operation_time())
    write_everything(client, mongo.name)
    before = await read(mongo, begin)
    upgraded(mongo, monkeypatch)
    data = []
    decode = resume_tokens.token_from_stream
    monkeypatch.setattr(
        resume_tokens, "token_from_stream", lambda each: data.append(each) or decode(each)
    )
    after = await read(mongo, begin)
    assert any(each.startswith("2B04", 18) for each in data)
    assert [each.token for each in after] == [each.token for each in before]
    assert [each.operation for each in after] == [each.operation for each in before]
    assert len({each.token for each in after}) == len(after)


async def test_a_stream_resumes_on_the_other_server_within_a_transaction(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event is followed by exactly the later ones, after an upgrade and a downgrade."""
    begin = resume_tokens.token_from_time(await mongo.operation_time())
    client[mongo.name].create_collection("things")
    with client.start_session() as session, session.start_transaction():
        for n in range(5):
            client[mongo.name].things.insert_one({"_id": n}, session=session)
    old = await read(mongo, begin)
    resumed = {}
    for newer in (True, False):
        with monkeypatch.context() as patch:
            if newer:
                upgraded(mongo, patch)
            resumed[newer] = [await read(mongo, each.token) for each in old]
    for found in resumed.values():
        for n, rest in enumerate(found):
            assert [each.key for each in rest] == list(range(n + 1, 5))


async def test_an_upgrade_and_a_downgrade_of_the_server_lose_and_repeat_nothing(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorder reads the last event again on the other server, and recognizes it."""
    recording = Recording(mongo)
    begun = await recording.begin(baseline_done=True)
    things = client[mongo.name].things
    things.insert_one({"_id": 1, "n": 0})
    for turn, newer in enumerate((False, True, False), 1):
        things.update_one({"_id": 1}, {"$set": {"n": turn}})
        with monkeypatch.context() as patch:
            if newer:
                upgraded(mongo, patch)
            # As after a crash between the archive and the checkpoint.
            await recording.checkpoints.save(recording.name, begun, fencing_token=2 * turn - 1)
            records = await Recording(mongo).record(fencing_token=2 * turn)
    assert outline(records) == [("INSERT", 1, False), *(("UPDATE", n, False) for n in (2, 3, 4))]


async def test_a_token_stored_on_the_newer_server_is_resumed(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier releases stored the server's own tokens, within a transaction, too."""
    upgraded(mongo, monkeypatch)
    begin = resume_tokens.token_from_time(await mongo.operation_time())
    client[mongo.name].create_collection("things")
    with client.start_session() as session, session.start_transaction():
        for n in range(4):
            client[mongo.name].things.insert_one({"_id": n}, session=session)
    data: list[str] = []
    decode = resume_tokens.token_from_stream
    with monkeypatch.context() as patch:
        patch.setattr(
            resume_tokens, "token_from_stream", lambda each: data.append(each) or decode(each)
        )
        await read(mongo, begin)
    theirs = sorted({each[2:] for each in data if each.startswith("2C0100", 22)})
    assert len(theirs) == 4
    recording = Recording(mongo)
    begun = await recording.begin(baseline_done=True)
    await mongo.find_one_and_update(
        "revstream.checkpoints",
        {"_id": recording.name},
        {"$set": {"token": theirs[1], "start": theirs[0]}},
    )
    stored = await Checkpoints(mongo).load(recording.name)
    assert stored is not None
    assert (stored.token, begun.token > stored.token) == (decode(f"82{theirs[1]}"), True)
    assert [each["doc"] for each in await recording.record()] == [2, 3]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_records_with_tokens_of_the_newer_server_are_read_between_canonical_tokens(
    mongo: Mongo, limit: int
) -> None:
    """Each record of an earlier release is read once, from and up to each write of a
    transaction.
    """

    def token(version: int, time: int, index: int) -> str:
        told = "463C6F7065726174696F6E54797065003C696E7365727400"
        told += "46646F63756D656E744B657900461E5F6964002B02000004"
        key = "461E5F6964002B020004" if version == 1 else told
        at = resume_tokens.time_prefix(Timestamp(time, 1))
        uuid = "5A1004" + "AB" * 16
        return f"{at}2B0{2 * version}2C01002B{index:02X}6E{uuid}{key}"

    archive = Archive(mongo, "things")
    stored = [token(2, time, index) for time in (5, 6, 7) for index in (2, 4, 6)]
    await archive.insert([{"_id": each, "doc": each, "v": 1} for each in stored])
    canonical = [token(1, time, index) for time in (5, 6, 7) for index in (2, 4, 6)]
    assert [resume_tokens.canonical_token(each) for each in stored] == canonical
    places = [resume_tokens.BEGINNING, *canonical, resume_tokens.token_from_time(Timestamp(6, 1))]
    for after in places:
        for upto in (each for each in places if each >= after):
            found: list[str] = []
            position = after
            while page := await archive.scan(position, upto, limit=limit):
                found += [each["_id"] for each in page]
                position = resume_tokens.canonical_token(found[-1])
            assert [resume_tokens.canonical_token(each) for each in found] == [
                each for each in canonical if after < each <= upto
            ]
