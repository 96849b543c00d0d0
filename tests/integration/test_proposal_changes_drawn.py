"""Drafts and comments under drawn schedules of writes, reconnections and restarts: nothing is lost,
repeated or out of order.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from revstream.gql.runtime.configuration.settings import Settings
from tests.support.editing import Row, Shop, open_shop
from tests.support.proposals import ALL_COMMENTS, ALL_DRAFTS, next_event, propose, token_now

PATIENCE_S = 120.0
SAID = ("type", "documentId", "number", "operation")


async def write(shop: Shop, ids: dict[str, str], rng: random.Random, written: list[Any]) -> None:
    """Create a proposal, perhaps decide it, and record the expected events."""
    entity, id_ = rng.choice(list(ids.items()))
    result = await shop.mutate(f"propose{entity}", id=id_, patch={"name": f"n{rng.random()}"})
    number = result["draft"]["number"]
    written.append((entity, id_, number, "INSERT"))
    if rng.random() < 0.8:
        await shop.mutate(f"reject{entity}", id=id_, draft=number)
        written.append((entity, id_, number, "UPDATE"))


class Client:
    """A client that reconnects after its last token to the current gateway."""

    def __init__(self, after: str, where: Row | None = None) -> None:
        self.token = after
        self.where = where
        self.received: list[Any] = []

    async def follow(self, shop: Shop, events: int) -> None:
        """Receive a number of messages, checkpoints included, and disconnect without a closing
        message.
        """
        async with shop.changes(ALL_DRAFTS, after=self.token, where=self.where) as opened:
            for _ in range(events):
                event = await next_event(opened)
                assert event["resumeToken"] >= self.token
                self.token = event["resumeToken"]
                if event["kind"] == "CHANGE":
                    self.received.append(tuple(event[each] for each in SAID))


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_reconnecting_clients_receive_every_event_once(
    mongo_uri: str, client: MongoClient[Row], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Replay comes from a small ring, from the oplog, and from several gateways."""
    monkeypatch.setattr("revstream.streams.live.oplog_replay._PAGE", 3)
    rng, name = random.Random(seed), f"drawn_{uuid4().hex[:8]}"
    settings = Settings(ring_events=4, quiet_s=0.3)
    written: list[Any] = []
    async with open_shop(client, mongo_uri, name, settings) as shop:
        ids = {"Product": await shop.create(), "Sample": await shop.create("Sample")}
        after = await token_now(shop)
    clients = [Client(after) for _ in range(3)]
    clients += [Client(after, {"author": {"eq": "ann"}})]
    for _ in range(3):
        async with open_shop(client, mongo_uri, name, settings, begun=True) as shop:

            async def come_and_go(each: Client, shop: Shop = shop) -> None:
                for _ in range(3):
                    await asyncio.sleep(rng.random() / 5)
                    await each.follow(shop, rng.randint(1, 6))

            async def write_on(shop: Shop = shop) -> None:
                for _ in range(8):
                    await write(shop, ids, rng, written)
                    await asyncio.sleep(rng.random() / 20)

            async with asyncio.timeout(PATIENCE_S):
                await asyncio.gather(write_on(), *map(come_and_go, clients))
    async with open_shop(client, mongo_uri, name, settings, begun=True) as shop:
        async with asyncio.timeout(PATIENCE_S):
            for each in clients:
                while len(each.received) < len(written):
                    await each.follow(shop, 1)
    assert [each.received for each in clients] == [written] * len(clients)
    client.drop_database(name)


async def test_comments_of_many_writers_are_in_token_order(
    mongo_uri: str, client: MongoClient[Row]
) -> None:
    """Live events and replay agree."""
    name = f"talk_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name) as shop:
        id_ = await shop.create()
        await propose(shop, id_, "one")
        after = await token_now(shop)

        async def say(text: str) -> None:
            await shop.mutate("commentOnProduct", id=id_, draft=1, text=text)

        texts = [f"{n}" for n in range(30)]
        async with shop.changes(ALL_COMMENTS, after=after) as live:
            await asyncio.gather(*map(say, texts))
            first = await received(live, len(texts))
        async with shop.changes(ALL_COMMENTS, after=after) as later:
            second = await received(later, len(texts))
    assert first == second
    assert sorted(text for _, text in first) == sorted(texts)
    assert first == sorted(first)
    client.drop_database(name)


async def received(events: Any, count: int) -> list[tuple[str, str]]:
    """Return the tokens and the texts of the next comments."""
    found: list[tuple[str, str]] = []
    while len(found) < count:
        event = await next_event(events)
        if event["kind"] == "CHANGE":
            found.append((event["resumeToken"], event["comment"]["text"]))
    return found
