"""A copy of a database is another deployment: its archive is mended at the start, and tokens of its
source mean nothing to it."""

from __future__ import annotations

import random
import threading
from typing import Any
from uuid import uuid4

import pytest
from bson import Timestamp
from pymongo import MongoClient
from pymongo.database import Database

from revstream.gql.cli.verify import verify
from revstream.gql.runtime.configuration.settings import Settings
from revstream.model.compiler.loader import read_model
from revstream.streams.coordination.checkpoint import Baseline, Checkpoints
from revstream.streams.coordination.deployment import COLLECTION, deployment_tag
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import Unsuitable
from revstream.streams.mongo.database import Mongo
from tests.support.beginning import begin_now
from tests.support.editing import Failed, Shop, open_shop
from tests.support.eventually import eventually
from tests.support.exhaustive import representatives

Row = dict[str, Any]
Client = MongoClient[Row]
MODEL = read_model("""
type Thing @collection(name: "things") { id: Int! n: Int }
""")
KEYS = 40
AS_OF = "query($t: ResumeToken!) { thingsAsOf(asOf: {token: $t}) { totalCount } }"


class Writer(threading.Thread):
    """A program that writes the source, until it is stopped."""

    def __init__(self, database: Database[Row], seed: int) -> None:
        super().__init__()
        self.writes = 0
        self._things = database.things
        self._dice = random.Random(seed)
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.is_set():
            key = {"_id": self._dice.randrange(KEYS)}
            if self._dice.random() < 0.1:
                self._things.delete_one(key)
            else:
                change = {"$set": {"n": self.writes}, "$inc": {"version": 1}}
                self._things.update_one(key, change, upsert=True)
            self.writes += 1

    def stop(self) -> None:
        self._stopping.set()
        self.join()


def copied(source: Database[Row], target: Database[Row], dice: random.Random) -> None:
    """Copy collection by collection, in any order, each in the order of its ids."""
    names = source.list_collection_names()
    dice.shuffle(names)
    for name in names:
        target.drop_collection(name)
        for document in source[name].find(batch_size=10).sort("_id"):
            target[name].insert_one(document)


async def at_rest(shop: Shop) -> None:
    """Return once the present is read, and all that anybody has written is recorded."""
    await eventually(lambda: shop.gateway.recorders[0].statistics()["baseline_done"])
    await shop.recorded()


def last_contents(archive: Any) -> dict[Any, Row]:
    """By document what the last versions are; those that are deletions are left out."""
    found = {each["doc"]: each["full"] for each in archive.find().sort("_id")}
    return {key: full for key, full in found.items() if full is not None}


async def faultless(uri: str, name: str) -> bool:
    """Return whether `verify` finds nothing wrong, of an archive that has come so far."""
    found = await verify(Settings(), MODEL, uri, name, lambda *_: None)
    return not any(each.findings for each in found.values())


@pytest.mark.parametrize("seed", representatives(range(10), 0, 1, 2))
async def test_a_copy_that_is_taken_under_writes_is_mended_at_the_start(
    mongo_uri: str, client: Client, seed: int
) -> None:
    """At ten different moments: what the archive has and the present are one, where nothing differs
    no version was made, what is written is recorded, and the source's tokens are refused."""
    dice = random.Random(seed)
    source, target = (client[f"copied_{uuid4().hex[:8]}"] for _ in range(2))
    # The copy has the source's lease, which is waited for.
    settings = Settings(lease_s=1)
    try:
        async with open_shop(client, mongo_uri, source.name, settings, model=MODEL) as shop:
            writer = Writer(source, seed)
            writer.start()
            moment = dice.randrange(20, 400)
            await eventually(lambda: writer.writes > moment)
            copied(source, target, dice)
            writer.stop()
            token = (await shop.ask("{ resumeToken }"))["resumeToken"]
        archive = target["things.versions"]
        before = {each["_id"] for each in archive.find()}
        lasts = last_contents(archive)
        present = {each["_id"]: each for each in target.things.find()}
        async with open_shop(
            client, mongo_uri, target.name, settings, model=MODEL, begun=True
        ) as shop:
            await at_rest(shop)
            made = [each for each in archive.find() if each["_id"] not in before]
            for record in made:
                assert record["full"] != lasts.get(record["doc"]), record
            expected = {key for key in {*lasts, *present} if lasts.get(key) != present.get(key)}
            assert {each["doc"] for each in made} == expected
            assert not any(each["op"] == "INSERT" for each in made)
            target.things.update_one({"_id": 0}, {"$set": {"n": -1}}, upsert=True)
            await at_rest(shop)
            [newest] = archive.find({"doc": 0}).sort("v", -1).limit(1)
            assert newest["full"]["n"] == -1
            with pytest.raises(Failed) as refused:
                await shop.ask(AS_OF, t=token)
            assert refused.value.code == "RESUME_TOKEN_INVALID"
            assert await faultless(mongo_uri, target.name)
    finally:
        for each in (source, target):
            client.drop_database(each.name)


async def test_a_database_is_no_copy_of_itself(mongo: Mongo) -> None:
    """Neither at a later start, nor where the marks are not stored yet, or may not all be read."""
    tag = await deployment_tag(mongo)
    await mongo.find_one_and_update(
        COLLECTION, {}, {"$unset": {"replicaSet": "", "collection": ""}}
    )
    assert await deployment_tag(mongo) == tag
    assert await deployment_tag(mongo) == tag


@pytest.mark.parametrize("mongo", ["motor"], indirect=True)
@pytest.mark.parametrize("mark", ["replicaSet", "collection"])
async def test_another_replica_set_or_collection_is_another_deployment(
    mongo: Mongo, mark: str
) -> None:
    """Files that were moved have another set's id, dumps another collection; once is enough."""
    tag = await deployment_tag(mongo)
    await mongo.find_one_and_update(COLLECTION, {}, {"$set": {mark: "of the source"}})
    another = await deployment_tag(mongo)
    assert another != tag
    assert await deployment_tag(mongo) == another


@pytest.mark.parametrize("mongo", ["motor"], indirect=True)
async def test_where_the_replica_set_may_not_be_asked_the_collection_tells(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found to be a copy without the right to read the set's configuration."""
    ask = mongo.command

    async def forbidden(command: Any, **more: Any) -> Any:
        if "replSetGetConfig" in command:
            raise Unsuitable("MongoDB does not permit this")
        return await ask(command, **more)

    tag = await deployment_tag(mongo)
    monkeypatch.setattr(mongo, "command", forbidden)
    assert await deployment_tag(mongo) == tag
    await mongo.find_one_and_update(COLLECTION, {}, {"$set": {"collection": "of the source"}})
    assert await deployment_tag(mongo) != tag


@pytest.mark.parametrize("mongo", ["motor"], indirect=True)
async def test_a_copy_begins_only_behind_its_versions(
    mongo: Mongo, mongo_uri: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source's clock may be ahead: what is recorded now would stand before them."""
    await deployment_tag(mongo)
    await begin_now(mongo_uri, mongo.name, "things")
    now = await mongo.operation_time()
    later = resume_tokens.time_prefix(Timestamp(now.time + 3600, 1))
    client[mongo.name]["things.versions"].insert_one({"_id": later})
    await mongo.find_one_and_update(COLLECTION, {}, {"$set": {"collection": "of the source"}})
    monkeypatch.setattr("revstream.streams.coordination.deployment._CLOCK_S", 0)
    with pytest.raises(Unsuitable, match="is a copy whose newest version is of"):
        await deployment_tag(mongo)
    client[mongo.name]["things.versions"].drop()
    await deployment_tag(mongo)
    stored = await Checkpoints(mongo).load("recorder:things")
    assert stored is not None
    assert stored.baseline == Baseline(doubt=stored.token)
