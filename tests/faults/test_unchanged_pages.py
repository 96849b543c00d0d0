"""Large pages that are told without being read, while one primary after the other steps down:
whatever a majority had acknowledged is in them."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo import AsyncMongoClient, WriteConcern

from streams import tokens, unchanged
from streams.errors import GatewayError
from streams.hub import Hub, follow
from streams.mongo import Mongo
from streams.source import Source
from tests.faults.clock import Clocks
from tests.faults.cluster import Cluster
from tests.support.streams import BRISK

NAME, SIZE = "things", 60
# Reads on either side of a step-down, at least; and behind one write after the other: few, of which
# the stream is behind, and so many that it comes to the end of the oplog meanwhile.
STEPS, GAPS, ROUNDS = 250, (5, 20, 100), 3


@pytest.mark.timeout(240)
async def test_whatever_a_majority_has_acknowledged_is_in_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unchanged, "_QUIET_S", 0)
    # Not pytest's tmp_path, which keeps the directories of the last three runs.
    with tempfile.TemporaryDirectory(prefix="revstream-tests-") as name:
        async with Cluster.open(Path(name), Clocks(Path(name))) as cluster:
            await _compare(cluster)


async def _compare(cluster: Cluster) -> None:
    uri = f"{cluster.uri}&heartbeatFrequencyMS=500&connectTimeoutMS=1000"
    async with (
        AsyncMongoClient[dict[str, Any]](uri) as client,
        Mongo.connect(uri, "shop") as mongo,
    ):
        things = client["shop"].get_collection(NAME, write_concern=WriteConcern("majority"))
        await things.insert_many([{"_id": n, "n": 0} for n in range(SIZE)])
        hub = Hub([NAME], position=tokens.moment(await mongo.operation_time()))
        assert mongo.unchanged is not None
        mongo.unchanged.follow(hub, [NAME])
        source = Source(mongo, [NAME], before_images=False, options=BRISK)
        following = asyncio.create_task(follow(source, hub))
        try:
            await _rounds(cluster, mongo, things)
        finally:
            following.cancel()
            await asyncio.wait([following])


async def _rounds(cluster: Cluster, mongo: Mongo, things: Any) -> None:
    written = 0
    for _ in range(ROUNDS):
        written = await _steps(mongo, things, written)
        await _step_down(cluster)
        written = await _steps(mongo, things, written)
        await cluster.healthy()


async def _steps(mongo: Mongo, things: Any, written: int) -> int:
    """Until some were told without being read, however long the stream takes to come back: else
    nothing was tested."""
    assert mongo.unchanged is not None
    told, steps, gaps = mongo.unchanged.told, 0, itertools.cycle(GAPS)
    while steps < STEPS or mongo.unchanged.told == told:
        written += 1
        await _write(things, written)
        for _ in range(next(gaps)):
            assert (await _page(mongo))[0]["n"] == written
            steps += 1
    return written


async def _step_down(cluster: Cluster) -> None:
    primary = await cluster.primary()
    async with primary.direct() as client:
        await client.admin.command("replSetStepDown", 5, secondaryCatchUpPeriodSecs=3, force=True)


async def _write(things: Any, written: int) -> None:
    while True:
        with suppress(pymongo.errors.PyMongoError):
            await things.update_one({"_id": 0}, {"$set": {"n": written}})
            return
        await asyncio.sleep(0)


async def _page(mongo: Mongo) -> list[dict[str, Any]]:
    while True:
        with suppress(GatewayError):
            return await mongo.find(NAME, {}, sort=[("_id", 1)], limit=SIZE, naive=True)
        await asyncio.sleep(0)
