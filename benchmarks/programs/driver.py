"""Update documents as fast as possible with Motor alone.

`python -m benchmarks.programs.driver URI DATABASE DOCUMENTS CONCURRENCY SECONDS`
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any

import uvloop
from motor.motor_asyncio import AsyncIOMotorClient

from benchmarks.figures import percentile
from benchmarks.products import COLLECTION
from benchmarks.programs.bare_server import update
from benchmarks.programs.messages import emit

_WARM_UP_S = 1.0


async def main(uri: str, database: str, documents: int, concurrency: int, seconds: float) -> None:
    client: Any = AsyncIOMotorClient(uri)
    collection = client[database][COLLECTION]
    dice = random.Random(1)

    async def work(until: float) -> list[float]:
        times = []
        while (asked_at := time.perf_counter()) < until:
            number = dice.randrange(documents)
            await update(collection, number, {"stock": number, "price": number / 100})
            times.append(time.perf_counter() - asked_at)
        return times

    async def all_work(for_s: float) -> list[float]:
        until = time.perf_counter() + for_s
        parts = await asyncio.gather(*(work(until) for _ in range(concurrency)))
        return [each for part in parts for each in part]

    await all_work(_WARM_UP_S)
    started, cpu_s = time.perf_counter(), time.process_time()
    times = await all_work(seconds)
    took_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_s
    emit(
        "result",
        per_second=len(times) / took_s,
        p50_ms=percentile(times, 0.5) * 1000,
        p99_ms=percentile(times, 0.99) * 1000,
        cpu_us=cpu_s / len(times) * 1e6,
    )


if __name__ == "__main__":
    uri, database, *rest = sys.argv[1:]
    uvloop.run(main(uri, database, int(rest[0]), int(rest[1]), float(rest[2])))
