"""gql.departures: responses of one turn leave together, each before whatever comes behind it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gql.departures import Departures, ResponseOutlet
from gql.known_heads import KnownHeads
from gql.media_types import JSON
from gql.responses import Executed
from tests.support.streams import turn
from tests.unit.gql.test_known_heads import Opened, post
from tests.unit.gql.test_responses import Recording


def outlet_of(transport: asyncio.Transport, departures: Departures) -> ResponseOutlet:
    outlet = ResponseOutlet(lambda _: False, departures)
    outlet.open(transport)
    return outlet


async def test_responses_of_a_turn_leave_together_at_its_end() -> None:
    """In the order in which they were made; one more to the same client goes behind the first."""
    departures, written = Departures(), []
    transports = [Recording() for _ in range(3)]
    for number, each in enumerate(transports):
        each.write = lambda data, n=number: written.append((n, data))  # type: ignore[method-assign]
    outlets = [outlet_of(each, departures) for each in transports]
    for number in (2, 0, 1):
        departures.add(outlets[number], b"first")
    assert written == []
    departures.add(outlets[2], b"second")
    assert written == [(2, b"first")]
    await turn()
    assert written == [(2, b"first"), (0, b"first"), (1, b"first"), (2, b"second")]
    departures.add(outlets[0], b"third")
    await turn()
    assert written[4:] == [(0, b"third")]
    assert not departures.waiting


async def test_who_is_gone_meanwhile_is_not_written_to() -> None:
    departures, gone, hurried = Departures(), Recording(), Recording()
    outlet = outlet_of(hurried, departures)
    departures.add(outlet_of(gone, departures), b"too late")
    departures.add(outlet, b"too late")
    gone.closed = hurried.closed = True
    departures.hurry(outlet)
    departures.hurry(outlet_of(Recording(), departures))
    await turn()
    assert (gone.writes, hurried.writes) == ([], [])
    assert not departures.waiting


async def test_who_has_asked_is_answered_however_much_waits() -> None:
    departures, transport = Departures(), Recording()
    outlet = outlet_of(transport, departures)
    outlet.pause()
    departures.add(outlet, b"at last")
    await turn()
    assert transport.writes == [b"at last"]


@pytest.mark.parametrize(
    "body", [{"data": "short"}, {"data": "long" * 10_000}], ids=["short", "long"]
)
async def test_what_is_refused_behind_a_response_is_refused_behind_it(body: Any) -> None:
    """As is the end of the process."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Executed(body, JSON)(scope, receive, send)
        if scope["query_string"]:
            opened.connection.data_received(b"no request\r\n\r\n")
        else:
            opened.connection.shutdown()

    for request, behind in ((post(b"{}"), 1), (post(b"{}").replace(b"?a=%20b", b""), 0)):
        opened = Opened(app, KnownHeads(most=0))
        answer = await opened.send(request)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.count(b"HTTP/1.1 400 Bad Request") == behind
        assert opened.transport.closed
        opened.close()
