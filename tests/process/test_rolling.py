"""Rolling restart of all gateways, under subscribers and writes, without loss and repetition."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import AsyncMongoClient, MongoClient

from tests.support.beginning import begin_now
from tests.support.eventually import eventually
from tests.support.followers import Follower
from tests.support.gateway import RunningGateway, ensure_ended, start_gateway

# `REVSTREAM_TEST_SUBSCRIBERS=1000` is the long version, by hand.
SUBSCRIBERS = int(os.environ.pop("REVSTREAM_TEST_SUBSCRIBERS", "150"))
WRITES_PER_S = 150
GATEWAYS = 3
# Each document has three subscribers; some subscribers follow the whole collection. Nine events
# per write.
DOCUMENTS = SUBSCRIBERS // 3
WHOLE = 6
SHUTDOWN_S = 5.0
GENEROUS_S = 120.0

MODEL = 'type Thing @collection(name: "things") { id: ID! n: Int }'
QUERY = """
subscription Changes($after: ResumeToken, $id: ID) {
  thingChanges(after: $after, id: $id) { kind documentId thing { n } resumeToken }
}
"""


class Writer:
    """Increments each document in turn; `written` has the writes in order."""

    def __init__(self, uri: str, database: str) -> None:
        self.written: list[tuple[str, int]] = []
        self._client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(uri)
        self._things = self._client[database].things

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Write until the context ends."""
        stopped = asyncio.Event()
        task = asyncio.create_task(self._write(stopped))
        try:
            yield
        finally:
            stopped.set()
            await task
            await self._client.close()

    async def _write(self, stopped: asyncio.Event) -> None:
        began = time.monotonic()
        while not stopped.is_set():
            number = len(self.written)
            key = f"t{number % DOCUMENTS}"
            await self._things.update_one({"_id": key}, {"$set": {"n": number}}, upsert=True)
            self.written.append((key, number))
            await asyncio.sleep(max(0.0, began + number / WRITES_PER_S - time.monotonic()))


@pytest.mark.timeout(600)
async def test_subscribers_lose_nothing_in_a_rolling_restart(
    mongo_uri: str,
    client: MongoClient[dict[str, Any]],
    database_name: str,
    tmp_path: Path,
) -> None:
    """Each subscriber resumes with its token and receives every event exactly once, in order.

    Each gateway ends within the bound and releases its leases.
    """
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)

    def start() -> RunningGateway:
        # The ring buffer has a second or two: subscribers that were away for longer replay.
        options = ("--shutdown-s", f"{SHUTDOWN_S}", "--ring-events", "300")
        return start_gateway(mongo_uri, database_name, model, *options)

    await begin_now(mongo_uri, database_name, "things")
    gateways = [await asyncio.to_thread(start) for _ in range(GATEWAYS)]
    addresses = [each.address for each in gateways]
    token = gateways[0].query("{ resumeToken }")["resumeToken"]
    followers = [
        Follower(QUERY, addresses, turn, None if turn < WHOLE else f"t{turn % DOCUMENTS}", token)
        for turn in range(SUBSCRIBERS)
    ]
    writer = Writer(mongo_uri, database_name)
    took: list[float] = []
    with contextlib.ExitStack() as ends:
        for each in gateways:
            ends.enter_context(ensure_ended(each))
        async with asyncio.TaskGroup() as tasks:
            following = [tasks.create_task(each.follow()) for each in followers]
            async with writer.writing():
                for place in range(GATEWAYS):
                    await eventually(
                        lambda: all(e.attached for e in followers), within_s=GENEROUS_S
                    )
                    count = len(writer.written)
                    await eventually(
                        lambda count=count: len(writer.written) > count + WRITES_PER_S,
                        within_s=GENEROUS_S,
                    )
                    began = time.monotonic()
                    assert await asyncio.to_thread(gateways[place].stop) == 0
                    took.append(time.monotonic() - began)
                    gateways[place] = await asyncio.to_thread(start)
                    ends.enter_context(ensure_ended(gateways[place]))
                    addresses[place] = gateways[place].address
                await eventually(lambda: all(e.attached for e in followers), within_s=GENEROUS_S)
            truth = expected(writer.written)

            def complete() -> bool:
                return all(len(each.received) >= len(truth[each.id]) for each in followers)

            await eventually(complete, within_s=GENEROUS_S)
            for each in following:
                each.cancel()
    for each in followers:
        received = [(change["documentId"], change["thing"]["n"]) for change in each.received]
        assert received == truth[each.id], each.id
    codes = [code for each in followers for code in each.told]
    assert set(codes) == {1012}
    assert sum(each.cut for each in followers) == 0
    assert max(took) < SHUTDOWN_S
    print(  # noqa: T201
        f"{SUBSCRIBERS} subscribers, {len(writer.written)} writes, "
        f"{sum(len(each.received) for each in followers)} events, interrupted {len(codes)} times, "
        f"stopped in {', '.join(f'{each:.2f}' for each in took)} s"
    )


def expected(written: list[tuple[str, int]]) -> dict[str | None, list[tuple[str, int]]]:
    """Return the events that a subscriber of each document receives; None: of all documents."""
    found: dict[str | None, list[tuple[str, int]]] = defaultdict(list)
    for each in written:
        found[None].append(each)
        found[each[0]].append(each)
    return found
