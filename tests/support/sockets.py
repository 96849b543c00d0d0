"""WebSocket client that sends any messages, valid or invalid, and reads the answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Close
from websockets.typing import Subprotocol

__all__ = ["LEGACY", "TRANSPORT", "Socket", "open_socket"]

Protocol = Literal["graphql-transport-ws", "graphql-ws"]
TRANSPORT: Protocol = "graphql-transport-ws"
LEGACY: Protocol = "graphql-ws"


@dataclass
class Socket:
    """One connection; operations are distinguished by their ids."""

    connection: ClientConnection
    protocol: Protocol

    async def send(self, message: object) -> None:
        """Send text and bytes unchanged, anything else as JSON."""
        raw = message if isinstance(message, str | bytes) else json.dumps(message)
        await self.connection.send(raw)

    async def start(self, id_: str, query: str, **variables: Any) -> None:
        """Start an operation with the message type of the protocol."""
        kind = "start" if self.protocol == LEGACY else "subscribe"
        payload = {"query": query, "variables": variables}
        await self.send({"id": id_, "type": kind, "payload": payload})

    async def receive(self) -> dict[str, Any]:
        """Return the next message other than a keep-alive; a frame that is not text fails."""
        while True:
            raw = await self.connection.recv()
            assert isinstance(raw, str)
            message: dict[str, Any] = json.loads(raw)
            if message != {"type": "ka"}:
                return message

    async def _receive_of(self, id_: str) -> dict[str, Any]:
        while True:
            message = await self.receive()
            # A checkpoint of a subscription may be on its way after it was ended.
            if message.get("id") in (id_, None):
                return message

    async def data(self, query: str, **variables: Any) -> dict[str, Any]:
        """Return the data of a query; messages of other operations are dropped meanwhile."""
        await self.start("q", query, **variables)
        answer, end = await self._receive_of("q"), await self._receive_of("q")
        assert answer["type"] == ("data" if self.protocol == LEGACY else "next"), answer
        assert end == {"id": "q", "type": "complete"}, (answer, end)
        data: dict[str, Any] = answer["payload"]["data"]
        return data

    async def errors(self, query: str, **variables: Any) -> list[dict[str, Any]]:
        """Return the errors with which an operation ends, before it or as its first result."""
        await self.start("e", query, **variables)
        answer = await self.receive()
        payload = answer["payload"]
        if answer["type"] == "error":
            return payload if isinstance(payload, list) else [payload]
        assert await self.receive() == {"id": "e", "type": "complete"}
        found: list[dict[str, Any]] = payload["errors"]
        return found

    async def closed(self) -> Close | None:
        """Skip messages until the server closes the connection, and return its close frame."""
        while True:
            try:
                await self.connection.recv()
            except ConnectionClosed as exc:
                return exc.rcvd


@asynccontextmanager
async def open_socket(
    address: str, protocol: Protocol = TRANSPORT, *, init: bool = True
) -> AsyncIterator[Socket]:
    """Connect to a gateway's address; `connection_init` is sent unless `init` is False."""
    url = address.replace("http", "ws", 1) + "/graphql"
    async with connect(url, subprotocols=[Subprotocol(protocol)], max_size=None) as connection:
        socket = Socket(connection, protocol)
        if init:
            await socket.send({"type": "connection_init"})
            assert await socket.receive() == {"type": "connection_ack"}
        yield socket
