"""Clients that subscribe, lose their gateway, and resume at any other with their last token."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx2 as httpx
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

__all__ = ["Delivery", "Subscriber", "token_of_now"]

FIELDS = {"things": ("thingChanges", "thing"), "tallies": ("tallyChanges", "tally")}
# Errors that a client may get in an outage; any other is a finding.
PASSING = {"UNAVAILABLE", "SLOW_CONSUMER", "ARCHIVE_BEHIND", "TIMEOUT"}
# Clients should send pings: a suspended gateway does not answer them.
PING_S = 3.0
SILENT_S = 20.0


class Delivery(NamedTuple):
    """One change that a subscriber received; `version` is None if it was not selected."""

    token: str
    key: str
    operation: str
    version: int | None
    op: int | None
    gap: bool


@dataclass
class Subscriber:
    """One client.

    Args:
        key: the document that it follows; None: the whole collection.
        versions: whether it selects `version`, for which the gateway waits for the archive.
        stays_s: it disconnects after about this time and comes back; 0: it stays.
        lag_s: its processing time for each event.
    """

    name: str
    collection: str
    start: str
    addresses: Sequence[str]
    rng: random.Random
    key: str | None = None
    versions: bool = True
    stays_s: float = 0.0
    lag_s: float = 0.0
    deliveries: list[Delivery] = field(default_factory=list)
    token: str = ""
    reached: str = ""
    connects: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)
    replayed: int = 0
    longest_silence_s: float = 0.0

    def __post_init__(self) -> None:
        self.token = self.start
        field_name, product = FIELDS[self.collection]
        version = "version" if self.versions else ""
        self.query = (
            f"subscription($after: ResumeToken, $id: ID) {{ changes: {field_name}"
            f"(after: $after, id: $id) {{ kind operation documentId {version} gap replayed "
            f"resumeToken document: {product} {{ op }} }} }}"
        )

    async def run(self) -> None:
        """Follow forever."""
        while True:
            address = self.rng.choice(self.addresses)
            try:
                await self._follow(address)
            except (OSError, WebSocketException, TimeoutError) as exc:
                self.ends[type(exc).__name__] += 1
            await asyncio.sleep(self.rng.uniform(0.1, 0.6))

    async def _follow(self, address: str) -> None:
        url = address.replace("http", "ws", 1) + "/graphql"
        leaves_at = time.monotonic() + self.rng.uniform(0.5, 1.5) * self.stays_s
        async with connect(
            url,
            subprotocols=[Subprotocol("graphql-transport-ws")],
            max_size=None,
            open_timeout=PING_S,
            ping_interval=PING_S,
            ping_timeout=PING_S,
            close_timeout=0.5,
        ) as socket:
            await socket.send('{"type": "connection_init"}')
            while json.loads(await asyncio.wait_for(socket.recv(), PING_S))["type"] != (
                "connection_ack"
            ):
                pass
            variables = {"after": self.token, "id": self.key}
            payload = {"query": self.query, "variables": variables}
            await socket.send(json.dumps({"id": "1", "type": "subscribe", "payload": payload}))
            self.connects += 1
            while True:
                message = json.loads(await asyncio.wait_for(socket.recv(), SILENT_S))
                if not self._take(message, address):
                    return
                if self.lag_s:
                    await asyncio.sleep(self.lag_s)
                if self.stays_s and time.monotonic() > leaves_at:
                    self.ends["left by itself"] += 1
                    socket.transport.abort()
                    return

    def _take(self, message: dict[str, Any], address: str) -> bool:
        """Handle a message; returns False once the subscription has ended."""
        kind, body = message["type"], message.get("payload")
        if kind == "complete":
            self.ends["completed"] += 1
            return False
        errors = body if kind == "error" else (body or {}).get("errors")
        if errors:
            for each in errors if isinstance(errors, list) else [errors]:
                code = str(each.get("extensions", {}).get("code"))
                self.ends[code] += 1
                if code not in PASSING:
                    self.findings.append(
                        f"{self.name} at {address} after {self.token}: {code}: {each['message']}"
                    )
            return False
        if kind != "next" or body is None:
            return True
        change = body["data"]["changes"]
        self.token = change["resumeToken"]
        token = self.token.rpartition(".")[0]
        if token < self.reached:
            self.findings.append(f"{self.name}: token {token} came after {self.reached}")
        self.reached = token
        if change["kind"] == "CHECKPOINT":
            return True
        self.replayed += bool(change["replayed"])
        document = change["document"]
        self.deliveries.append(
            Delivery(
                token,
                change["documentId"],
                change["operation"],
                change.get("version"),
                document and document["op"],
                change["gap"],
            )
        )
        return True


async def token_of_now(address: str) -> str:
    """Return the current resume token of a gateway."""
    async with httpx.AsyncClient(timeout=10) as client:
        answer = await client.post(f"{address}/graphql", json={"query": "{ resumeToken }"})
    return str(answer.json()["data"]["resumeToken"])
