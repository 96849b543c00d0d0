"""Responses that leave in one piece are the very bytes that ASGI's two messages would be."""

import asyncio
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from gql.media_types import JSON, MediaType
from gql.responses import Executed

BODY = {"data": {"name": "Zoë", "numbers": [1, 2.5, None]}}
ASKED = b"POST /graphql HTTP/1.1\r\nHost: shop\r\nContent-Length: 2\r\n\r\n{}"


class Recording(asyncio.Transport):
    """Attributes:
    writes: what the system would have been asked to send, each time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closed = False
        self.protocol: Any = None

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def writelines(self, lines: Any) -> None:
        self.writes.append(b"".join(lines))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_protocol(self) -> Any:
        return self.protocol

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def sent(request: bytes, *, watched: bool, media_type: MediaType = JSON) -> Recording:
    """What a connection sends that is asked this.

    Args:
        watched: something stands in between that looks at ASGI's messages.
    """

    async def app(scope: Any, receive: Any, send: Any) -> None:
        async def seen(message: Any) -> None:
            await send(message)

        await Executed(BODY, media_type)(scope, receive, seen if watched else send)

    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False)
    config.load()
    state, transport = ServerState(), Recording()
    state.default_headers = [(b"date", b"Mon, 23 Nov 2026 10:00:00 GMT"), (b"server", b"uvicorn")]
    protocol = HttpToolsProtocol(config, state, {}, asyncio.get_running_loop())
    protocol.connection_made(transport)
    protocol.data_received(request)
    while state.tasks:
        await asyncio.gather(*state.tasks)
        # Each leaves the list one turn after it has ended.
        await asyncio.sleep(0)
    # Which closes the transport, too.
    closed = transport.closed
    protocol.connection_lost(None)
    transport.closed = closed
    return transport


@pytest.mark.parametrize(
    "media_type",
    [JSON, MediaType("application/graphql-response+json", {"charset": "utf-8"})],
    ids=["json", "response-json"],
)
async def test_one_write_of_the_same_bytes(media_type: MediaType) -> None:
    whole = await sent(ASKED, watched=False, media_type=media_type)
    parts = await sent(ASKED, watched=True, media_type=media_type)

    assert len(whole.writes) == 1
    assert len(parts.writes) == 2
    assert whole.writes == [b"".join(parts.writes)]
    assert not whole.closed


@pytest.mark.parametrize(
    "request_",
    [
        ASKED.replace(b"Host: shop", b"Host: shop\r\nConnection: close"),
        ASKED.replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
    ids=["close", "http-1.0"],
)
async def test_a_connection_that_does_not_go_on_is_closed(request_: bytes) -> None:
    whole = await sent(request_, watched=False)
    parts = await sent(request_, watched=True)

    assert b"connection: close\r\n" in b"".join(whole.writes)
    assert b"".join(whole.writes) == b"".join(parts.writes)
    assert whole.closed
    assert parts.closed


async def test_requests_sent_at_once_are_answered_one_after_the_other() -> None:
    whole = await sent(ASKED * 3, watched=False)
    parts = await sent(ASKED * 3, watched=True)

    assert len(whole.writes) == 3
    assert b"".join(whole.writes) == b"".join(parts.writes)
