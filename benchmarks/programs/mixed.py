"""A mixed load at an even pace: reads, updates, as-of reads, and subscribers that connect and
leave.

Before that each document is updated once: the memory that a gateway keeps per document is limited
by their number, and is not part of the measurement.

`python -m benchmarks.programs.mixed ADDRESS DOCUMENTS`; writes `begun`, and at the end of its input
`result`: for each kind the numbers `done` and `failed`, and `p99_ms`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import uvloop

from benchmarks.figures import percentile
from benchmarks.programs.messages import emit, wait_for_end

_READ = "query ($id: ID!) { product(id: $id) { id version sku name price supplier { name } } }"
_PAGE = "{ products(first: 20, where: { stock: { lt: 700 } }) { nodes { id name price stock } } }"
_UPDATE = """
mutation ($id: ID!, $stock: Int!) {
  updateProduct(id: $id, patch: { stock: $stock }) { __typename }
}
"""
_AS_OF = """
query ($at: DateTime!) {
  productsAsOf(asOf: { time: $at }, first: 20) { nodes { documentId document { name stock } } }
}
"""
_SUBSCRIPTION = "subscription { productChanges { version product { id name price stock } } }"

_WORKERS = 4
_SUBSCRIBERS = 50
_STAY_S = (2.0, 20.0)
_AGO = timedelta(seconds=5)

Act = Callable[[random.Random], Awaitable[None]]


async def main(address: str, documents: int) -> None:
    endpoint = f"{address}/graphql"
    took: dict[str, list[float]] = {}
    failed: dict[str, int] = {}
    async with aiohttp.ClientSession() as session:

        async def ask(query: str, **variables: Any) -> None:
            body = {"query": query, "variables": variables}
            async with session.post(endpoint, json=body) as response:
                answer = await response.json()
            if answer.get("errors"):
                raise ValueError(answer["errors"])

        async def read(dice: random.Random) -> None:
            await ask(_READ, id=str(dice.randrange(documents)))

        async def page(_: random.Random) -> None:
            await ask(_PAGE)

        async def update(dice: random.Random) -> None:
            await ask(_UPDATE, id=str(dice.randrange(documents)), stock=dice.randrange(1000))

        async def as_of(_: random.Random) -> None:
            await ask(_AS_OF, at=(datetime.now(UTC) - _AGO).isoformat())

        async def follow(dice: random.Random) -> None:
            """Stay for a while, then disconnect."""
            until = time.monotonic() + dice.uniform(*_STAY_S)
            protocols = ["graphql-transport-ws"]
            async with session.ws_connect(endpoint, protocols=protocols) as socket:
                await socket.send_json({"type": "connection_init"})
                await socket.receive_json(timeout=30)
                payload = {"query": _SUBSCRIPTION}
                await socket.send_json({"id": "1", "type": "subscribe", "payload": payload})
                while (left_s := until - time.monotonic()) > 0:
                    try:
                        message = await socket.receive_json(timeout=left_s)
                    except TimeoutError:
                        return
                    if message["type"] not in ("next", "ping"):
                        raise ValueError(message)

        async def keep(kind: str, act: Act, every_s: float, part: int) -> None:
            dice = random.Random(f"{kind} {part}")
            due = time.monotonic() + dice.random() * every_s
            while True:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                began = time.monotonic()
                try:
                    await act(dice)
                    took[kind].append(time.monotonic() - began)
                except (aiohttp.ClientError, TimeoutError, TypeError, ValueError) as error:
                    failed[kind] += 1
                    print(f"{kind}: {error}", file=sys.stderr, flush=True)
                due = max(due + every_s, time.monotonic())

        async def update_all(numbers: Iterator[int]) -> None:
            for n in numbers:
                await ask(_UPDATE, id=str(n), stock=n % 1000)

        each_once = iter(range(documents))
        await asyncio.gather(*(update_all(each_once) for _ in range(_WORKERS)))
        # Action, times a second, number of workers.
        kinds: list[tuple[str, Act, float, int]] = [
            ("product(id)", read, 60, _WORKERS),
            ("pages", page, 20, _WORKERS),
            ("updates", update, 40, _WORKERS),
            ("pages as of a moment", as_of, 5, _WORKERS),
            ("subscribers", follow, 1e6, _SUBSCRIBERS),
        ]
        for kind, *_ in kinds:
            took[kind], failed[kind] = [], 0
        tasks = [
            asyncio.create_task(keep(kind, act, workers / rate, part))
            for kind, act, rate, workers in kinds
            for part in range(workers)
        ]
        emit("begun")
        await asyncio.to_thread(wait_for_end)
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    emit(
        "result",
        done={kind: len(times) for kind, times in took.items()},
        failed=failed,
        p99_ms={kind: percentile(times, 0.99) * 1000 for kind, times in took.items()},
    )


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2])))
