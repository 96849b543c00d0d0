"""Heads of requests that have come before, byte for byte: what they say is known, and who answers
them keeps what he found out about it.

A client sends the same head with nearly each of its requests, and only the body differs. A head
that is known is neither read again nor handed down through all who look at it: whoever has answered
one, and says so (`NewHead.keep`), is asked at once.

Source: docs/decisions/0033-known-heads.md
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gql.recent import Recent
from gql.responses import Executed

__all__ = ["NEW_HEAD", "Answerer", "KnownHead", "KnownHeads", "NewHead", "Waiting", "known_heads"]

log = logging.getLogger(__name__)

NEW_HEAD = "revstream.head"
"""Among the extensions of a scope: the `NewHead` of its request, where it may be kept."""

_END = b"\r\n\r\n"
_LONGEST = 4096
# What they have after them is not a body of so many bytes, or not a request.
_OTHERWISE = frozenset({b"expect", b"transfer-encoding", b"upgrade"})
# What no head says.
_OF_A_CONNECTION = frozenset({"client", "extensions", "server", "state"})
# What uvicorn makes a request and its response of. Where its head is known, they are made here.
_OF_A_CYCLE = (
    *("scope", "transport", "flow", "logger", "access_logger", "access_log", "default_headers"),
    *("message_event", "expect_100_continue", "keep_alive", "on_response"),
)


class Waiting(Protocol):
    """A request that waits for its response."""

    def answer(self, response: Executed) -> None:
        """With a whole response."""

    def hand_over(self, app: ASGIApp) -> None:
        """To who answers it in a task of its own."""


class Answerer(Protocol):
    """Who answers requests that have one head."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def begin(self, body: bytes, waiting: Waiting) -> bool:
        """Begin to answer one, without a task where that can be; False where nothing was done."""


@dataclass(frozen=True, slots=True)
class KnownHead:
    """Attributes:
    scope: but for what is the connection's. length: of the body. app: who answers.
    """

    scope: Mapping[str, Any]
    length: int
    app: Answerer


class NewHead:
    """Of a request that came as a whole."""

    __slots__ = ("_heads", "_length", "_raw", "_scope")

    def __init__(self, heads: KnownHeads, raw: bytes, length: int, scope: Scope) -> None:
        self._heads = heads
        self._raw = raw
        self._length = length
        self._scope = scope

    def keep(self, app: Answerer) -> None:
        """From now on `app` answers what has this head.

        Nobody else is asked before: neither may what they say depend on anything but the head.
        """
        self._heads.keep(self._raw, KnownHead(self._scope, self._length, app))


class KnownHeads:
    """Of one process; the one that was not seen longest goes first.

    Args:
        most: how many. most_bytes: of all together; what they say takes some 3 KB more each.
    """

    def __init__(self, *, most: int = 4000, most_bytes: int = 2_000_000) -> None:
        self._kept = Recent[bytes, KnownHead](most=most, most_size=most_bytes)

    def known(self, data: bytes) -> tuple[KnownHead, bytes] | None:
        """A head that is known, and the body behind it, where these are all."""
        end = data.find(_END, 0, _LONGEST) + 4
        known = self._kept.get(data[:end])
        if known is None or len(data) != end + known.length:
            return None
        return known, data[end:]

    def new(self, data: bytes, scope: Mapping[str, Any]) -> NewHead | None:
        """What may be kept of a request that came as a whole, and in which nothing else came."""
        end = data.find(_END, 0, _LONGEST) + 4
        length = len(data) - end
        headers = scope["headers"]
        if end < 4 or not _OTHERWISE.isdisjoint(name for name, _ in headers):
            return None
        # Where an empty line is not the end of the head (as before a request, where it is passed
        # over), what is behind it is not the body, and would be taken for one.
        lengths = [value for name, value in headers if name == b"content-length"]
        if lengths != ([b"%d" % length] if lengths or length else []):
            return None
        said = {name: each for name, each in scope.items() if name not in _OF_A_CONNECTION}
        return NewHead(self, data[:end], length, said)

    def keep(self, raw: bytes, known: KnownHead) -> None:
        self._kept.keep(raw, known, len(raw))


def known_heads() -> KnownHeads:
    """None are ever known where uvicorn is another than is understood here."""
    if tuple(inspect.signature(RequestResponseCycle).parameters) == _OF_A_CYCLE:
        return KnownHeads()
    log.warning("heads are read each time", extra={"uvicorn": uvicorn.__version__})
    return KnownHeads(most=0)
