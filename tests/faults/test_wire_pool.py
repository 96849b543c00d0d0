"""Wire connections use the current primary; no read waits for a silent server."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path

import pytest

from revstream.streams.core.errors import Unavailable
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from tests.faults.clock import Clocks
from tests.faults.cluster import Cluster
from tests.support.eventually import eventually

SLOW = {"$where": "sleep(60000) || true"}


@pytest.mark.timeout(240)
async def test_connections_follow_the_primary() -> None:
    """Reads continue when the primary steps down, and when it is suspended during a read."""
    # Not pytest's tmp_path, which keeps the directories of the last three runs.
    with tempfile.TemporaryDirectory(prefix="revstream-tests-") as name:
        await _follow(Path(name))


async def _follow(directory: Path) -> None:
    async with Cluster.open(directory, Clocks(directory)) as cluster:
        uri = f"{cluster.uri}&heartbeatFrequencyMS=500&connectTimeoutMS=1000"
        async with Mongo.connect(uri, "shop") as mongo:
            assert mongo.wires is not None
            connections = mongo.wires.open
            await mongo.insert_in_order("things", [{"_id": 1}])

            async def reads() -> list[object]:
                while True:
                    try:
                        return await mongo.find("things", {"_id": 1}, FindOptions(naive=True))
                    except Unavailable:
                        await asyncio.sleep(0)

            def ports() -> set[int | None]:
                return {each.address[1] for each in connections}

            async def port() -> int:
                return cluster.network.ports[(await cluster.primary()).name]

            assert await reads() == [{"_id": 1}]
            assert ports() == {await port()}

            first = await cluster.primary()
            async with first.direct() as client:
                await client.admin.command("replSetStepDown", 60)
            await cluster.healthy()
            # The old primary refuses reads in flight; then no connection to it is left.
            assert await reads() == [{"_id": 1}]
            await eventually(lambda: cluster.network.ports[first.name] not in ports())
            assert await reads() == [{"_id": 1}]
            assert ports() == {await port()}

            second = await cluster.primary()
            assert second.process is not None
            slow = asyncio.create_task(mongo.find("things", SLOW, FindOptions(naive=True)))
            await eventually(lambda: len(connections) == 1)
            second.process.send_signal(signal.SIGSTOP)
            second.paused = True
            # The connection with a waiting read, too.
            await eventually(lambda: not ports(), within_s=60)
            slow.cancel()
            await cluster.primary()
            assert await reads() == [{"_id": 1}]
            assert ports() == {await port()} != {cluster.network.ports[second.name]}
