"""Subscribers to all changes of a collection, and the events that they received."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.fuzzing.collections import FuzzedCollection
from tests.fuzzing.questions import selected

__all__ = ["Delivery", "Subscriber", "subscribed"]

ALLOWED = frozenset({"DOCUMENT_MISFIT"})


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event; `token` is without the deployment's tag, `data` is the document."""

    token: str
    document: str | None
    version: int | None
    data: dict[str, Any] | None


@dataclass
class Subscriber:
    """A client that resumes with its last token at the next gateway.

    Attributes:
        deliveries: all changes that it received, over all connections.
        findings: errors that no event may have.
        began: whether it is subscribed.
    """

    collection: FuzzedCollection
    key: str
    asks_version: bool
    deliveries: list[Delivery] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    token: str | None = None

    @property
    def name(self) -> str:
        return f"subscriber {self.collection.name}{' with version' if self.asks_version else ''}"

    def _operation(self) -> str:
        place = self.collection
        version = "version" if self.asks_version else ""
        after = f'(after: "{self.token}")' if self.token else ""
        return (
            f"subscription {{ {place.one}Changes{after} {{ kind operation documentId resumeToken "
            f"{version} {place.one} {{ {selected(place)} }} before {{ n text any }} }} }}"
        )

    async def run(self, address: str) -> None:
        """Receive events until cancelled or the connection ends."""
        url = address.replace("http", "ws", 1) + "/graphql"
        async with connect(
            url, subprotocols=[Subprotocol("graphql-transport-ws")], max_size=None
        ) as socket:
            greeting = {"type": "connection_init", "payload": {"apiKey": self.key}}
            await socket.send(json.dumps(greeting))
            await socket.recv()
            started = {"id": "1", "type": "subscribe", "payload": {"query": self._operation()}}
            await socket.send(json.dumps(started))
            try:
                async for raw in socket:
                    message = json.loads(raw)
                    if message["type"] == "next":
                        self._take(message["payload"])
                    elif message["type"] == "ping":
                        await socket.send(json.dumps({"type": "pong"}))
                    elif message["type"] in ("error", "complete"):
                        self.findings.append(f"{self.name}: ended: {str(message)[:500]}")
                        return
            except ConnectionClosed:
                return

    def _take(self, payload: dict[str, Any]) -> None:
        for error in payload.get("errors", ()):
            if error.get("extensions", {}).get("code") not in ALLOWED:
                self.findings.append(f"{self.name}: {str(error)[:500]}")
        change = (payload.get("data") or {}).get(f"{self.collection.one}Changes")
        if change is None:
            self.findings.append(f"{self.name}: an event without data: {str(payload)[:500]}")
            return
        self.token = change["resumeToken"]
        if change["kind"] == "CHANGE":
            token, _, _ = self.token.rpartition(".")
            shown = change[self.collection.one]
            made = Delivery(token, change["documentId"], change.get("version"), shown)
            self.deliveries.append(made)


@asynccontextmanager
async def subscribed(subscribers: list[Subscriber], address: str) -> AsyncIterator[None]:
    """Subscribe all of them at this gateway."""
    tasks = [asyncio.create_task(each.run(address)) for each in subscribers]
    try:
        yield
    finally:
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
