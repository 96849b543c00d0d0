"""Follow a collection with a bare change stream; write when each update arrived.

`python -m benchmarks.programs.watcher URI DATABASE`
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import pymongo

from benchmarks.products import COLLECTION
from benchmarks.programs.messages import emit, wait_for_end


def main(uri: str, database: str) -> None:
    told = threading.Event()
    threading.Thread(target=_wait, args=(told,), daemon=True).start()
    times = []
    with pymongo.MongoClient[dict[str, Any]](uri) as client:
        collection = client[database][COLLECTION]
        stream = collection.watch(full_document="whenAvailable", max_await_time_ms=100)
        with stream:
            emit("live")
            while not told.is_set():
                event = stream.try_next()
                if event is not None:
                    times.append((event["fullDocument"]["stock"], time.monotonic_ns()))
    emit("result", times=times)


def _wait(told: threading.Event) -> None:
    wait_for_end()
    told.set()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
