"""Ask a server as fast as it answers, over connections that stay open.

`python -m benchmarks.programs.client CONNECTIONS SECONDS`, and on standard input one line of JSON:
`{host, port, requests}`, where each request is `[method, path, body, token]`.

Requests are bytes made before, and of an answer nothing is read but its status and its length; and
sockets are waited for without an event loop: it shares its core with MongoDB, of which it is to
take as little as it can.
"""

from __future__ import annotations

import itertools
import json
import random
import select
import socket
import sys
import time
from collections.abc import Iterator

from benchmarks.figures import percentile
from benchmarks.programs.speech import say

_LENGTH = b"content-length:"
# One for all: memory of its own for each receipt would cost more than the receipt.
_BUFFER = bytearray(256 * 1024)
_HEAD_BYTES = 2000


class _Connection:
    """One request after the other; how long each took, in seconds."""

    def __init__(self, address: tuple[str, int], requests: Iterator[bytes], until: float) -> None:
        self.times: list[float] = []
        self.failed = 0
        self._requests = requests
        self._until = until
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = self._socket.fileno()
        # What has come of an answer's head that is not complete; and how much of an answer is still
        # to come, 0 before its head.
        self._head = b""
        self._left = 0
        self._ask()

    def receive(self) -> bool:
        """What has come; whether more is to come."""
        size = self._socket.recv_into(_BUFFER)
        if not size:
            # One that the server closed has asked for something that was not answered.
            self.failed += 1
            self._socket.close()
            return False
        if not self._left:
            head = self._head + _BUFFER[: min(size, _HEAD_BYTES)]
            end = head.find(b"\r\n\r\n")
            if end < 0:
                self._head = head
                return True
            head = head[:end].lower()
            at = head.find(_LENGTH) + len(_LENGTH)
            self._left = end + 4 - len(self._head) + int(head[at : at + 20].split(b"\r\n", 1)[0])
            self.failed += head[9:12] != b"200"
            self._head = b""
        self._left -= size
        if self._left:
            return True
        now = time.perf_counter()
        self.times.append(now - self._asked_at)
        if now < self._until:
            self._ask()
            return True
        self._socket.close()
        return False

    def _ask(self) -> None:
        self._asked_at = time.perf_counter()
        # A request is shorter than what a socket holds, and none is under way before it.
        self._socket.sendall(next(self._requests))


def encode(host: str, method: str, path: str, body: str, token: str) -> bytes:
    content = body.encode()
    signed = f"Authorization: Bearer {token}\r\n" if token else ""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n"
        f"{signed}Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def main(count: int, seconds: float) -> None:
    asked = json.loads(sys.stdin.readline())
    encoded = [encode(asked["host"], *each) for each in asked["requests"]]
    random.Random(1).shuffle(encoded)
    requests = itertools.cycle(encoded)
    address = asked["host"], asked["port"]
    started = time.perf_counter()
    connections = [_Connection(address, requests, started + seconds) for _ in range(count)]
    waiting = {each.number: each for each in connections}
    with select.epoll() as poll:
        for number in waiting:
            poll.register(number, select.EPOLLIN)
        while waiting:
            for number, _ in poll.poll():
                # Closed, it is not polled any more.
                if not waiting[number].receive():
                    del waiting[number]
    took_s = time.perf_counter() - started
    times = [each for connection in connections for each in connection.times]
    say(
        "result",
        requests=len(times),
        seconds=took_s,
        p50_ms=percentile(times, 0.5) * 1000,
        p99_ms=percentile(times, 0.99) * 1000,
        failed=sum(each.failed for each in connections),
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
