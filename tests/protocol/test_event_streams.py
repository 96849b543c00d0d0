"""Subscriptions over HTTP: events, resumption by token, and ends."""

from __future__ import annotations

import asyncio
import email.parser
import json
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2 as httpx
import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from tests.support import http
from tests.support.event_streams import AUTHOR_HEADER, EventStream, open_stream
from tests.support.eventually import eventually
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.metrics import scraped

Things = Collection[dict[str, Any]]

MODEL = """
type Thing @collection(name: "things") {
  id: ID!
  name: String
  text: String
  partId: ID
  part: Thing @reference(by: "partId")
}
"""
CHANGES = "subscription { thingChanges { kind documentId } }"
AFTER = """
subscription Changes($after: ResumeToken) {
  thingChanges(after: $after) { kind documentId resumeToken }
}
"""
APOLLO = "multipart/mixed;boundary=graphql;subscriptionSpec=1.0,application/json"
HEARTBEAT_S = 0.2
BACKLOG = 20


@pytest.fixture(scope="module")
def things(client: MongoClient[dict[str, Any]]) -> Iterator[Things]:
    """Provide the served collection."""
    database = client[f"streams_{uuid4().hex[:8]}"]
    yield database["things"]
    client.drop_database(database.name)


@pytest.fixture(scope="module")
def gateway(
    mongo_uri: str, things: Things, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """Run a gateway; at the end it must stop in order, without an internal error."""
    model = tmp_path_factory.mktemp("model") / "schema.graphql"
    model.write_text(MODEL)
    options = ("--heartbeat-s", str(HEARTBEAT_S), "--backlog-events", str(BACKLOG))
    options += ("--socket-stalled-s", "8", "--author-header", AUTHOR_HEADER)
    with running_gateway(mongo_uri, things.database.name, model, *options) as running:
        yield running
        assert running.stop() == 0
    assert not [line for line in running.lines if "INTERNAL" in line or "Traceback" in line]


def insert(things: Things, *names: str, **fields: str) -> list[str]:
    """Insert documents with new ids, and return the ids."""
    ids = [f"{name}-{uuid4().hex[:6]}" for name in names]
    things.insert_many({"_id": each, **fields} for each in ids)
    return ids


async def attached(stream: EventStream) -> str:
    """Wait until the stream is live, and return its token."""
    first = await stream.next()
    assert first.data["data"]["thingChanges"]["kind"] == "CHECKPOINT"
    assert first.id is not None
    return first.id


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_each_event_has_its_token(
    gateway: RunningGateway, things: Things, method: str
) -> None:
    """The token is the event's id, selected by the operation or not; lines end with line feeds."""
    async with (
        open_stream(gateway.address, CHANGES, method=method) as without,
        open_stream(gateway.address, AFTER, method=method) as selected,
    ):
        assert without.response.status_code == 200
        assert without.response.headers["content-type"] == "text/event-stream"
        assert "no-store" in without.response.headers["cache-control"]
        await attached(without)
        await attached(selected)
        written = insert(things, "a", "b")
        for id_ in written:
            change, same = await without.change(), await selected.change()
            assert change["documentId"] == same["documentId"] == id_
            assert change["id"] == same["id"] == same["resumeToken"]


@pytest.mark.parametrize("media_type", ["text/event-stream", APOLLO])
async def test_an_event_may_have_many_references(
    gateway: RunningGateway, things: Things, media_type: str
) -> None:
    """The second event is complete, too, where references need more than one batch."""
    [large] = insert(things, "large", text="x" * 1_500_000)
    query = {"query": "subscription { thingChanges { documentId thing { part { text } } } }"}
    async with (
        asyncio.timeout(20),
        httpx.AsyncClient(timeout=60) as client,
        client.stream(
            "POST", f"{gateway.address}/graphql", json=query, headers={"accept": media_type}
        ) as response,
    ):
        chunks, sent = response.aiter_bytes(), b""
        while b"documentId" not in sent:
            sent += await anext(chunks)
        written = insert(things, "a", "b", partId=large)
        while sent.count(b"x" * 1_500_000) < 2:
            sent += await anext(chunks)
    assert all(each.encode() in sent for each in written)


STARTS = {
    "a token in the document": 'thingChanges(after: "{token}")',
    "a moment": 'thingChanges(since: "2020-01-01T00:00:00Z")',
    "a snapshot": "thingChanges(snapshot: true)",
    "a cursor": 'thingChanges(cursor: "mine")',
    "now": "thingChanges",
}


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
async def test_a_reconnecting_client_resumes_after_the_last_event(
    gateway: RunningGateway, things: Things, start: str
) -> None:
    """`Last-Event-ID` has precedence over the starting point of the operation."""
    beginning = gateway.query("{ resumeToken }")["resumeToken"]
    save = f'mutation {{ saveCursor(name: "mine", token: "{beginning}") }}'
    saved = http.post(
        f"{gateway.address}/graphql", json={"query": save}, headers={AUTHOR_HEADER: "ann"}
    )
    assert saved.json() == {"data": {"saveCursor": beginning}}
    query = f"subscription {{ {start.replace('{token}', beginning)} {{ kind documentId }} }}"
    first, second, third = insert(things, "first", "second", "third")
    async with open_stream(gateway.address, AFTER, after=beginning) as whole:
        tokens = {}
        for _ in range(3):
            change = await whole.change()
            tokens[change["documentId"]] = change["id"]
    assert list(tokens) == [first, second, third]
    resumed = open_stream(gateway.address, query, method="GET", last=tokens[first], author="ann")
    async with resumed as stream:
        assert [(await stream.change())["documentId"] for _ in range(2)] == [second, third]


async def test_the_last_event_has_precedence_over_a_token_in_a_variable(
    gateway: RunningGateway, things: Things
) -> None:
    """graphql-sse sends its first variables again."""
    beginning = gateway.query("{ resumeToken }")["resumeToken"]
    first, second = insert(things, "first", "second")
    async with open_stream(gateway.address, AFTER, after=beginning) as stream:
        change = await stream.change()
        assert change["documentId"] == first
    async with open_stream(gateway.address, AFTER, after=beginning, last=change["id"]) as stream:
        assert (await stream.change())["documentId"] == second


async def test_a_snapshot_is_resumed_only_after_its_end(
    gateway: RunningGateway, things: Things
) -> None:
    """Its events have no id, so that an interrupted client sends none and gets it again."""
    insert(things, "a", "b")
    async with open_stream(
        gateway.address, "subscription { thingChanges(snapshot: true) { kind } }"
    ) as stream:
        kinds = []
        while "CHECKPOINT" not in kinds:
            event = await stream.next()
            kinds.append(event.data["data"]["thingChanges"]["kind"])
            assert (event.id is None) == (kinds[-1] == "SNAPSHOT")
    assert len(kinds) > 2


@pytest.mark.parametrize("token", ["nonsense", "é", "6760D1A400000001~.nowhere"])
async def test_an_invalid_last_event_is_refused(gateway: RunningGateway, token: str) -> None:
    """The stream ends with the error, and never continues from now on."""
    query_body = {"query": CHANGES}
    headers = {"accept": "text/event-stream", "last-event-id": token.encode()}
    async with httpx.AsyncClient(timeout=60) as client:
        answer = await client.post(f"{gateway.address}/graphql", json=query_body, headers=headers)
    error_event, end = answer.text.strip().split("\n\n")[1:]
    assert "RESUME_TOKEN_INVALID" in error_event
    assert "id:" not in error_event
    assert end == "event: complete\ndata:"


async def test_an_idle_stream_sends_heartbeats(gateway: RunningGateway) -> None:
    """They are comments; the first one is sent at once."""
    async with open_stream(gateway.address, CHANGES) as stream:
        events = aiter(stream)
        opening = await anext(events)
        assert opening.event == "comment"
        assert int(opening.fields["retry"]) > 0
        comments = 0
        async for each in events:
            comments += each.event == "comment"
            if comments == 3:
                break


OPERATIONS = {
    "a query": ("{ resumeToken }", "data"),
    "a mutation": ('mutation { deleteThing(id: "none") { __typename } }', "data"),
    "no document": ("{", "errors"),
    "no such field": ("subscription { nope }", "errors"),
    "two operations": ("query A { resumeToken } subscription B { nope }", "errors"),
    "two starts": (
        'subscription { thingChanges(snapshot: true, cursor: "x") { kind } }',
        "errors",
    ),
}


@pytest.mark.parametrize(("query", "key"), OPERATIONS.values(), ids=OPERATIONS)
async def test_an_operation_with_one_result_is_complete(
    gateway: RunningGateway, query: str, key: str
) -> None:
    """Queries, mutations and refused operations have one event without an id, and the end."""
    async with open_stream(gateway.address, query) as stream:
        assert stream.response.status_code == 200
        result, end = await stream.rest()
    assert (result.event, result.id) == ("next", None)
    assert result.data.keys() == {key}
    assert (end.event, end.data) == ("complete", None)
    assert end.fields["data"] == ""


@pytest.mark.parametrize(
    "accept", ["application/json, text/event-stream", "text/event-stream, */*;q=0.1"]
)
def test_a_client_that_accepts_only_json_gets_no_events(
    gateway: RunningGateway, accept: str
) -> None:
    """Queries are answered as JSON, and subscriptions are refused."""
    url, headers = f"{gateway.address}/graphql", {"accept": accept}
    answer = http.post(url, json={"query": "{ resumeToken }"}, headers=headers)
    assert answer.headers["content-type"].startswith("application/json")
    refused = http.post(url, json={"query": CHANGES}, headers=headers)
    assert refused.status_code == 400
    assert "text/event-stream" in refused.json()["errors"][0]["message"]


def parts_of(response: httpx.Response) -> list[Any]:
    """Return the JSON of each part, as a MIME parser reads it."""
    head = f"content-type: {response.headers['content-type']}\n\n"
    message = email.parser.BytesParser().parsebytes(head.encode() + response.content)
    assert message.is_multipart()
    assert not message.defects
    payload = message.get_payload()
    assert isinstance(payload, list)
    for each in payload:
        assert each.get_content_type() == "application/json"
    return [json.loads(each.get_payload()) for each in payload]


def test_a_response_in_parts_is_multipart(gateway: RunningGateway) -> None:
    """It has its first and its last boundary, for errors too."""
    url = f"{gateway.address}/graphql"
    only = {"accept": APOLLO.partition(",")[0]}
    answer = http.post(url, json={"query": "{ things { totalCount } }"}, headers=only)
    assert answer.status_code == 200
    assert answer.content.startswith(b"--graphql\r\n")
    [part] = parts_of(answer)
    assert part["payload"]["data"]["things"]["totalCount"] >= 0
    wrong = 'subscription { thingChanges(after: "nonsense") { kind } }'
    [part] = parts_of(http.post(url, json={"query": wrong}, headers={"accept": APOLLO}))
    assert part["payload"]["errors"][0]["extensions"]["code"] == "RESUME_TOKEN_INVALID"


def test_parts_are_written_as_apollos_ios_client_compares_them(gateway: RunningGateway) -> None:
    """It splits the content type at `;`, each part at its empty line, and compares with case."""
    wrong = 'subscription { thingChanges(after: "nonsense") { kind } }'
    for accept in (APOLLO, APOLLO.replace("subscriptionSpec", "SUBSCRIPTIONSPEC")):
        answer = http.post(
            f"{gateway.address}/graphql", json={"query": wrong}, headers={"accept": accept}
        )
        media_type, *directives = map(str.strip, answer.headers["content-type"].split(";"))
        assert media_type == "multipart/mixed"
        assert directives == ["boundary=graphql", "subscriptionSpec=1.0"]
        head, body = answer.text.split("--graphql")[1].strip().split("\r\n\r\n")
        assert head == "content-type: application/json"
        assert "payload" in json.loads(body)


async def test_a_client_that_accepts_parts_gets_subscriptions_in_parts(
    gateway: RunningGateway, things: Things
) -> None:
    """Each part is complete when it is sent, with empty ones in between; queries are JSON."""
    headers = {"accept": APOLLO}
    async with httpx.AsyncClient(timeout=60) as client:
        url = f"{gateway.address}/graphql"
        answer = await client.post(url, json={"query": "{ resumeToken }"}, headers=headers)
        assert answer.headers["content-type"].startswith("application/json")
        async with client.stream("POST", url, json={"query": CHANGES}, headers=headers) as response:
            assert response.headers["content-type"].startswith("multipart/mixed; boundary=graphql")
            parts = split(response.aiter_bytes())
            first = await anext(parts)
            assert first["payload"]["data"]["thingChanges"]["kind"] == "CHECKPOINT"
            assert await anext(parts) == {}
            [id_] = insert(things, "parts")
            async for part in parts:
                if part:
                    break
            assert part["payload"]["data"]["thingChanges"]["documentId"] == id_


async def split(chunks: AsyncIterator[bytes]) -> AsyncIterator[Any]:
    """Yield parts, each as soon as the next boundary has arrived."""
    read = b""
    async for chunk in chunks:
        read += chunk
        while read.count(b"--graphql") > 1:
            part, read = read.removeprefix(b"--graphql\r\n").split(b"\r\n--graphql", 1)
            read = b"--graphql" + read
            yield json.loads(part.split(b"\r\n\r\n", 1)[1])


async def test_a_client_that_disconnects_ends_its_subscription(gateway: RunningGateway) -> None:
    """This includes an idle stream."""

    def subscriptions() -> float:
        return scraped(gateway.address)["revstream_subscriptions", "things"]

    await eventually(lambda: subscriptions() == 0)
    async with open_stream(gateway.address, CHANGES) as stream:
        await attached(stream)
        assert subscriptions() == 1
    await eventually(lambda: subscriptions() == 0)


async def test_a_client_that_never_reads_is_disconnected(
    gateway: RunningGateway, things: Things
) -> None:
    """Once its buffers are full, it loses its subscription; a client that reads does not."""
    query = "subscription { thingChanges { kind documentId thing { text } } }"
    host, port = gateway.address.removeprefix("http://").split(":")
    request = (
        f"GET /graphql?query={quote(query)} HTTP/1.1\r\nhost: {host}:{port}\r\n"
        "accept: text/event-stream\r\n\r\n"
    )
    before = scraped(gateway.address)["revstream_http_stalled_total",]

    def metric(*name: str) -> float:
        return scraped(gateway.address)[name]

    await eventually(lambda: metric("revstream_subscriptions", "things") == 0)
    async with open_stream(gateway.address, query) as reading:
        await attached(reading)
        with socket.socket() as plain:
            # A small buffer fills quickly.
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.connect((host, int(port)))
            plain.sendall(request.encode())
            await eventually(lambda: metric("revstream_subscriptions", "things") == 2)
            for _ in range(BACKLOG - 1):
                (id_,) = insert(things, "large", text="x" * 500_000)
                while (await reading.change())["documentId"] != id_:
                    pass
            await eventually(lambda: metric("revstream_http_stalled_total") == before + 1)
            await eventually(lambda: metric("revstream_subscriptions", "things") == 1)
        (id_,) = insert(things, "after")
        assert (await reading.change())["documentId"] == id_


async def test_a_slow_reader_is_ended_and_loses_nothing(
    gateway: RunningGateway, things: Things
) -> None:
    """A full backlog ends the stream with an error, and the reader resumes with the rest."""
    mark = uuid4().hex[:6]
    text = "x" * 200_000
    written = [f"{mark}-{n:03}" for n in range(150)]
    before = scraped(gateway.address)["revstream_slow_consumers_total", "things"]

    def ended() -> bool:
        now = scraped(gateway.address)["revstream_slow_consumers_total", "things"]
        return now == before + 1

    query = "subscription { thingChanges { kind documentId thing { text } } }"
    received = []
    async with open_stream(gateway.address, query) as stream:
        token = await attached(stream)
        for id_ in written:
            things.insert_one({"_id": id_, "text": text})
        # The client does not read until then.
        await eventually(ended)
        events = await stream.rest()
    for each in events[:-1]:
        assert each.id is not None
        token = each.id
        received.append(each.data["data"]["thingChanges"]["documentId"])
    last = events[-1]
    assert (last.event, last.id) == ("next", token)
    assert last.data["data"]["thingChanges"]["kind"] == "CHECKPOINT"
    assert len(received) < len(written)
    async with open_stream(gateway.address, query, last=token) as stream:
        while len(received) < len(written):
            received.append((await stream.change())["documentId"])
    assert received == written
