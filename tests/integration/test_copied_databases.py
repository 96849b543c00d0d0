"""A copy of a database is another deployment: its archive is repaired at the start, and tokens of
its source are refused.
"""

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
    """A program that writes to the source until it is stopped."""

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
    """Copy the collections in random order, each in the order of its ids."""
    names = source.list_collection_names()
    dice.shuffle(names)
    for name in names:
        target.drop_collection(name)
        for document in source[name].find(batch_size=10).sort("_id"):
            target[name].insert_one(document)


async def at_rest(shop: Shop) -> None:
    """Wait until the initial snapshot and all writes so far are recorded."""
    await eventually(lambda: shop.gateway.recorders[0].statistics()["baseline_done"])
    await shop.recorded()


def last_contents(archive: Any) -> dict[Any, Row]:
    """Return the content of each document's last version, without deletions."""
    found = {each["doc"]: each["full"] for each in archive.find().sort("_id")}
    return {key: full for key, full in found.items() if full is not None}


async def faultless(uri: str, name: str) -> bool:
    """Return whether `verify` has no findings."""
    found = await verify(Settings(), MODEL, uri, name, lambda *_: None)
    return not any(each.findings for each in found.values())


@pytest.mark.parametrize("seed", representatives(range(10), 0, 1, 2))
async def test_a_copy_taken_under_writes_is_repaired_at_the_start(
    mongo_uri: str, client: Client, seed: int
) -> None:
    """Copies are taken at ten different times.

    Archive and current documents agree, unchanged documents have no new version, new writes are
    recorded, and tokens of the source are refused.
    """
    dice = random.Random(seed)
    source, target = (client[f"copied_{uuid4().hex[:8]}"] for _ in range(2))
    # The copy contains the source's lease, which must expire.
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


async def test_a_database_is_not_a_copy_of_itself(mongo: Mongo) -> None:
    """Restarts, marks that are not stored yet, and marks that may not be read show no copy."""
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
    """Moved files have another replica set id, restored dumps another collection id."""
    tag = await deployment_tag(mongo)
    await mongo.find_one_and_update(COLLECTION, {}, {"$set": {mark: "of the source"}})
    another = await deployment_tag(mongo)
    assert another != tag
    assert await deployment_tag(mongo) == another


@pytest.mark.parametrize("mongo", ["motor"], indirect=True)
async def test_a_copy_is_detected_without_access_to_the_replica_set_configuration(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collection id alone shows it."""
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
async def test_a_copy_begins_after_its_last_version(
    mongo: Mongo, mongo_uri: str, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source's clock may be ahead: new versions would be before the copied ones."""
    await deployment_tag(mongo)
    await begin_now(mongo_uri, mongo.name, "things")
    now = await mongo.operation_time()
    later = resume_tokens.time_prefix(Timestamp(now.time + 3600, 1))
    client[mongo.name]["things.versions"].insert_one({"_id": later})
    await mongo.find_one_and_update(COLLECTION, {}, {"$set": {"collection": "of the source"}})
    monkeypatch.setattr("revstream.streams.coordination.deployment._CLOCK_S", 0)
    with pytest.raises(Unsuitable, match="a copy whose newest version is of"):
        await deployment_tag(mongo)
    client[mongo.name]["things.versions"].drop()
    await deployment_tag(mongo)
    stored = await Checkpoints(mongo).load("recorder:things")
    assert stored is not None
    assert stored.baseline == Baseline(doubt=stored.token)
