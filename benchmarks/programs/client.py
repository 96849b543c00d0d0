"""Send requests as fast as a server answers, over connections that stay open.

`python -m benchmarks.programs.client CONNECTIONS SECONDS`, and on standard input one line of JSON:
`{host, port, requests}`, where each request is `[method, path, body, token]`.

Requests are bytes built in advance, only status and length of a response are parsed, and sockets
are polled without an event loop: the program shares its core with MongoDB and should take little of
it.
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
from benchmarks.programs.messages import emit

_LENGTH = b"content-length:"
# One buffer for all: an allocation for each read would cost more than the read.
_BUFFER = bytearray(256 * 1024)
_HEAD_BYTES = 2000


class _Connection:
    """A connection with one request at a time; the durations are in seconds."""

    def __init__(self, address: tuple[str, int], requests: Iterator[bytes], until: float) -> None:
        self.times: list[float] = []
        self.failed = 0
        self._requests = requests
        self._until = until
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.number = self._socket.fileno()
        # Bytes of an incomplete response head, and the number of body bytes still to read, 0 before
        # the head.
        self._head = b""
        self._left = 0
        self._ask()

    def receive(self) -> bool:
        """Read available bytes; returns whether more of the response is missing."""
        size = self._socket.recv_into(_BUFFER)
        if not size:
            # The server has closed a connection with an unanswered request.
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
        # A request fits into the socket's buffer, which is empty.
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
                # A closed socket is removed from the poll set.
                if not waiting[number].receive():
                    del waiting[number]
    took_s = time.perf_counter() - started
    times = [each for connection in connections for each in connection.times]
    emit(
        "result",
        requests=len(times),
        seconds=took_s,
        p50_ms=percentile(times, 0.5) * 1000,
        p99_ms=percentile(times, 0.99) * 1000,
        failed=sum(each.failed for each in connections),
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
