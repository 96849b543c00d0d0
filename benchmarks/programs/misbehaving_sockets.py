"""Misbehaving WebSockets: `python -m benchmarks.programs.misbehaving_sockets ADDRESS COUNT KIND`.

Each is reopened when it is closed, until the program's input ends. KIND:

- `idle`: subscribes and reads;
- `silent`: subscribes and never reads;
- `garbage`: unfinished messages, invalid frames, and invalid messages, in turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
import sys
from collections.abc import Callable
from urllib.parse import urlsplit

import uvloop

from benchmarks.programs.messages import emit, wait_for_end

_SUBSCRIPTION = "subscription { productChanges { product { id name description stock } } }"
_PAUSE_S = 2.0
_UNFINISHED_BYTES = 60_000


async def main(address: str, count: int, kind: str) -> None:
    parts = urlsplit(address)
    assert parts.hostname is not None
    at = parts.hostname, parts.port or 80
    met, refused = set[int](), itertools.count()
    every = asyncio.Event()

    async def keep(number: int) -> None:
        while True:
            with contextlib.suppress(OSError), socket.socket() as plain:
                if await _open(plain, at, silent=kind == "silent"):
                    met.add(number)
                    if len(met) == count:
                        every.set()
                    await _behave(plain, kind, number)
                else:
                    next(refused)
            await asyncio.sleep(_PAUSE_S)

    sockets = [asyncio.create_task(keep(number)) for number in range(count)]
    await every.wait()
    emit("gathered")
    await asyncio.to_thread(wait_for_end)
    for each in sockets:
        each.cancel()
    emit("result", refused=next(refused))


async def _open(plain: socket.socket, at: tuple[str, int], *, silent: bool) -> bool:
    """Return whether the handshake succeeded."""
    plain.setblocking(False)
    if silent:
        # A small buffer, which little data fills.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(plain, at)
    handshake = (
        f"GET /graphql HTTP/1.1\r\nHost: {at[0]}:{at[1]}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: graphql-transport-ws\r\n\r\n"
    )
    await loop.sock_sendall(plain, handshake.encode())
    return (await loop.sock_recv(plain, 1024)).startswith(b"HTTP/1.1 101")


async def _behave(plain: socket.socket, kind: str, number: int) -> None:
    """Misbehave until the connection is closed."""
    loop = asyncio.get_running_loop()
    if kind == "garbage":
        await loop.sock_sendall(plain, _GARBAGE[number % len(_GARBAGE)]())
    else:
        start = {"id": "1", "type": "subscribe", "payload": {"query": _SUBSCRIPTION}}
        for message in ({"type": "connection_init"}, start):
            await loop.sock_sendall(plain, _frame(json.dumps(message).encode()))
    if kind == "silent":
        # Wait for the end of the connection, which sending notices.
        while True:
            await asyncio.sleep(5)
            await loop.sock_sendall(plain, _frame(b'{"type": "pong"}'))
    while await loop.sock_recv(plain, 65536):
        pass


def _frame(text: bytes, size: int | None = None) -> bytes:
    """Return a frame of RFC 6455, 5.2: text, final, with a mask of zeros.

    Args:
        size: the length in its head, if it is not the real one.
    """
    return b"\x81\xff" + (len(text) if size is None else size).to_bytes(8) + b"\0\0\0\0" + text


_GARBAGE: list[Callable[[], bytes]] = [
    lambda: _frame(b"x" * _UNFINISHED_BYTES, 1_000_000),
    lambda: _frame(b"{" * 1000),
    lambda: b"\xff" * 1000,
    lambda: _frame(b'{"type": "ping"}') * 1000,
]


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
