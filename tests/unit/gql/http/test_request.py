"""Request bodies: in pieces, too long, too slow, or incomplete."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from revstream.gql.http import request as request_module
from revstream.gql.http.request import GraphQLRequest, Refused, headers_of, read_request

BODY = b'{"query": "{ a }", "operationName": ""}'


def request(pieces: Sequence[bytes], *, ends: bool = True, **headers: str) -> Request:
    """Return the server's request; an incomplete one waits forever."""
    left = list(pieces)
    given = {"content-type": "application/json", **headers}

    async def receive() -> dict[str, Any]:
        if left:
            more = len(left) > 1 or not ends
            return {"type": "http.request", "body": left.pop(0), "more_body": more}
        await asyncio.Event().wait()
        raise AssertionError

    scope = {
        "type": "http",
        "method": "POST",
        "headers": [(name.replace("_", "-").encode(), v.encode()) for name, v in given.items()],
    }
    return Request(scope, receive)


async def read(incoming: Request, most_bytes: int) -> GraphQLRequest:
    headers = headers_of(incoming.scope)
    return await read_request(incoming.scope, incoming._receive, headers, most_bytes=most_bytes)


@pytest.mark.parametrize("size", [1, 7, len(BODY)])
async def test_a_body_is_joined(size: int) -> None:
    """It may be split anywhere; exactly the limit is not too long."""
    pieces = [BODY[n : n + size] for n in range(0, len(BODY), size)]
    found = await read(request(pieces), len(BODY))
    assert found == GraphQLRequest(query="{ a }")


@pytest.mark.parametrize("ends", [True, False])
async def test_reading_stops_at_the_byte_beyond_the_limit(ends: bool) -> None:
    """The rest of the body is not awaited."""
    refused = request([BODY, b" " * 10, b" " * 10_000], ends=ends)
    with pytest.raises(Refused, match="more than 40 bytes") as caught:
        await read(refused, 40)
    assert caught.value.status == 413
    assert await anext(refused.stream()) == b" " * 10_000


@pytest.mark.parametrize("length", ["41", "9" * 400])
async def test_a_content_length_beyond_the_limit_is_refused(length: str) -> None:
    """The body is not read."""
    announced = request([], ends=False, content_length=length)
    with pytest.raises(Refused) as caught:
        await read(announced, 40)
    assert caught.value.status == 413


async def test_a_wrong_content_length_does_not_help() -> None:
    """The received bytes are counted."""
    with pytest.raises(Refused) as caught:
        await read(request([BODY], content_length="1"), 10)
    assert caught.value.status == 413


async def test_a_body_that_does_not_arrive_is_not_awaited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The status is 408, and the client may send it again."""
    monkeypatch.setattr(request_module, "_BODY_MOST_S", 0.05)
    with pytest.raises(Refused, match=r"0\.05 s") as caught:
        await read(request([b"{"], ends=False), 100)
    assert caught.value.status == 408


async def test_a_client_that_disconnected_gets_no_response() -> None:
    """The exception is the client's disconnect."""

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    gone = request([])
    gone._receive = receive
    with pytest.raises(ClientDisconnect):
        await read(gone, 100)
