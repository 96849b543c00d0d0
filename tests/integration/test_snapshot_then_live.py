"""A snapshot and the changes after it always add up to the collection, under any rate of writes."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from tests.support.exhaustive import scaled
from tests.support.gateway import RunningGateway, running_gateway

Client = MongoClient[dict[str, Any]]

MODEL = """
type Item @collection(name: "items") { id: ID! group: String! count: Int! note: String }
"""
CHANGES = """
subscription Items($where: ItemWhere) {
  itemChanges(snapshot: true, where: $where) {
    kind transition documentId resumeToken item { group count note }
  }
}
"""
ROUNDS, WRITES, DOCUMENTS = scaled(all=50, fast=8), 150, 60


@pytest.fixture(scope="module")
def items(
    mongo_uri: str, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningGateway, Collection[dict[str, Any]]]]:
    """Run a gateway over a collection of its own, for all rounds."""
    path: Path = tmp_path_factory.mktemp("model") / "schema.graphql"
    path.write_text(MODEL)
    name = f"snapshots_{uuid4().hex[:8]}"
    with running_gateway(mongo_uri, name, path, "--quiet-s", "0.1") as gateway:
        yield gateway, client[name]["items"]
    client.drop_database(name)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("where", "matches"),
    [
        (None, lambda item: True),
        (
            {"group": {"eq": "a"}, "count": {"lt": 50}},
            lambda i: i["group"] == "a" and i["count"] < 50,
        ),
    ],
    ids=["all", "filtered"],
)
async def test_snapshot_and_changes_add_up_to_the_final_state(
    items: tuple[RunningGateway, Collection[dict[str, Any]]], where: Any, matches: Any
) -> None:
    """A writer writes at full speed in each round, and documents enter and leave the filter."""
    gateway, collection = items
    dice = random.Random(9)
    for _ in range(ROUNDS):
        writing = asyncio.create_task(asyncio.to_thread(_write, collection, dice))
        state = await _collect(gateway, where, writing)
        await writing
        expected = {
            each["_id"]: {name: each.get(name) for name in ("group", "count", "note")}
            for each in collection.find()
            if matches(each)
        }
        assert state == expected


async def _collect(
    gateway: RunningGateway, where: Any, writing: asyncio.Task[None]
) -> dict[str, Any]:
    """Return the subscriber's state after the writer's last write."""
    state: dict[str, Any] = {}
    end: str | None = None
    events = gateway.subscribe(CHANGES, where=where)
    async with contextlib.aclosing(events):
        async for data in events:
            change = data["itemChanges"]
            _apply(state, change)
            if end is None and writing.done():
                answer = await asyncio.to_thread(gateway.query, "{ resumeToken }")
                end = answer["resumeToken"]
            if end is not None and change["kind"] != "SNAPSHOT" and change["resumeToken"] >= end:
                return state
    raise AssertionError("the subscription ended")


def _apply(state: dict[str, Any], change: dict[str, Any]) -> None:
    key, transition = change["documentId"], change["transition"]
    if change["kind"] == "CHECKPOINT":
        return
    assert (key in state) is (transition != "ENTER"), change
    if transition == "LEAVE":
        del state[key]
    else:
        state[key] = change["item"]


def _write(collection: Collection[dict[str, Any]], dice: random.Random) -> None:
    for _ in range(WRITES):
        key = {"_id": f"i{dice.randrange(DOCUMENTS)}"}
        match dice.randrange(5):
            case 0:
                collection.delete_one(key)
            case 1:
                fields = {"group": dice.choice("ab"), "count": dice.randrange(100)}
                collection.replace_one(key, fields, upsert=True)
            case 2:
                collection.update_one(key, {"$set": {"group": dice.choice("ab")}})
            case 3:
                collection.update_one(key, {"$set": {"count": dice.randrange(100)}})
            case _:
                collection.update_one(key, {"$set": {"note": str(dice.random())}})
