"""Transcripts of whole conversations over every transport equal the snapshots exactly."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

import httpx2 as httpx
import pytest
from bson import Decimal128
from pymongo import MongoClient
from pymongo.collection import Collection
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.support.beginning import begin_new
from tests.support.eventually import wait_until
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.snapshots import assert_snapshot
from tests.support.sockets import LEGACY, TRANSPORT, Protocol

Things = Collection[dict[str, Any]]

MODEL = """
"Of which documents are written while others are read."
type Thing @collection(name: "things") {
  id: ID!
  name: String
  price: Decimal
  size: Int
  addedAt: DateTime
  partOfId: ID
  partOf: Thing @reference(by: "partOfId")
}

type Secret @collection(name: "secrets") @access(read: ["staff"]) {
  id: ID!
  text: String
}
"""
QUERY = "query Q($id: ID!) { thing(id: $id) { id version name price addedAt partOf { name } } }"
PAGE = """{
  things(where: { name: { in: ["first", "second"] } }, orderBy: [{ name: DESC }], first: 1) {
    nodes { __typename id nodeId } totalCount pageInfo { hasNextPage endCursor } resumeToken
  }
}"""
HISTORY = (
    '{ thing(id: "a") { history { nodes { version operation author at document { name } } } } }'
)
MISFIT = '{ thing(id: "misfit") { id size } }'
FORBIDDEN = "{ secrets { nodes { text } } }"
CHANGES = """subscription Changes($name: String!) {
  thingChanges(where: { name: { eq: $name } }, snapshot: true) {
    kind operation transition documentId resumeToken
    version author thing { id name price }
  }
}"""
WRONG = 'subscription { thingChanges(after: "nonsense") { kind } }'
APOLLO = "multipart/mixed;boundary=graphql;subscriptionSpec=1.0,application/json"
JSON_TYPE = "application/json"
MODERN = "application/graphql-response+json"

# Values that differ from run to run, and their placeholders.
_VARIES = [
    (r'"((?:[a-z]\w*)?[rR]esumeToken|token)":"[^"]+"', r'"\1":"<token>"'),
    (r"^id: ?\S+$", "id: <token>"),
    (r'"at":"[^"]+"', '"at":"<moment>"'),
    (r'"incident":"[0-9a-f]{12}"', '"incident":"<incident>"'),
    (r"(x-request-id: |\"requestId\":\")[0-9a-f]{32}", r"\1<request>"),
    (r"incident [0-9a-f]{12}", "incident <incident>"),
    (r"request: not JSON: [^\"]+", "request: not JSON: <reason>"),
    (r"message: not JSON: .+", "message: not JSON: <reason>"),
    (r"^retry: \d+", "retry: <random>"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:<port>"),
]


def normal(text: str) -> str:
    """Replace what differs from run to run."""
    for pattern, instead in _VARIES:
        text = re.sub(pattern, instead, text, flags=re.M)
    return text


def transcript_text(lines: list[str]) -> str:
    """Join a transcript's lines, without blanks at their ends."""
    text = "\n".join(normal(each) for each in lines)
    return re.sub(r"[ \r]+$", "", text, flags=re.M) + "\n"


@pytest.fixture(scope="module", params=["--wire", "--no-wire"])
def wire(request: pytest.FixtureRequest) -> str:
    """Return the option that enables or disables wire connections: the responses are equal."""
    option: str = request.param
    return option


@pytest.fixture(scope="module")
def things(
    mongo_uri: str,
    client: MongoClient[dict[str, Any]],
    tmp_path_factory: pytest.TempPathFactory,
    wire: str,
) -> Iterator[Things]:
    """Provide the served collection, with fixed documents."""
    database = client[f"transcripts_{uuid4().hex[:8]}"]
    begin_new(mongo_uri, database.name, _model(tmp_path_factory))
    moment = datetime(2024, 2, 29, 12, 0, 0, 123000, tzinfo=UTC)
    database["things"].insert_many(
        [
            {"_id": "a", "name": "first", "price": Decimal128("1.10"), "addedAt": moment},
            {"_id": "b", "name": "second", "partOfId": "a"},
            {"_id": "misfit", "name": "third", "size": "large"},
        ]
    )
    yield database["things"]
    client.drop_database(database.name)


def _model(factory: pytest.TempPathFactory) -> Path:
    path = factory.mktemp("model") / "schema.graphql"
    path.write_text(MODEL)
    return path


@pytest.fixture(scope="module")
def gateway(
    mongo_uri: str, things: Things, tmp_path_factory: pytest.TempPathFactory, wire: str
) -> Iterator[RunningGateway]:
    """Serve anonymous callers, with all documents recorded, with and without wire connections."""
    model = _model(tmp_path_factory)
    options = ("--anonymous", wire)
    with running_gateway(mongo_uri, things.database.name, model, *options) as running:
        recorded = "{ things { nodes { version } } }"
        wait_until(lambda: "errors" not in running.post(recorded))
        yield running


def _post(query: Any, accept: str = JSON_TYPE, kind: str = JSON_TYPE, **variables: Any) -> Any:
    body: Any = query
    if isinstance(query, str):
        body = {"query": query, **({"variables": variables} if variables else {})}
    headers = {"accept": accept, "content-type": kind}
    return "POST", "/graphql", headers, json.dumps(body).encode()


def _get(query: str, accept: str = JSON_TYPE, **variables: Any) -> Any:
    parameters = urlencode({"query": query, "variables": json.dumps(variables)})
    return "GET", f"/graphql?{parameters}", {"accept": accept}, None


REQUESTS: dict[str, tuple[str, str, dict[str, str], bytes | None]] = {
    "a query": _post(QUERY, id="b"),
    "the same as graphql-response+json": _post(QUERY, MODERN, id="b"),
    "the same by GET": _get(QUERY, id="b"),
    "the same by GET, as graphql-response+json": _get(QUERY, MODERN, id="b"),
    "a client that takes anything": _post("{ __typename }", "*/*"),
    "a document that is not there": _post(QUERY, MODERN, id="none"),
    "a page": _post(PAGE),
    "a history": _post(HISTORY),
    "a value that does not fit": _post(MISFIT),
    "one that may not be read": _post(FORBIDDEN, MODERN),
    "a create": _post(
        'mutation { createThing(document: { id: "c", name: "new" }) { __typename } }'
    ),
    "the same again": _post(
        'mutation { createThing(document: { id: "c", name: "new" }) { __typename } }', MODERN
    ),
    "a mutation by GET": _get('mutation { deleteThing(id: "c") { __typename } }'),
    "a delete": _post('mutation { deleteThing(id: "c") { __typename } }'),
    "no document": _post("{"),
    "no document, as graphql-response+json": _post("{", MODERN),
    "an unknown field": _post("{ thing(id: 1) { nope } }"),
    "an unknown field, as graphql-response+json": _post("{ thing(id: 1) { nope } }", MODERN),
    "a variable that is missing": _post(QUERY),
    "a variable that is missing, as graphql-response+json": _post(QUERY, MODERN),
    "an argument that is wrong": _post('{ things(after: "nonsense") { nodes { id } } }', MODERN),
    "no operation": _post({"variables": {}}),
    "a batch": _post([{"query": "{ __typename }"}]),
    "a hash that is not known": _post(
        {"extensions": {"persistedQuery": {"version": 1, "sha256Hash": "0" * 64}}}
    ),
    "no JSON": ("POST", "/graphql", {"content-type": JSON_TYPE}, b"nonsense"),
    "another content type": _post("{ __typename }", kind="text/plain"),
    "a media type that there is none of": _post("{ __typename }", "text/plain"),
    "another method": ("PUT", "/graphql", {}, b"{}"),
    "a subscription": _post(CHANGES, MODERN, name="x"),
    "another path": ("GET", "/nothing", {}, None),
    "whether it lives": ("GET", "/livez", {}, None),
    "a file for clients": ("GET", "/client/possible-types.json", {}, None),
    "an administrator's path": ("GET", "/admin/sessions", {}, None),
}


def test_http_is_the_transcript(gateway: RunningGateway) -> None:
    """Consecutive requests each have their status, headers and body."""
    lines: list[str] = []
    connection = http.client.HTTPConnection(urlsplit(gateway.address).netloc, timeout=60)
    for title, (method, path, headers, body) in REQUESTS.items():
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        lines += [f"# {title}", f"> {method} {path}"]
        lines += [f"> {name}: {value}" for name, value in headers.items()]
        lines += [f"> {body.decode()}"] if body else []
        lines.append(f"< {response.status} {response.reason}")
        lines += [
            f"< {name}: {value}"
            for name, value in sorted(response.getheaders())
            if name not in ("date", "content-length")
        ]
        lines += [response.read().decode(), ""]
    connection.close()
    assert_snapshot("transcripts/http.txt", transcript_text(lines))


def _repeated(message: str, lines: list[str]) -> bool:
    """Return whether it is a further checkpoint, which is sent while idle."""
    return "CHECKPOINT" in message and any("CHECKPOINT" in each for each in lines)


class Conversation:
    """The text frames of a WebSocket, sent and received."""

    def __init__(self, socket: ClientConnection, lines: list[str]) -> None:
        self._socket = socket
        self._lines = lines

    async def send(self, message: object) -> None:
        text = message if isinstance(message, str) else json.dumps(message)
        self._lines.append(f"> {text}")
        await self._socket.send(text)

    async def receive(self, until: str) -> None:
        """Record messages up to one with that text, without heartbeats."""
        while True:
            raw = await self._socket.recv()
            assert isinstance(raw, str)
            if raw != '{"type":"ka"}' and not _repeated(raw, self._lines):
                self._lines.append(f"< {raw}")
            if until in raw:
                return

    async def closed(self) -> None:
        """Record the close frame of the server."""
        with pytest.raises(ConnectionClosed) as caught:
            await self.receive("nothing")
        assert caught.value.rcvd is not None
        self._lines.append(f"< close {caught.value.rcvd.code} {caught.value.rcvd.reason}")


@pytest.mark.parametrize("protocol", [TRANSPORT, LEGACY])
async def test_a_web_socket_is_the_transcript(
    gateway: RunningGateway, things: Things, protocol: Protocol
) -> None:
    """The messages are operations of each kind on one connection, then messages that close it."""
    start, stop = ("start", "stop") if protocol == LEGACY else ("subscribe", "complete")
    url = gateway.address.replace("http", "ws", 1) + "/graphql"
    lines: list[str] = []

    def opened(title: str) -> connect:
        lines.extend([f"# {title}", f"> sec-websocket-protocol: {protocol}"])
        return connect(url, subprotocols=[Subprotocol(protocol)])

    def operation(id_: str, query: str, **variables: Any) -> object:
        return {"id": id_, "type": start, "payload": {"query": query, "variables": variables}}

    things.insert_one({"_id": f"{protocol}-1", "name": protocol})
    async with opened("operations") as socket:
        conversation = Conversation(socket, lines)
        await conversation.send({"type": "connection_init", "payload": {}})
        await conversation.receive("connection_ack")
        await conversation.send(operation("query", QUERY, id="a"))
        await conversation.receive("complete")
        await conversation.send(operation("syntax", "{"))
        await conversation.receive("error")
        await conversation.send(operation("wrong", WRONG))
        await conversation.receive("RESUME_TOKEN_INVALID")
        await conversation.send(operation("changes", CHANGES, name=protocol))
        await conversation.receive("CHECKPOINT")
        things.insert_one({"_id": f"{protocol}-2", "name": protocol, "price": Decimal128("2.50")})
        await conversation.receive('"INSERT"')
        things.update_one({"_id": f"{protocol}-2"}, {"$set": {"name": "other"}})
        await conversation.receive('"LEAVE"')
        things.delete_one({"_id": f"{protocol}-1"})
        await conversation.receive('"DELETE"')
        await conversation.send({"id": "changes", "type": stop})
        if protocol == LEGACY:
            await conversation.receive("complete")
        else:
            await conversation.send({"type": "ping", "payload": {"a": 1}})
            await conversation.receive("pong")
        await conversation.send(operation("last", "{ __typename }"))
        await conversation.receive("complete")
        await conversation.send(
            {"type": "connection_terminate"} if protocol == LEGACY else "nonsense"
        )
        await conversation.closed()
    if protocol == TRANSPORT:
        async with opened("an operation before connection_init") as socket:
            conversation = Conversation(socket, lines)
            await conversation.send(operation("early", QUERY, id="a"))
            await conversation.closed()
        async with opened("connection_init twice") as socket:
            conversation = Conversation(socket, lines)
            await conversation.send({"type": "connection_init"})
            await conversation.receive("connection_ack")
            await conversation.send({"type": "connection_init"})
            await conversation.closed()
        async with opened("an id twice") as socket:
            conversation = Conversation(socket, lines)
            await conversation.send({"type": "connection_init"})
            await conversation.receive("connection_ack")
            await conversation.send(operation("changes", CHANGES, name="nothing"))
            await conversation.receive("CHECKPOINT")
            await conversation.send(operation("changes", CHANGES, name="nothing"))
            await conversation.closed()
    assert_snapshot(f"transcripts/{protocol}.txt", transcript_text(lines))


@pytest.mark.parametrize(
    ("name", "accept", "end"),
    [("sse", "text/event-stream", "\n\n"), ("multipart", APOLLO, "\r\n--graphql")],
    ids=["sse", "multipart"],
)
async def test_a_stream_over_http_is_the_transcript(
    gateway: RunningGateway, things: Things, name: str, accept: str, end: str
) -> None:
    """The stream has a query, invalid requests, and changes up to a deletion."""
    url, headers = f"{gateway.address}/graphql", {"accept": accept}
    lines: list[str] = []
    things.insert_one({"_id": f"{name}-1", "name": name})
    async with httpx.AsyncClient(timeout=60) as client:
        for query in (PAGE, "{", WRONG):
            response = await client.post(url, json={"query": query}, headers=headers)
            lines += [*_head(response, query), response.text, ""]
        body = {"query": CHANGES, "variables": {"name": name}}
        async with client.stream("POST", url, json=body, headers=headers) as response:
            lines += _head(response, CHANGES)
            pieces = _split(response.aiter_text(), end)
            await _note(pieces, lines, "CHECKPOINT")
            things.insert_one({"_id": f"{name}-2", "name": name, "price": Decimal128("2.50")})
            await _note(pieces, lines, '"INSERT"')
            things.update_one({"_id": f"{name}-2"}, {"$set": {"name": "other"}})
            await _note(pieces, lines, '"LEAVE"')
            things.delete_one({"_id": f"{name}-1"})
            await _note(pieces, lines, '"DELETE"')
    assert_snapshot(f"transcripts/{name}.txt", transcript_text(lines))


def _head(response: httpx.Response, query: str) -> list[str]:
    fields = [
        f"< {name}: {value}"
        for name, value in sorted(response.headers.items())
        if name not in ("date", "content-length")
    ]
    return [f"> {query}", f"< {response.status_code} {response.reason_phrase}", *fields]


async def _split(chunks: AsyncIterator[str], end: str) -> AsyncIterator[str]:
    """Yield the events or parts of a stream, each with its end."""
    read = ""
    async for chunk in chunks:
        read += chunk
        while end in read:
            piece, read = read.split(end, 1)
            yield piece + end


async def _note(pieces: AsyncIterator[str], lines: list[str], until: str) -> None:
    """Record chunks up to one with that text, without heartbeats."""
    async for piece in pieces:
        keeps = "\r\n{}" in piece or piece.startswith(":")
        if not keeps and not _repeated(piece, lines):
            lines.append(piece)
        if until in piece:
            return
    raise AssertionError(f"ended before {until}")
