"""Hostile requests: each is refused quickly, without an internal error, and others are served."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from itertools import cycle
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import orjson
import pytest
from pymongo import MongoClient

from tests.support import http
from tests.support.gateway import RunningGateway, running_gateway

MODEL = """
type Thing @collection(name: "things") {
  id: ID! name: String n: Int f: Float long: Long price: Decimal at: DateTime data: JSON
}
"""
MODERN = "application/graphql-response+json"
# The limit for a busy machine; each request takes some milliseconds by itself.
AT_MOST_S = 30.0
DEEP = 100_000
DIGITS = "9" * 6000
# The maximum depth of JSON.
NESTED = 900
MESSAGE = "... on WriteError { message }"
CREATE = """
mutation Create($name: String, $n: Int, $f: Float, $data: JSON) {
  createThing(document: { name: $name, n: $n, f: $f, data: $data }) {
    __typename
  }
}
"""


@pytest.fixture(scope="module")
def gateway(
    mongo_uri: str, client: MongoClient[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """Run a gateway; at the end it must still run, without an internal error in its log."""
    model = tmp_path_factory.mktemp("model") / "schema.graphql"
    model.write_text(MODEL)
    name = f"hostile_{uuid4().hex[:8]}"
    with running_gateway(mongo_uri, name, model) as running:
        yield running
        assert running.process.poll() is None
        assert running.stop() == 0
    client.drop_database(name)
    assert not [line for line in running.lines if "INTERNAL" in line or "Traceback" in line]


@pytest.fixture(scope="module")
def hostile(gateway: RunningGateway) -> Iterator[httpx.Client]:
    """Provide the client that sends hostile requests."""
    headers = {"content-type": "application/json", "accept": MODERN}
    with httpx.Client(base_url=gateway.address, headers=headers, timeout=60) as connected:
        yield connected


def document(text: str) -> bytes:
    return orjson.dumps({"query": text})


def mutation_with(json: str) -> bytes:
    """Return a mutation whose variables are this text."""
    return b'{"query": %b, "variables": %b}' % (orjson.dumps(CREATE), json.encode())


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "no object": b"5",
    "null": b"null",
    "text": b'"{ resumeToken }"',
    "lists in lists": b"[" * DEEP + b"]" * DEEP,
    "objects in objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "variables in variables": mutation_with('{"data": ' + "[" * DEEP + "]" * DEEP + "}"),
    "more lists than MongoDB holds": mutation_with(f'{{"data": {"[" * NESTED + "]" * NESTED}}}'),
    "more objects than MongoDB holds": mutation_with(
        '{"data": ' + '{"a":' * NESTED + "1" + "}" * NESTED + "}"
    ),
    "lists that do not end": b"[" * 1_000_000,
    "an endless integer": mutation_with(f'{{"n": {DIGITS}}}'),
    "an endless negative integer": mutation_with(f'{{"data": -{DIGITS}}}'),
    "an endless exponent": mutation_with(f'{{"f": 1e{DIGITS}}}'),
    "not a number": mutation_with('{"f": NaN}'),
    "infinity": mutation_with('{"f": 1e999}'),
    "no UTF-8": b'{"query": "{ resumeToken \xff }"}',
    "a byte too many of UTF-8": b'{"query": "\xc0\xaf"}',
    "UTF-16": '{"query": "{ resumeToken }"}'.encode("utf-16"),
    "half of a surrogate pair": b'{"query": "{ resumeToken } # \\ud800"}',
    "half of a surrogate pair in a variable": mutation_with('{"name": "\\udfff"}'),
    "half of a surrogate pair as a name": mutation_with('{"data": {"\\ud800": 1}}'),
    "half of a surrogate pair encoded": b'{"query": "{ resumeToken } # \xed\xa0\x80"}',
    "half of a surrogate pair in the document": document(
        'mutation { createThing(id: "\\uD800", document: {}) { __typename } }'
    ),
    "a zero byte in the document": document("{ resumeToken \0 }"),
    **{
        f"an endless {kind} in the document": document(
            f"mutation {{ createThing(document: {{{field}: {DIGITS}}}) {{ __typename }} }}"
        )
        for kind, field in {"Int": "n", "Long": "long", "Decimal": "price"}.items()
    },
    "an endless number of JSON in the document": document(
        f"mutation {{ createThing(document: {{data: {DIGITS}}}) {{ __typename }} }}"
    ),
    "an endless number of JSON deeper in the document": document(
        f"mutation {{ createThing(document: {{data: {{a: [{DIGITS}]}}}}) {{ __typename }} }}"
    ),
    "an endless id": document(f"{{ thing(id: {DIGITS}) {{ name nope }} }}"),
    "an endless page": document(f"{{ things(first: {DIGITS}) {{ totalCount }} }}"),
    "an endless version": document(f'{{ thingVersion(id: "a", version: {DIGITS}) {{ version }} }}'),
    "an endless date": document(f'{{ thingsAsOf(asOf: {{time: "{DIGITS}"}}) {{ totalCount }} }}'),
    "an endless condition": document(
        f"{{ things(where: {{n: {{eq: {DIGITS}}}}}) {{ totalCount }} }}"
    ),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_hostile_body_is_refused_quickly(hostile: httpx.Client, body: bytes) -> None:
    """The response is a 4xx with a JSON error."""
    began = time.monotonic()
    response = hostile.post("/graphql", content=body)
    assert time.monotonic() - began < AT_MOST_S
    assert 400 <= response.status_code < 500, response.text[:500]
    assert response.json()["errors"][0]["extensions"]["code"] in {
        "BAD_USER_INPUT",
        "LIMIT_EXCEEDED",
    }
    assert len(response.content) < 100_000


ADDRESSES = {
    "no UTF-8": "query=%FF",
    "half of a surrogate pair": "query=%7BresumeToken%7D%23%ED%A0%80",
    "bytes that are no text": "query=\xff",
    "variables that are no text": "query=%7BresumeToken%7D&variables=%7B%22a%22%3A%22%FF%22%7D",
    "variables of half a pair": "query=%7BresumeToken%7D&variables=%7B%22a%22%3A%22%5Cud800%22%7D",
    "deep variables": "query=%7BresumeToken%7D&variables=" + "%5B" * 10_000,
    "an endless number": "query=%7BresumeToken%7D&variables=%7B%22a%22%3A" + DIGITS + "%7D",
    "very many parameters": "query=%7BresumeToken%7D" + "&a=1" * 10_000,
}


@pytest.mark.parametrize("query", ADDRESSES.values(), ids=ADDRESSES)
async def test_a_hostile_url_is_refused_quickly(gateway: RunningGateway, query: str) -> None:
    """The query string is sent byte for byte."""
    host, port = gateway.address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    began = time.monotonic()
    head = f"GET /graphql?{query} HTTP/1.1\r\nhost: {host}\r\naccept: {MODERN}\r\n\r\n"
    writer.write(head.encode("latin-1"))
    status = int((await reader.readline()).split()[1])
    assert time.monotonic() - began < AT_MOST_S
    assert 400 <= status < 500
    writer.close()
    await writer.wait_closed()


def test_an_infinite_float_is_not_stored(gateway: RunningGateway) -> None:
    """GraphQL parses its literal as infinity.

    The result is that of other invalid documents.
    """
    mutation = f"mutation {{ createThing(document: {{f: {DIGITS[:400]}}}) {{ {MESSAGE} }} }}"
    answer = http.post(f"{gateway.address}/graphql", json={"query": mutation}).json()
    assert "finite" in answer["data"]["createThing"]["message"]


async def test_a_body_that_is_too_long_is_not_read_to_its_end(gateway: RunningGateway) -> None:
    """It announces its length, or is chunked."""

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65_536

    async def announced() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    began = time.monotonic()
    for content, more in ((endless(), {}), (announced(), {"content-length": "999999999999"})):
        headers = {"content-type": "application/json", **more}
        async with httpx.AsyncClient(timeout=60) as other:
            assert await first_line(gateway, headers, content) == 413
            answer = await other.get(f"{gateway.address}/graphql?query={{resumeToken}}")
            assert answer.status_code == 200
    assert time.monotonic() - began < AT_MOST_S


async def first_line(
    gateway: RunningGateway, headers: dict[str, str], content: AsyncIterator[bytes]
) -> int:
    """Return the status, which is sent while the body is still being sent."""
    host, port = gateway.address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    chunked = "content-length" not in headers
    head = [f"{name}: {value}" for name, value in headers.items()]
    head += ["transfer-encoding: chunked"] if chunked else []
    lines = ["POST /graphql HTTP/1.1", f"host: {host}", *head, "", ""]
    writer.write("\r\n".join(lines).encode())

    async def send() -> None:
        async for piece in content:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            await writer.drain()

    sending = asyncio.create_task(send())
    try:
        return int((await reader.readline()).split()[1])
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        writer.transport.abort()


async def test_other_clients_are_served_during_hostile_requests(gateway: RunningGateway) -> None:
    """Small requests wait for no hostile one; their waiting time is printed."""
    address = f"{gateway.address}/graphql"
    waits: list[float] = []
    refused = 0

    async def ask() -> None:
        async with httpx.AsyncClient(timeout=60) as small:
            while len(waits) < 100 or refused < len(BODIES):
                began = time.monotonic()
                answer = await small.post(address, json={"query": '{ thing(id: "a") { name } }'})
                waits.append(time.monotonic() - began)
                assert answer.json() == {"data": {"thing": None}}

    async def attack(bodies: Iterator[bytes]) -> None:
        nonlocal refused
        headers = {"content-type": "application/json", "accept": MODERN}
        async with httpx.AsyncClient(timeout=60, headers=headers) as hostile:
            for body in bodies:
                answer = await hostile.post(address, content=body)
                assert 400 <= answer.status_code < 500
                refused += 1

    attacks = [asyncio.create_task(attack(cycle(BODIES.values()))) for _ in range(3)]
    await ask()
    for each in attacks:
        each.cancel()
    ends = await asyncio.gather(*attacks, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in ends), ends
    p99 = statistics.quantiles(waits, n=100, method="inclusive")[98]
    print(  # noqa: T201
        f"{len(waits)} small requests beside {refused} hostile ones, p99 {p99 * 1000:.1f} ms"
    )
    assert p99 < AT_MOST_S
