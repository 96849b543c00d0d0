"""Write to MongoDB, or read from a gateway, at an even pace until standard input ends.

Writes the latency of each action in seconds since it was due, and its end in monotonic nanoseconds
by step.

`python -m benchmarks.programs.steady write URI DATABASE DOCUMENTS RATE`
`python -m benchmarks.programs.steady read ADDRESS DOCUMENTS RATE`
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pymongo

from benchmarks.products import COLLECTION, change, touched
from benchmarks.programs.messages import emit, wait_for_end

Act = Callable[[int], object]

_THREADS = 4
"""Keeps the pace when an action takes longer than the interval."""


def write(uri: str, database: str, documents: int, rate: float) -> None:
    with pymongo.MongoClient[dict[str, object]](uri) as client:
        collection = client[database][COLLECTION]
        collection.find_one()

        def update(step: int) -> None:
            collection.update_one({"_id": touched(step, documents)}, change(step))

        _keep(rate, lambda: update)


def read(address: str, documents: int, rate: float) -> None:
    dice = random.Random(1)
    host = address.removeprefix("http://")

    def opened() -> Act:
        connection = http.client.HTTPConnection(host, timeout=120)

        def ask(_: int) -> None:
            query = f'{{ product(id: "{dice.randrange(documents)}") {{ id name price stock }} }}'
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/graphql", json.dumps({"query": query}), headers)
            with closing(connection.getresponse()) as response:
                answer = json.loads(response.read())
            if answer.get("errors") or answer["data"]["product"] is None:
                raise ValueError(f"{query} was answered with {answer}")

        return ask

    _keep(rate, opened)


def _keep(rate: float, opened: Callable[[], Act]) -> None:
    """Repeat an action at this rate.

    Args:
        opened: called in each thread; returns the action.
    """
    stop = threading.Event()
    beginning = time.monotonic() + 0.2
    emit("begun")

    def work(part: int) -> list[tuple[int, float, int]]:
        act = opened()
        done: list[tuple[int, float, int]] = []
        step = part
        while True:
            due = beginning + step / rate
            if stop.wait(max(0.0, due - time.monotonic())):
                return done
            act(step)
            done.append((step, time.monotonic() - due, time.monotonic_ns()))
            step += _THREADS

    with ThreadPoolExecutor(_THREADS) as pool:
        parts = [pool.submit(work, part + 1) for part in range(_THREADS)]
        wait_for_end()
        stop.set()
        done = [each for part in parts for each in part.result()]
        emit(
            "result",
            took=[took_s for _, took_s, _ in done],
            times=[(step, at_ns) for step, _, at_ns in done],
        )


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
    else:
        read(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
