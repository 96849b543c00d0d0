"""Checkpoints: stored unchanged, and refused from older holders."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Int64, ObjectId, Timestamp

from revstream.streams.coordination.checkpoint import Baseline, Checkpoint, Checkpoints
from revstream.streams.coordination.partition import Partition, collection_partitions
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import LeaseLost
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.transactions import write
from tests.support.streams import raw, token_at

NAME = "recorder:things"
CHECKPOINT = Checkpoint(token_at(5), token_at(1))


async def test_a_saved_checkpoint_is_loaded(mongo: Mongo) -> None:
    """It has the fencing token that saved it, and the database's time."""
    checkpoints = Checkpoints(mongo)
    assert await checkpoints.load(NAME) is None
    baseline = Baseline(done=True, started=True, after="x", documents=7)
    await checkpoints.save(NAME, replace(CHECKPOINT, baseline=baseline), fencing_token=3)
    found = await checkpoints.load(NAME)
    assert found is not None
    assert (found.token, found.start, found.baseline) == (token_at(5), token_at(1), baseline)
    assert found.fencing_token == 3
    assert found.saved_at is not None
    now = (await mongo.command({"hello": 1}))["localTime"]
    assert timedelta(0) <= now - found.saved_at < timedelta(minutes=1)


@pytest.mark.parametrize(
    "key",
    [
        None,
        True,
        Int64(5),
        float("inf"),
        "$name",
        {"b": 1, "a": [1]},
        b"x",
        ObjectId(),
        Timestamp(1, 2),
        datetime(2024, 1, 1, tzinfo=UTC),
    ],
)
async def test_the_position_of_a_snapshot_may_be_an_id_of_any_type(mongo: Mongo, key: Any) -> None:
    """It is returned with its type; raw documents are returned decoded."""
    checkpoints = Checkpoints(mongo)
    baseline = Baseline(started=True, after=key)
    await checkpoints.save(NAME, replace(CHECKPOINT, baseline=baseline), fencing_token=1)
    found = await checkpoints.load(NAME)
    assert found is not None
    assert (found.baseline.after, type(found.baseline.after)) == (key, type(key))
    if isinstance(key, dict):
        baseline = Baseline(started=True, after=raw(key))
        await checkpoints.save(NAME, replace(CHECKPOINT, baseline=baseline), fencing_token=1)
        found = await checkpoints.load(NAME)
        assert found is not None
        assert found.baseline.after == key


async def test_an_older_fencing_token_is_refused_with_both_named(mongo: Mongo) -> None:
    """The stored checkpoint is unchanged, however late the write arrives."""
    checkpoints = Checkpoints(mongo)
    await checkpoints.save(NAME, CHECKPOINT, fencing_token=5)
    later = replace(CHECKPOINT, token=token_at(9))
    with pytest.raises(LeaseLost, match="fencing token 4, minimum is 5") as caught:
        await checkpoints.save(NAME, later, fencing_token=4)
    assert caught.value.code == "INTERNAL"
    found = await checkpoints.load(NAME)
    assert found is not None
    assert found.token == token_at(5)
    await checkpoints.save(NAME, later, fencing_token=5)
    await checkpoints.save(NAME, later, fencing_token=6)
    with pytest.raises(LeaseLost):
        await checkpoints.save(NAME, later, fencing_token=5)


async def test_listeners_have_a_checkpoint_each(mongo: Mongo) -> None:
    """Loaded together in one read; those that never ran are left out."""
    checkpoints = Checkpoints(mongo)
    await checkpoints.save("a", CHECKPOINT, fencing_token=9)
    await checkpoints.save("b", replace(CHECKPOINT, token=token_at(6)), fencing_token=1)
    found = await checkpoints.load_all(["a", "b", "c"])
    assert {name: each.token for name, each in found.items()} == {
        "a": token_at(5),
        "b": token_at(6),
    }


async def test_of_two_concurrent_saves_the_newer_one_remains(mongo: Mongo) -> None:
    """This holds for the first save as well; the other save is refused."""
    checkpoints = Checkpoints(mongo)
    for turn in range(5):
        name = f"{NAME}{turn}"
        results = await asyncio.gather(
            *(
                checkpoints.save(name, replace(CHECKPOINT, token=token_at(n)), fencing_token=n)
                for n in (1, 2, 3)
            ),
            return_exceptions=True,
        )
        assert all(each is None or isinstance(each, LeaseLost) for each in results)
        found = await checkpoints.load(name)
        assert found is not None
        if results[2] is None:
            assert (found.fencing_token, found.token) == (3, token_at(3))


async def test_other_programs_can_read_a_listeners_position(mongo: Mongo) -> None:
    """The cluster time is beside the token."""
    await Checkpoints(mongo).save(NAME, CHECKPOINT, fencing_token=1)
    found = await mongo.find("revstream.checkpoints", {"_id": NAME})
    assert found[0]["at"] == resume_tokens.cluster_time(CHECKPOINT.token) == Timestamp(5, 1)


async def test_the_checkpoints_of_a_collection_are_found_for_any_partitioning(
    mongo: Mongo,
) -> None:
    """Collections with similar names are excluded, and removed checkpoints are deleted."""
    checkpoints = Checkpoints(mongo)
    parts = [Partition("things"), *collection_partitions("things", 2), Partition("things", 6, 12)]
    for each in [*parts, Partition("things:old"), Partition("thing"), Partition("thingsy", 0, 2)]:
        await checkpoints.save(each.name, CHECKPOINT, fencing_token=1)
    assert set(await checkpoints.load_collection("things")) == set(parts)
    await write(
        mongo, lambda writing: checkpoints.replace_partitions(writing, parts[:1], parts[1:])
    )
    assert set(await checkpoints.load_collection("things")) == {Partition("things")}
    assert set(await checkpoints.load_collection("thingsy")) == {Partition("thingsy", 0, 2)}
