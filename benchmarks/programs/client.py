"""Ask a server as fast as it answers, over connections that stay open; where there is no wrk.

`python -m benchmarks.programs.client CONNECTIONS SECONDS`, and on standard input one line of JSON:
`{host, port, requests}`, where each request is `[method, path, body, token]`.

Requests are bytes made before, and of an answer nothing is read but its status and its length: so
that it can ask some 40,000 times a second, more than any server answers that it is meant for.
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

import uvloop

from benchmarks.figures import percentile
from benchmarks.programs.speech import say

_LENGTH = b"content-length:"


class _Connection(asyncio.Protocol):
    """One request after the other; how long each took, in seconds."""

    def __init__(self, requests: Iterator[bytes], until: float) -> None:
        self.times: list[float] = []
        self.failed = 0
        self.closed = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._until = until
        self._come = b""
        # Of the answer that is coming, its head included; 0 while that is not known.
        self._whole = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def data_received(self, data: bytes) -> None:
        if self._come:
            data = self._come + data
        if not self._whole:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._come = data
                return
            head = data[:end].lower()
            at = head.find(_LENGTH) + len(_LENGTH)
            self._whole = end + 4 + int(head[at : at + 20].split(b"\r\n", 1)[0])
            self.failed += head[9:12] != b"200"
        if len(data) < self._whole:
            self._come = data
            return
        now = time.perf_counter()
        self.times.append(now - self._asked_at)
        self._come, self._whole = b"", 0
        if now < self._until:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        # One that the server closed has asked for something that was not answered.
        self.failed += time.perf_counter() < self._until
        if not self.closed.done():
            self.closed.set_result(None)

    def _ask(self) -> None:
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
