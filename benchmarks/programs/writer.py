"""Update documents at an even pace; say when each update was acknowledged.

`python -m benchmarks.programs.writer URI DATABASE DOCUMENTS RATE SECONDS`
"""

from __future__ import annotations

import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pymongo
from pymongo.collection import Collection

from benchmarks.products import COLLECTION, change
from benchmarks.programs.speech import say

_THREADS = 4
"""So that the pace holds where a write takes longer than its turn."""


def main(uri: str, database: str, documents: int, rate: float, seconds: float) -> None:
    with pymongo.MongoClient[dict[str, object]](uri) as client:
        collection = client[database][COLLECTION]
        collection.find_one()
        beginning = time.monotonic() + 0.1
        steps = range(1, int(rate * seconds) + 1)
        with ThreadPoolExecutor(_THREADS) as pool:
            parts = pool.map(
                lambda part: _write(collection, documents, part, rate, beginning),
                [steps[start::_THREADS] for start in range(_THREADS)],
            )
            say("result", times=[each for part in parts for each in part])


def _write(
    collection: Collection[dict[str, object]],
    documents: int,
    steps: range,
    rate: float,
    beginning: float,
) -> list[tuple[int, int]]:
    dice = random.Random(steps.start)
    acknowledged = []
    for step in steps:
        time.sleep(max(0.0, beginning + step / rate - time.monotonic()))
        collection.update_one({"_id": dice.randrange(documents)}, change(step))
        acknowledged.append((step, time.monotonic_ns()))
    return acknowledged


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]))
