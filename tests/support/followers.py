"""Subscribers that continue at another gateway with their last token when theirs ends, like a
dashboard.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.typing import Subprotocol

__all__ = ["Follower"]

_INIT = json.dumps({"type": "connection_init"})


@dataclass
class Follower:
    """One subscription: `query` takes `$after`, and `$id` where there is one.

    `addresses` are read again whenever a gateway is needed; `turn` is the index of the first one.
    `received` are the changes; `told` the codes with which its sockets were closed, each after a
    checkpoint; `cut` the number of other ends.
    """

    query: str
    addresses: Sequence[str]
    turn: int
    id: str | None = None
    token: str | None = None
    received: list[dict[str, Any]] = field(default_factory=list)
    told: list[int] = field(default_factory=list)
    cut: int = 0
    attached: bool = False
    _last: str = ""

    async def follow(self) -> None:
        """Receive changes forever, from whichever gateway is reachable."""
        while True:
            addresses = self.addresses
            address = addresses[self.turn % len(addresses)]
            self.turn += 1
            try:
                url = address.replace("http", "ws", 1) + "/graphql"
                async with connect(
                    url,
                    subprotocols=[Subprotocol("graphql-transport-ws")],
                    compression=None,
                    ping_interval=None,
                ) as socket:
                    await self._follow(socket)
            except (OSError, InvalidHandshake):
                # The gateway is shutting down or has not started: try the next one.
                await asyncio.sleep(0.05)
            finally:
                self.attached = False

    async def _follow(self, socket: ClientConnection) -> None:
        self._last = ""
        try:
            await socket.send(_INIT)
            await socket.recv()
            variables = {"after": self.token, "id": self.id}
            payload = {"query": self.query, "variables": variables}
            await socket.send(json.dumps({"id": "1", "type": "subscribe", "payload": payload}))
            async for raw in socket:
                self._take(json.loads(raw))
        except ConnectionClosed as exc:
            if exc.rcvd is not None and self._last == "CHECKPOINT":
                self.told.append(exc.rcvd.code)
                return
        self.cut += 1

    def _take(self, message: dict[str, Any]) -> None:
        assert message["type"] == "next", message
        assert "errors" not in message["payload"], message
        [change] = message["payload"]["data"].values()
        self.attached = True
        self._last = change["kind"]
        self.token = change["resumeToken"]
        if change["kind"] == "CHANGE":
            self.received.append(change)
