"""Hold WebSockets with a subscription on each, and write when each event arrived.

`python -m benchmarks.programs.subscriber ADDRESS CONNECTIONS SUBSCRIPTION`

Uses graphql-transport-ws; with an empty subscription it only connects.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import uvloop
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from benchmarks.programs.messages import emit, wait_for_end

Received = list[tuple[int, str | bytes]]


async def main(address: str, connections: int, subscription: str) -> None:
    received: Received = []
    sockets = [await _open(address, subscription) for _ in range(connections)]
    emit("subscribed")
    readers = [asyncio.create_task(_read(socket, received)) for socket in sockets]
    await asyncio.to_thread(wait_for_end)
    for reader in readers:
        reader.cancel()
    # Parsed afterwards, so that parsing delays no event.
    emit("result", times=[(_step(text), at_ns) for at_ns, text in received])


async def _open(address: str, subscription: str) -> ClientConnection:
    socket = await connect(
        address.replace("http", "ws", 1),
        subprotocols=[Subprotocol("graphql-transport-ws")] if subscription else None,
        compression=None,
        ping_interval=None,
        max_size=None,
    )
    if subscription:
        await socket.send(json.dumps({"type": "connection_init"}))
        await socket.recv()
        request = {"id": "1", "type": "subscribe", "payload": {"query": subscription}}
        await socket.send(json.dumps(request))
    return socket


async def _read(socket: ClientConnection, received: Received) -> None:
    async for text in socket:
        if not received:
            emit("live")
        received.append((time.monotonic_ns(), text))


def _step(text: str | bytes) -> int:
    payload = json.loads(text)["payload"]
    if "errors" in payload:
        raise SystemExit(f"the subscription failed: {payload}")
    event = payload["data"]["productChanges"]
    return int(event["product"]["stock"]) if event["product"] else 0


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
