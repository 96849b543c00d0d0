"""The simplest receiver of a sink: it answers 200 and counts.

`python -m benchmarks.programs.receiver` writes `serving` with its port; `GET /` returns the number
of requests, the times of the first and the last one (monotonic seconds), and by document the number
that arrived out of order; `GET /last` returns the last body.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import cast

import orjson
import uvloop

from benchmarks.programs.messages import emit

_OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class _Connection(asyncio.Protocol):
    count = 0
    first_s = last_s = 0.0
    disorder = 0
    body = b""
    places: dict[str, str] = {}  # noqa: RUF012 — of all connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is not a subclass.
        self._transport = cast(asyncio.Transport, transport)
        self._came = bytearray()

    def data_received(self, data: bytes) -> None:
        self._came += data
        while (end := self._came.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._came[:end])
            length = 0
            for line in head.split(b"\r\n"):
                if line.lower().startswith(b"content-length:"):
                    length = int(line[15:])
            whole = end + 4 + length
            if len(self._came) < whole:
                return
            body = bytes(self._came[end + 4 : whole])
            del self._came[:whole]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        kind = type(self)
        if head.startswith(b"GET"):
            said = kind.body if head.startswith(b"GET /last") else self._figures()
            length = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(said)
            self._transport.write(length + said)
            return
        kind.last_s = time.monotonic()
        kind.first_s = kind.first_s or kind.last_s
        kind.count += 1
        kind.body = body
        event = orjson.loads(body)
        subject, sequence = event["subject"], event["sequence"]
        kind.disorder += sequence <= kind.places.get(subject, "")
        kind.places[subject] = sequence
        self._transport.write(_OK)

    def _figures(self) -> bytes:
        kind = type(self)
        figures = {"count": kind.count, "first_s": kind.first_s, "last_s": kind.last_s}
        return json.dumps({**figures, "disorder": kind.disorder}).encode()


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(_Connection, "127.0.0.1", 0)
    emit("serving", port=server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
