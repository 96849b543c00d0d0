"""The response to an operation that was executed: nearly all of them, made with as little as it
takes.

Over a connection of uvicorn's own it leaves in one piece: by two messages of ASGI it is two writes,
each of which the system is asked for and the client is woken by, and its headers are looked through
one by one each time. Wherever something stands in between that wants to see the messages (CORS, a
test's client), and wherever the connection is not to go on, they are sent as ASGI has it.

Source: RFC 9112, 2.1 "Message Format". docs/decisions/0023
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import orjson
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gql.departures import ResponseOutlet
from gql.http_requests import cycle_of
from gql.media_types import JSON, MediaType
from gql.outlets import OUTLET, Outlet

__all__ = ["HEADERS", "Executed"]

HEADERS: Mapping[str, str] = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
"""Of every response of this API, beside its type and length."""

_Raw = tuple[bytes, bytes]
_NONE: Mapping[str, Any] = {}
# Bytes of a response that leaves together with others; to copy more takes longer than to write it.
_MOST_TOGETHER = 16 * 1024


class Executed:
    """200, with a body of JSON."""

    __slots__ = ("_body", "_media_type")

    def __init__(self, body: Mapping[str, Any], media_type: MediaType) -> None:
        self._body = orjson.dumps(body)
        self._media_type = media_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body, name = self._body, self._media_type.name
        cycle = cycle_of(send)
        if cycle is not None and self.leave(cycle, scope.get("extensions", _NONE).get(OUTLET)):
            return
        headers = [*_headers(name), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def leave(self, cycle: RequestResponseCycle, outlet: Outlet | None) -> bool:
        """At once, where nothing is unusual about the connection; else False.

        Args:
            cycle: of which nothing was sent.
        """
        plain = _is_plain(cycle)
        if plain:
            _send_whole(cycle, self._media_type.name, self._body, outlet)
        return plain


def _is_plain(cycle: RequestResponseCycle) -> bool:
    """Whether the connection takes a response now, and another request after it."""
    return (
        cycle.keep_alive
        and not cycle.response_started
        and not cycle.disconnected
        and not cycle.flow.write_paused
        and not cycle.access_log
    )


def _send_whole(cycle: RequestResponseCycle, name: str, body: bytes, outlet: Outlet | None) -> None:
    """As the cycle's own `send` does it, for a response that is known as a whole."""
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    head = b"%b%d\r\n\r\n" % (_HEADS.of(name, cycle.default_headers), len(body))
    if not isinstance(outlet, ResponseOutlet) or len(body) > _MOST_TOGETHER:
        cycle.transport.writelines((head, body))
    else:
        outlet.departures.add(outlet, head + body)
    cycle.message_event.set()
    cycle.on_response()


class _Heads:
    """Heads up to their length, by media type, with the headers that uvicorn adds: the same list
    for a second, whose date it has."""

    def __init__(self) -> None:
        self._added: list[_Raw] = []
        self._made: dict[str, bytes] = {}

    def of(self, name: str, added: list[_Raw]) -> bytes:
        if added is not self._added:
            self._added, self._made = added, {}
        made = self._made.get(name)
        if made is None:
            lines = [b"%b: %b\r\n" % each for each in (*added, *_headers(name))]
            made = b"HTTP/1.1 200 OK\r\n%bcontent-length: " % b"".join(lines)
            self._made[name] = made
        return made


_HEADS = _Heads()


@cache
def _headers(name: str) -> Sequence[_Raw]:
    headers = {**HEADERS, "content-type": str(MediaType(name, JSON.parameters))}
    return [(name.encode(), value.encode()) for name, value in headers.items()]
