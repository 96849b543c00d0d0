"""One subscription over graphql-transport-ws, whose events are kept until the page reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.support.eventually import wait_until
from tests.support.metrics import families

__all__ = ["EVENT_S", "Subscription", "open_subscription"]

EVENT_S = 30.0
_PROPOSALS = re.compile(r"(Draft|Comment)Changes")


class Subscription:
    """An open subscription."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    def next(self) -> dict[str, Any]:
        """Return the next event that is not a checkpoint.

        Raises:
            TimeoutError: There is none within 30 s.
            AssertionError: The subscription has ended.
        """
        while True:
            message = self.receive()
            if message["type"] != "next":
                raise AssertionError(f"ended by {json.dumps(message)}, expected an event")
            if not _is_checkpoint(message["payload"].get("data") or {}):
                payload: dict[str, Any] = message["payload"]
                return payload

    def send(self, kind: str, id_: str | None = None, payload: object = None) -> None:
        message = {"id": id_, "type": kind, "payload": payload}
        given = {name: value for name, value in message.items() if value is not None}
        self._connection.send(json.dumps(given))

    def receive(self) -> dict[str, Any]:
        """Return the next message, keep-alives answered."""
        while True:
            message: dict[str, Any] = json.loads(self._connection.recv(timeout=EVENT_S))
            if message["type"] != "ping":
                return message
            self.send("pong")


@contextmanager
def open_subscription(address: str, operation: dict[str, Any]) -> Iterator[Subscription]:
    """Open a subscription; yields it once events are followed, so that no write is missed.

    The protocol has no message for that, but the gateway counts subscriptions.
    """
    url = address.replace("http", "ws", 1) + "/graphql"
    protocol = Subprotocol("graphql-transport-ws")
    # Without a maximum: a page reads its events late, and some never.
    with connect(url, subprotocols=[protocol], max_size=None, max_queue=None) as connection:
        subscription = Subscription(connection)
        subscription.send("connection_init")
        assert subscription.receive()["type"] == "connection_ack"
        before = _followed(address)
        subscription.send("subscribe", "1", operation)
        # Drafts and comments are not counted: they are read from their collection.
        if not _PROPOSALS.search(operation["query"]):
            wait_until(lambda: _followed(address) > before, within_s=EVENT_S)
        yield subscription


def _followed(address: str) -> float:
    return sum(each.value for each in families(address)["revstream_subscriptions"].samples)


def _is_checkpoint(data: dict[str, Any]) -> bool:
    """Return whether an event carries a token only; `kind` may not be selected."""
    always = {"resumeToken", "replayed", "gap", "kind", "__typename"}
    return all(
        change is not None
        and change.get("kind", "CHECKPOINT") == "CHECKPOINT"
        and all(value is None for name, value in change.items() if name not in always)
        for change in data.values()
    )
