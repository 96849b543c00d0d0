"""gql.known_heads: a request whose head is known is answered as if it had been read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState

from gql import known_heads as known
from gql.connections import Connections, WebSocketConnection
from gql.heads import RequestConnection
from gql.http_requests import headers_of, read_json
from gql.known_heads import NEW_HEAD, KnownHeads, Waiting, known_heads
from gql.media_types import JSON
from gql.responses import Executed
from tests.support.fuzzing import examples
from tests.unit.gql.test_responses import Recording

END = b"\r\n\r\n"
UPGRADE = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"


def post(body: bytes, *headers: bytes, version: bytes = b"1.1") -> bytes:
    lines = [
        b"POST /graphql?a=%20b HTTP/" + version,
        b"Host: shop",
        b"Content-Type: application/json",
        *headers,
        b"Content-Length: %d" % len(body),
    ]
    return b"\r\n".join(lines) + END + body


@dataclass
class Endpoint:
    """Tells what it was asked, and keeps each head that may be kept.

    `read`: how many heads were handed down to it. `late`: it takes the longer the less it is asked.
    `answering`: cleared, it waits for it. `begins`: what has a known head it answers without a
    task, or says in the end that it cannot, turn by turn.
    """

    keeps: bool
    read: int = 0
    late: bool = False
    begins: bool = False
    begun: int = 0
    beginning: set[asyncio.Task[None]] = field(default_factory=set)
    states: list[Any] = field(default_factory=list)
    answering: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.answering.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.read += 1
        new = scope["extensions"].get(NEW_HEAD)
        if new is not None and self.keeps:
            new.keep(OfHead(self, scope))
        await self.answer(scope, receive, send)

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        headers = headers_of(scope)
        self.states.append(scope["state"])
        asked: Any = None
        if scope["method"] == "POST" and "x-unread" not in headers:
            asked = await read_json(receive, headers, most_bytes=1000)
        for _ in range(5 - asked.get("n", 0) if self.late and asked else 0):
            await asyncio.sleep(0)
        await self.answering.wait()
        await told(scope, asked)(scope, receive, send)


def told(scope: Any, asked: Any) -> Executed:
    told = {
        name: scope[name]
        for name in ("type", "http_version", "method", "path", "scheme", "root_path")
    }
    told |= {
        "raw": [scope["raw_path"].decode(), scope["query_string"].decode()],
        "places": [scope["server"], scope["client"]],
    }
    return Executed({**told, "headers": headers_of(scope), "asked": asked}, JSON)


@dataclass
class OfHead:
    """Answers what has the head of a request that came before; all connections here are between the
    same places."""

    endpoint: Endpoint
    scope: Any

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.endpoint.answer(scope, receive, send)

    def begin(self, body: bytes, waiting: Waiting) -> bool:
        endpoint, headers = self.endpoint, headers_of(self.scope)
        if not endpoint.begins or self.scope["method"] != "POST" or "x-unread" in headers:
            return False
        try:
            asked = orjson.loads(body)
        except ValueError:
            return False
        endpoint.begun += 1
        even = endpoint.begun % 2 == 0

        async def later() -> None:
            for _ in range(5 - asked.get("n", 0) if endpoint.late else 1):
                await asyncio.sleep(0)
            await endpoint.answering.wait()
            if even:
                waiting.answer(told(self.scope, asked))
            else:
                waiting.hand_over(self)

        task = asyncio.get_running_loop().create_task(later())
        endpoint.beginning.add(task)
        task.add_done_callback(endpoint.beginning.discard)
        return True


class Opened:
    """One connection of a server, without sockets."""

    def __init__(self, endpoint: Any, kept: KnownHeads, *, keep_alive_s: int = 5) -> None:
        connections = Connections(most=1, most_bytes=1, stalled_s=1, failed=unexpected)
        config = uvicorn.Config(
            endpoint,
            ws=partial(WebSocketConnection, connections=connections),  # type: ignore[arg-type]
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=keep_alive_s,
        )
        config.load()
        self._beginning = getattr(endpoint, "beginning", ())
        self.state = ServerState()
        self.state.default_headers = [(b"server", b"uvicorn")]
        self.transport = Recording()
        self.connection = RequestConnection(
            config,
            self.state,
            {"of": "the application"},
            asyncio.get_running_loop(),
            connections=connections,
            heads=kept,
        )
        self.transport.set_protocol(self.connection)
        self.connection.connection_made(self.transport)

    async def send(self, *chunks: bytes) -> bytes:
        """What has come back by the time that nothing is under way."""
        before = len(self.transport.writes)
        for chunk in chunks:
            if not self.transport.closed:
                self.connection.data_received(chunk)
        while self.state.tasks or self._beginning:
            await asyncio.gather(*self.state.tasks, *self._beginning)
            # Each leaves the list one turn after it has ended.
            await asyncio.sleep(0)
        return b"".join(self.transport.writes[before:])

    def close(self) -> None:
        self.connection.connection_lost(None)


def unexpected(exc: Exception) -> Any:
    raise exc


async def test_a_head_that_has_come_before_is_not_read_again() -> None:
    """Over whichever connection; its bodies are each request's own."""
    endpoint, kept = Endpoint(keeps=True), known_heads()
    first, second = Opened(endpoint, kept), Opened(endpoint, kept)
    answers = [
        await each.send(post(body))
        for each in (first, second)
        for body in (b'{"n": 1}', b'{"n": 2}')
    ]
    assert endpoint.read == 1
    assert [b'"asked":{"n":%d}' % n in each for n, each in zip((1, 2) * 2, answers, strict=True)]
    assert answers[:2] == answers[2:]
    # One request's state is not another's.
    assert endpoint.states == [{"of": "the application"}] * 4
    assert len(set(map(id, endpoint.states))) == 4
    # One more digit, and it is another head.
    await first.send(post(b'{"n": 10}'))
    assert endpoint.read == 2
    for each in (first, second):
        each.close()


@pytest.mark.parametrize(
    "request_",
    [
        post(b"{}", b"Expect: 100-continue"),
        post(b"{}", b"Connection: close"),
        post(b"{}", version=b"1.0"),
        post(b"{}", b"X-Long: " + 5000 * b"a"),
        b"POST / HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        2 * post(b"{}"),
        post(b"{}") + b"P",
        b"\r\n\r\n" + post(b"{}"),
        post(b"{}").replace(b"Length: 2", b"Length: 02"),
    ],
    ids=["expect", "close", "1.0", "long", "chunked", "two", "more", "empty lines", "zeros"],
)
async def test_what_is_not_a_head_and_so_many_bytes_is_not_kept(request_: bytes) -> None:
    endpoint, kept = Endpoint(keeps=True), known_heads()
    for _ in range(2):
        opened = Opened(endpoint, kept)
        assert b'"asked":{}' in await opened.send(request_)
        opened.close()
    assert endpoint.read == 2 * request_.count(b"HTTP/1.")


async def test_what_looks_like_a_request_within_another_is_none() -> None:
    """Be it in a body whose request is answered already, or that is yet to be answered."""
    endpoint, kept = Endpoint(keeps=True), known_heads()
    known = post(b"{}")
    for headers, answers in (((b"X-Unread: 1",), 1), ((), 0)):
        opened = Opened(endpoint, kept)
        await opened.send(known)
        begun = post(b'"' + known + b'"', *headers).partition(END)[0] + END
        opened.connection.data_received(begun + b'"')
        await asyncio.sleep(0)
        # Responses leave at the end of the turn in which they are made.
        await asyncio.sleep(0)
        before = len(opened.transport.writes)
        assert before == 1 + answers
        opened.connection.data_received(known)
        await asyncio.sleep(0)
        assert len(opened.transport.writes) == before
        # Not JSON, which the endpoint is not made for.
        opened.connection.data_received(b'"')
        await opened.send()
        opened.close()


async def test_nobody_is_taken_for_another_one_behind_empty_lines() -> None:
    """Which a request may begin with. They are not its head, nor is it its own body."""
    endpoint, kept = Endpoint(keeps=True), known_heads()
    opened = Opened(endpoint, kept)
    signed = 4 * b"\r\n" + post(b"{}", b"Authorization: Bearer of-ann")
    assert b"of-ann" in await opened.send(signed)
    forged = b"\r\n\r\n" + b'{"n": 1}'.ljust(len(signed) - 4)
    assert b"of-ann" not in await opened.send(forged)
    assert endpoint.read == 1
    opened.close()


async def test_one_that_comes_too_early_waits_for_its_turn() -> None:
    """The first one's answer is the first, though it takes longer."""
    endpoint, kept = Endpoint(keeps=True, late=True), known_heads()
    opened = Opened(endpoint, kept)
    requests = [post(b'{"n": %d}' % n) for n in (1, 2, 3)]
    await opened.send(requests[0])
    answers = await opened.send(*requests)
    places = [answers.index(b'"asked":{"n":%d}' % n) for n in (1, 2, 3)]
    assert places == sorted(places)
    opened.close()


async def test_a_handshake_is_one_each_time() -> None:
    """Behind a request on the same connection, whose time without a request is over then."""
    endpoint, kept = Endpoint(keeps=True), known_heads()
    handshake = b"GET / HTTP/1.1\r\nHost: shop\r\n" + UPGRADE + b"\r\n"
    for _ in range(2):
        opened = Opened(endpoint, kept)
        await opened.send(post(b"{}"))
        assert opened.connection._looking is not None
        # It is no good one, and is told so by who takes handshakes.
        assert (await opened.send(handshake)).startswith(b"HTTP/1.1 400 ")
        assert opened.connection._looking is None
    assert endpoint.read == 1


async def test_where_uvicorn_is_another_heads_are_read(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, and nothing else is otherwise. The one that is installed is understood."""
    assert not caplog.records
    monkeypatch.setattr(known, "_OF_A_CYCLE", ("another",))
    endpoint, kept = Endpoint(keeps=True), known_heads()
    assert [each.message for each in caplog.records] == ["heads are read each time"]
    opened = Opened(endpoint, kept)
    for _ in range(2):
        assert b'"asked":{}' in await opened.send(post(b"{}"))
    assert endpoint.read == 2
    opened.close()


async def test_one_that_is_asked_nothing_any_more_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So long after its last response, and not while something comes."""
    endpoint = Endpoint(keeps=True)
    opened = Opened(endpoint, known_heads())
    now, later = 100.0, []
    loop = opened.connection.loop
    monkeypatch.setattr(opened.connection, "loop", Clock(lambda: now, later, loop))

    await opened.send(post(b"{}"))
    [(after, look)] = later
    assert after == 5
    now = 103.0
    await opened.send(post(b"{}"))
    assert len(later) == 1
    now = 105.0
    look()
    assert [each[0] for each in later] == [5, 3]
    # A request of which a part has come.
    opened.connection.data_received(post(b"{}")[:-1])
    now = 108.0
    look()
    assert len(later) == 2
    assert not opened.transport.closed
    await opened.send(b"}")
    assert len(later) == 3
    # One whose head is known, and which is yet to be answered.
    endpoint.answering.clear()
    opened.connection.data_received(post(b"{}"))
    await asyncio.sleep(0)
    now = 114.0
    look()
    assert not opened.transport.closed
    endpoint.answering.set()
    await opened.send()
    assert len(later) == 4
    now = 119.0
    look()
    assert opened.transport.closed
    opened.close()


class Clock:
    """A loop whose time is what is said."""

    def __init__(
        self,
        time: Callable[[], float],
        later: list[tuple[float, Callable[[], None]]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.time = time
        self.create_task = loop.create_task
        self._later = later
        self._loop = loop

    def call_later(self, delay: float, call: Callable[[], Any], *args: Any) -> Any:
        if call.__name__ == "_look":
            self._later.append((delay, call))
        handle = self._loop.call_later(60, call, *args)
        handle.cancel()
        return handle


BODIES = st.sampled_from([b"{}", b'{"n": 1}', b'{"n": 2}', b'{"n": "%s"}' % (b"x" * 1000), b"no"])
REQUESTS = st.one_of(
    BODIES.map(post),
    BODIES.map(lambda body: post(body, b"X-Trace: 1", b"X-Trace: 2")),
    st.just(b"GET /graphql?query=a HTTP/1.1\r\nHost: shop" + END),
    st.just(b"GET /graphql HTTP/1.1\r\nHost: shop\r\nContent-Length: 0" + END),
    st.just(post(b"{}", b"Expect: 100-continue")),
    st.just(
        b"POST / HTTP/1.1\r\nHost: shop\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    ),
    st.just(post(b"{}", b"Connection: close")),
    st.just(b"\r\n"),
    st.just(b"nonsense"),
)


@st.composite
def talks(draw: Any) -> list[list[list[bytes]]]:
    """What is sent over several connections: each time some chunks, at whose ends requests need not
    end."""
    return [
        [_cut(draw, b"".join(draw(st.lists(REQUESTS, max_size=3)))) for _ in range(4)]
        for _ in range(3)
    ]


def _cut(draw: Any, data: bytes) -> list[bytes]:
    if not data or draw(st.booleans()):
        return [data] if data else []
    places = sorted(draw(st.sets(st.integers(1, max(1, len(data) - 1)), max_size=3)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True) if a < b]


@settings(max_examples=examples(300), deadline=None)
@given(talks(), st.booleans(), st.booleans())
def test_whatever_comes_is_answered_as_without(
    talk: list[list[list[bytes]]], late: bool, begins: bool
) -> None:
    """Byte for byte, over all connections, whatever is in pieces, at once, or no request at all;
    with a task for each, and without."""

    async def told(keeps: bool) -> list[Any]:
        endpoint, kept = Endpoint(keeps=keeps, late=late, begins=begins), known_heads()
        answers: list[Any] = []
        for connection in talk:
            opened = Opened(endpoint, kept)
            answers += [await opened.send(*chunks) for chunks in connection]
            answers.append(opened.transport.closed)
            opened.close()
        return answers

    assert asyncio.run(told(True)) == asyncio.run(told(False))


async def test_nothing_of_a_connection_is_kept_with_its_head() -> None:
    """It would be there for as long as the head is."""
    kept = known_heads()
    opened = Opened(Endpoint(keeps=True), kept)
    await opened.send(post(b"{}"))
    found = kept.known(post(b"{}"))
    assert found is not None
    assert found[0].scope.keys() == {
        *("type", "asgi", "http_version", "scheme", "root_path", "headers"),
        *("method", "path", "raw_path", "query_string"),
    }
    opened.close()


def test_no_more_are_kept_than_may_be() -> None:
    """The one that was not seen longest goes first."""
    kept = KnownHeads(most=2)
    for path in (b"/a", b"/b", b"/c"):
        request = post(b"{}").replace(b"/graphql", path)
        new = kept.new(request, {"headers": [(b"content-length", b"2")], "path": path})
        assert new is not None
        new.keep(unexpected)
    found = [kept.known(post(b"{}").replace(b"/graphql", path)) for path in (b"/a", b"/b", b"/c")]
    assert [each and each[0].scope["path"] for each in found] == [None, b"/b", b"/c"]
