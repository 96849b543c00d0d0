"""Takeover of a killed recorder: subscriptions of other gateways wait and continue."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import httpx2
from pymongo import MongoClient

from tests.support.eventually import eventually
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.sockets import Socket, open_socket

MODEL = 'type Thing @collection(name: "things") { id: ID! n: Int }'
QUERY = "subscription { thingChanges { kind documentId version resumeToken } }"
LAG = "{ streams { collection lagSeconds } }"
# Reads have a much shorter time limit than a lease.
OPTIONS = ("--lease-s", "3", "--archive-wait-s", "0.2")
GENEROUS_S = 120.0


async def next_change(socket: Socket) -> dict[str, Any]:
    """Return the next change of a document; the end of the subscription is an error."""
    while True:
        message = await socket.receive()
        assert message["type"] == "next", message
        change: dict[str, Any] = message["payload"]["data"]["thingChanges"]
        if change["kind"] == "CHANGE":
            return change


async def lag_s(gateway: RunningGateway) -> float:
    async with httpx2.AsyncClient() as http:
        answer = await http.post(f"{gateway.address}/graphql", json={"query": LAG})
    (stream,) = answer.json()["data"]["streams"]
    return float(stream["lagSeconds"])


async def test_a_killed_recorder_does_not_end_the_subscriptions_of_other_gateways(
    mongo_uri: str, client: MongoClient[dict[str, Any]], database_name: str, tmp_path: Path
) -> None:
    """Version numbers wait for the archive until the lease expires and another recorder starts."""
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    database = client[database_name]

    def holder() -> str:
        lease = database["revstream.leases"].find_one({"_id": "recorder:things"}) or {}
        return str(lease.get("holder") or "")

    with running_gateway(mongo_uri, database_name, model, *OPTIONS) as recording:
        await eventually(lambda: f":{recording.process.pid}:" in holder(), within_s=GENEROUS_S)
        with running_gateway(mongo_uri, database_name, model, *OPTIONS) as other:
            async with asyncio.timeout(GENEROUS_S), open_socket(other.address) as socket:
                await socket.start("1", QUERY)
                database.things.insert_one({"_id": "a"})
                assert (await next_change(socket))["version"] == 1
                recording.process.send_signal(signal.SIGKILL)
                recording.process.wait()
                database.things.insert_one({"_id": "b"})
                following = asyncio.ensure_future(next_change(socket))
                # Meanwhile it reports that a change waits, and for how long.
                while not await lag_s(other):
                    assert not following.done()
                change = await following
                assert (change["documentId"], change["version"]) == ("b", 1)
                assert f":{other.process.pid}:" in holder()
                database.things.update_one({"_id": "b"}, {"$set": {"n": 1}})
                assert (await next_change(socket))["version"] == 2
