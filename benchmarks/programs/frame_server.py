"""The least possible cost of fan-out: one change stream whose ready frames go to every WebSocket.

`python -m benchmarks.programs.frame_server URI DATABASE` writes `serving`. It accepts the messages
of a subscriber of products; with a variable `id` only events of that product are sent.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import sys
from collections import defaultdict
from typing import Any, cast

import orjson
import uvloop
from motor.motor_asyncio import AsyncIOMotorClient

from benchmarks.products import COLLECTION
from benchmarks.programs.messages import emit

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_FIELDS = ("version", "sku", "name", "price", "stock")


class _Listener(asyncio.Protocol):
    """A connection; incoming frames are complete, as they are small and sent one at a time."""

    everyone: set[asyncio.Transport] = set()  # noqa: RUF012 — of all connections
    of_one: defaultdict[str, set[asyncio.Transport]] = defaultdict(set)  # noqa: RUF012

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is not a subclass.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"GET"):
            key = data.lower().find(b"sec-websocket-key:") + 18
            accept = hashlib.sha1(data[key : key + 26].strip() + _MAGIC).digest()
            self._transport.write(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Protocol: graphql-transport-ws\r\n"
                b"Sec-WebSocket-Accept: " + base64.b64encode(accept) + b"\r\n\r\n"
            )
            return
        message = orjson.loads(_unmasked(data))
        if message["type"] == "connection_init":
            self._transport.write(_frame(b'{"type":"connection_ack"}'))
        elif message["type"] == "subscribe":
            one = (message["payload"].get("variables") or {}).get("id")
            (self.of_one[one] if one else self.everyone).add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        for each in (self.everyone, *self.of_one.values()):
            each.discard(self._transport)


async def main(uri: str, database: str) -> None:
    client: Any = AsyncIOMotorClient(uri)
    server = await asyncio.get_running_loop().create_server(_Listener, "127.0.0.1", 0, backlog=4096)
    async with client[database][COLLECTION].watch([], full_document="updateLookup") as changes:
        await changes.try_next()
        emit("serving", address=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async for change in changes:
            document = change["fullDocument"]
            number = str(document["_id"])
            product = {"id": number, **{name: document[name] for name in _FIELDS}}
            payload = {"data": {"productChanges": {"product": product}}}
            frame = _frame(orjson.dumps({"id": f"{0:036d}", "type": "next", "payload": payload}))
            for transport in _Listener.everyone:
                transport.write(frame)
            for transport in _Listener.of_one.get(number, ()):
                transport.write(frame)


def _frame(text: bytes) -> bytes:
    """Return a frame of RFC 6455, 5.2: text, final, not masked."""
    size = len(text)
    return (bytes((0x81, size)) if size < 126 else b"\x81\x7e" + size.to_bytes(2)) + text


def _unmasked(frame: bytes) -> bytes:
    start = {126: 4, 127: 10}.get(frame[1] & 0x7F, 2)
    mask = frame[start : start + 4]
    return bytes(each ^ mask[n % 4] for n, each in enumerate(frame[start + 4 :]))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], sys.argv[2]))
