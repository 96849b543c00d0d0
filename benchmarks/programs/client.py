"""Ask a server as fast as it answers, over connections that stay open; where there is no wrk.

`python -m benchmarks.programs.client CONNECTIONS SECONDS`, and on standard input one line of JSON:
`{host, port, requests}`, where each request is `[method, path, body, token]`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
import time
from collections.abc import Iterator
from typing import cast

import httptools
import uvloop

from benchmarks.figures import percentile
from benchmarks.programs.speech import say


class _Connection(asyncio.Protocol):
    """One request after the other; how long each took."""

    def __init__(self, requests: Iterator[bytes], until: float) -> None:
        self.times: list[float] = []
        self.failed = 0
        self.closed = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._until = until

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self.times.append(time.perf_counter() - self._asked_at)
        self.failed += self._parser.get_status_code() != 200
        if time.perf_counter() < self._until:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)

    def _ask(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._asked_at = time.perf_counter()
        self._transport.write(next(self._requests))


def encode(host: str, method: str, path: str, body: str, token: str) -> bytes:
    content = body.encode()
    signed = f"Authorization: Bearer {token}\r\n" if token else ""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n"
        f"{signed}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def main(connections: int, seconds: float) -> None:
    asked = json.loads(sys.stdin.readline())
    encoded = [encode(asked["host"], *each) for each in asked["requests"]]
    random.Random(1).shuffle(encoded)
    requests = itertools.cycle(encoded)
    loop = asyncio.get_running_loop()
    started = time.perf_counter()
    opened = [
        await loop.create_connection(
            lambda: _Connection(requests, started + seconds), asked["host"], asked["port"]
        )
        for _ in range(connections)
    ]
    protocols = [protocol for _, protocol in opened]
    await asyncio.gather(*(each.closed for each in protocols))
    took_s = time.perf_counter() - started
    times = [each for protocol in protocols for each in protocol.times]
    say(
        "result",
        requests=len(times),
        seconds=took_s,
        p50_ms=percentile(times, 0.5) * 1000,
        p99_ms=percentile(times, 0.99) * 1000,
        failed=sum(each.failed for each in protocols),
    )


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), float(sys.argv[2])))
