"""Authentication over HTTP and WebSockets with the real command.

The tests cover refusals, renewal, the expiry of a token, and administration.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest
from pymongo import MongoClient
from websockets.exceptions import ConnectionClosed

from tests.support import http
from tests.support.beginning import begin_new
from tests.support.eventually import wait_until
from tests.support.gateway import RunningGateway, run_command, running_gateway
from tests.support.issuer import Issuer
from tests.support.sockets import LEGACY, TRANSPORT, Protocol, Socket, open_socket

Client = MongoClient[dict[str, Any]]

MODEL = """
type Note @collection(name: "notes") @access(read: ["reader"], rows: "{ owner: { eq: $sub } }") {
  id: ID! owner: String! text: String
}
"""
NOTES = "{ notes { nodes { id } } }"
KEY = "0123456789abcdef"
OTHER_KEY = "fedcba9876543210"
NAMESAKE = "0f1e2d3c4b5a6978"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer") / "jwks.json")


def entry_of(key: str, principal: str, roles: str = '["reader"]', sub: bool = True) -> str:
    """Return an entry of the key file.

    `sub` decides whether it has the rows of a person of that name.
    """
    digest = hashlib.sha256(key.encode()).hexdigest()
    claims = f'claims = {{ sub = "{principal}" }}\n' if sub else ""
    return f'[[keys]]\nsha256 = "{digest}"\nprincipal = "{principal}"\nroles = {roles}\n{claims}'


SERVICE = entry_of(NAMESAKE, "ann", sub=False)
CHANGED = entry_of(KEY, "bob", '["reader", "operator"]')


@pytest.fixture(scope="module")
def api_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write keys of bob and carl, and one of a service whose name is a person's."""
    path = tmp_path_factory.mktemp("keys") / "keys.toml"
    path.write_text(entry_of(KEY, "bob") + entry_of(OTHER_KEY, "carl") + SERVICE)
    return path


@pytest.fixture(scope="module")
def guarded(
    mongo_uri: str,
    client: Client,
    issuer: Issuer,
    api_keys: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RunningGateway]:
    """Provide a gateway with a note of ann's and one of bob's."""
    folder = tmp_path_factory.mktemp("guarded")
    model = folder / "schema.graphql"
    model.write_text(MODEL)
    name = f"guarded_{uuid4().hex[:8]}"
    begin_new(mongo_uri, name, model)
    client[name]["notes"].insert_many(
        [{"_id": "a", "owner": "ann"}, {"_id": "b", "owner": "bob", "text": "secret"}]
    )
    options = [*issuer.options(), "--api-keys", str(api_keys), "--admin-role", "operator"]
    options += ["--jwt-keys-s", "0.2"]
    with running_gateway(mongo_uri, name, model, *options) as running:
        yield running
    client.drop_database(name)


def ask(gateway: RunningGateway, headers: dict[str, str], text: str = NOTES) -> httpx.Response:
    url = f"{gateway.address}/graphql"
    return http.post(url, json={"query": text}, headers=headers, timeout=60)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def reader(issuer: Issuer, name: str = "ann", **more: Any) -> str:
    return issuer.token(name, **{"roles": ["reader"], **more})


def test_each_caller_reads_its_own_rows(guarded: RunningGateway, issuer: Issuer) -> None:
    """The caller has a token or a key."""
    hers = ask(guarded, bearer(reader(issuer))).json()
    assert hers == {"data": {"notes": {"nodes": [{"id": "a"}]}}}
    his = ask(guarded, {"X-API-Key": KEY}).json()
    assert his == {"data": {"notes": {"nodes": [{"id": "b"}]}}}
    service = ask(guarded, {"X-API-Key": NAMESAKE}).json()
    assert service == {"data": {"notes": {"nodes": []}}}
    assert any("API keys do not have" in each and "ann" in each for each in guarded.lines)
    nobodys = ask(guarded, bearer(issuer.token())).json()
    assert nobodys["errors"][0]["extensions"]["code"] == "FORBIDDEN"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer x"},
        {"Authorization": "Basic YTpi"},
        {"X-API-Key": "wrong"},
        {"X-API-Key": KEY, "Authorization": "Bearer x"},
    ],
)
def test_an_unauthenticated_request_is_refused_as_a_whole(
    guarded: RunningGateway, headers: dict[str, str]
) -> None:
    """The status is 401, with `WWW-Authenticate` and a GraphQL error."""
    answer = ask(guarded, headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert answer.json()["errors"][0]["extensions"] == {"code": "UNAUTHENTICATED"}
    assert "data" not in answer.json()


@pytest.mark.parametrize("page", ["schema.graphql", "examples.json"])
def test_pages_with_the_schema_need_authentication(
    guarded: RunningGateway, issuer: Issuer, page: str
) -> None:
    """The schema is as protected as introspection."""
    url = f"{guarded.address}/{page}"
    assert http.get(url).status_code == 401
    sessions = http.get(url, headers=bearer(reader(issuer)))
    assert sessions.status_code == 200
    assert "notes" in sessions.text


@asynccontextmanager
async def signed_in(
    gateway: RunningGateway, payload: dict[str, str], protocol: Protocol = TRANSPORT
) -> AsyncIterator[Socket]:
    async with open_socket(gateway.address, protocol, init=False) as socket:
        await socket.send({"type": "connection_init", "payload": payload})
        yield socket


@pytest.mark.parametrize("protocol", [TRANSPORT, LEGACY])
async def test_a_socket_is_authenticated_by_its_init_message(
    guarded: RunningGateway, issuer: Issuer, protocol: Protocol
) -> None:
    """The payload has a token, in either spelling, or an API key."""
    token = f"Bearer {reader(issuer)}"
    for payload, seen in (
        ({"authorization": token}, "a"),
        ({"Authorization": token}, "a"),
        ({"apiKey": KEY}, "b"),
    ):
        async with signed_in(guarded, payload, protocol) as socket:
            assert await socket.receive() == {"type": "connection_ack"}
            assert await socket.data(NOTES) == {"notes": {"nodes": [{"id": seen}]}}


@pytest.mark.parametrize("protocol", [TRANSPORT, LEGACY])
@pytest.mark.parametrize("payload", [{}, {"authorization": "Bearer x"}, {"authorization": 5}])
async def test_an_unauthenticated_socket_is_closed(
    guarded: RunningGateway, protocol: Protocol, payload: dict[str, Any]
) -> None:
    """The code is 4403, with a reason."""
    async with signed_in(guarded, payload, protocol) as socket:
        closed = await socket.closed()
        assert closed is not None
        assert closed.code == 4403
        assert closed.reason


async def test_a_socket_closes_when_its_token_expires_unless_it_is_renewed(
    guarded: RunningGateway, issuer: Issuer
) -> None:
    """Operations continue on the renewed socket, which outlives the one that is not renewed."""
    payload = {"authorization": f"Bearer {reader(issuer, lasts_s=3)}"}
    async with signed_in(guarded, payload) as renewed, signed_in(guarded, payload) as other:
        for socket in (renewed, other):
            assert await socket.receive() == {"type": "connection_ack"}
            await socket.start("t", "subscription { noteChanges { kind } }")
            assert (await socket.receive())["id"] == "t"
            await socket.start("s", "subscription { noteChanges(snapshot: true) { kind } }")
            assert (await socket.receive())["payload"]["data"]["noteChanges"]["kind"] == "SNAPSHOT"
            assert (await socket.receive())["payload"]["data"]["noteChanges"][
                "kind"
            ] == "CHECKPOINT"
        fresh = {"authorization": f"Bearer {reader(issuer)}"}
        await renewed.send({"type": "ping", "payload": fresh})
        await receive_matching(renewed, type="pong")
        sent = []
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                sent.append(await other.receive())
        # Each subscription of the socket gets its last token, and nothing else.
        checkpoint = {"data": {"noteChanges": {"kind": "CHECKPOINT"}}}
        assert all(each["payload"] == checkpoint for each in sent)
        assert {each["id"] for each in sent[-2:]} == {"s", "t"}
        closed = caught.value.rcvd
        assert closed is not None
        assert (closed.code, "expired" in closed.reason) == (1012, True)
        await renewed.start("q", NOTES)
        answer = await receive_matching(renewed, id="q")
        assert answer["payload"] == {"data": {"notes": {"nodes": [{"id": "a"}]}}}


@pytest.mark.parametrize(
    "accept", ["text/event-stream", "multipart/mixed;subscriptionSpec=1.0,application/json"]
)
async def test_a_stream_over_http_ends_with_its_token(
    guarded: RunningGateway, issuer: Issuer, accept: str
) -> None:
    """It ends without `complete` after the events sent until then, and leaves no trace."""
    async with (
        httpx.AsyncClient(timeout=60) as client,
        client.stream(
            "POST",
            f"{guarded.address}/graphql",
            json={"query": "subscription { noteChanges(snapshot: true) { kind documentId } }"},
            headers={**bearer(reader(issuer, "ann", lasts_s=2)), "accept": accept},
        ) as stream,
    ):
        assert stream.status_code == 200
        text = "".join([each async for each in stream.aiter_text()])
    checkpoint = text.rindex('"kind":"CHECKPOINT"')
    assert text.index('"documentId":"a"') < checkpoint < text.index("UNAUTHENTICATED")
    assert "expired" in text
    # A client of event streams reconnects by itself; one of multipart only after an error.
    assert ('"errors"' in text) == accept.startswith("multipart")
    assert "event: complete" not in text
    operator = bearer(issuer.token("olga", roles=["operator"]))
    sessions = http.get(f"{guarded.address}/admin/sessions", headers=operator).json()["sessions"]
    assert [each for each in sessions if each["principal"] == "ann"] == []


async def test_a_withdrawn_key_ends_the_connections_that_it_signed(
    guarded: RunningGateway, issuer: Issuer
) -> None:
    """Sockets, event streams and accepted tokens of the key end; those of other keys continue."""
    changes = "subscription { noteChanges(snapshot: true) { kind } }"
    old = reader(issuer)
    async with (
        signed_in(guarded, {"authorization": f"Bearer {old}"}) as socket,
        signed_in(guarded, {"apiKey": KEY}) as other,
        httpx.AsyncClient(timeout=60) as client,
        client.stream(
            "POST",
            f"{guarded.address}/graphql",
            json={"query": changes},
            headers={**bearer(old), "accept": "text/event-stream"},
        ) as stream,
    ):
        assert await socket.receive() == {"type": "connection_ack"}
        assert await other.receive() == {"type": "connection_ack"}
        issuer.rotate(uuid4().hex)
        closed = await socket.closed()
        assert closed is not None
        assert (closed.code, "withdrawn" in closed.reason) == (1012, True)
        assert "UNAUTHENTICATED" in "".join([each async for each in stream.aiter_text()])
        assert await other.data(NOTES)
    assert ask(guarded, bearer(old)).status_code == 401
    fresh = bearer(reader(issuer))
    await asyncio.to_thread(wait_until, lambda: ask(guarded, fresh).status_code == 200)


@pytest.mark.parametrize("entry", ["", CHANGED], ids=["withdrawn", "changed"])
async def test_a_removed_or_changed_api_key_ends_its_connections(
    guarded: RunningGateway, api_keys: Path, entry: str
) -> None:
    """Sockets and event streams end even while idle; those of other keys continue."""
    changes = "subscription { noteChanges(snapshot: true) { kind } }"
    kept = await asyncio.to_thread(api_keys.read_text)
    headers = {"X-API-Key": KEY, "accept": "text/event-stream"}
    try:
        async with (
            signed_in(guarded, {"apiKey": KEY}) as socket,
            signed_in(guarded, {"apiKey": OTHER_KEY}) as other,
            httpx.AsyncClient(timeout=60) as client,
            client.stream(
                "POST",
                f"{guarded.address}/graphql",
                json={"query": changes},
                headers=headers,
            ) as stream,
        ):
            assert await socket.receive() == {"type": "connection_ack"}
            assert await other.receive() == {"type": "connection_ack"}
            other_entry = entry_of(OTHER_KEY, "carl")
            await asyncio.to_thread(api_keys.write_text, other_entry + entry)
            closed = await socket.closed()
            assert closed is not None
            assert (closed.code, "withdrawn" in closed.reason) == (1012, True)
            assert "UNAUTHENTICATED" in "".join([each async for each in stream.aiter_text()])
            assert await other.data(NOTES)
    finally:
        await asyncio.to_thread(api_keys.write_text, kept)
    bob = {"X-API-Key": KEY}
    await asyncio.to_thread(wait_until, lambda: ask(guarded, bob).status_code == 200)


async def receive_matching(socket: Socket, **wanted: str) -> dict[str, Any]:
    """Return the next message with these values; the subscription's messages are skipped."""
    while True:
        message = await socket.receive()
        if message.items() >= wanted.items():
            return message


@pytest.mark.parametrize(
    "other", [{"name": "bob"}, {"roles": ["reader", "operator"]}], ids=["name", "roles"]
)
async def test_another_authentication_is_no_renewal(
    guarded: RunningGateway, issuer: Issuer, other: dict[str, Any]
) -> None:
    """It closes the socket, since the operations began with other rights."""
    async with signed_in(guarded, {"authorization": f"Bearer {reader(issuer)}"}) as socket:
        assert await socket.receive() == {"type": "connection_ack"}
        token = reader(issuer, **other)
        await socket.send({"type": "ping", "payload": {"authorization": f"Bearer {token}"}})
        closed = await socket.closed()
        assert closed is not None
        assert (closed.code, "connect again" in closed.reason) == (1012, True)


async def test_an_administrator_lists_and_ends_connections(
    guarded: RunningGateway, issuer: Issuer
) -> None:
    """Other callers are refused."""
    operator = bearer(issuer.token("olga", roles=["operator"]))
    admin = f"{guarded.address}/admin"
    async with signed_in(guarded, {"authorization": f"Bearer {reader(issuer, 'carl')}"}) as socket:
        assert await socket.receive() == {"type": "connection_ack"}
        await socket.start("s", "subscription { noteChanges { kind } }")
        assert http.get(f"{admin}/sessions").status_code == 401
        assert http.get(f"{admin}/sessions", headers=bearer(reader(issuer))).status_code == 403

        def followed() -> list[str]:
            sessions = http.get(f"{admin}/sessions", headers=operator).json()["sessions"]
            hers = [each for each in sessions if each["principal"] == "carl"]
            return [name for each in hers for name in each["subscriptions"]]

        await asyncio.to_thread(wait_until, lambda: followed() == ["noteChanges"])
        done = http.post(f"{admin}/disconnect", headers=operator, json={"principal": "carl"})
        assert done.json() == {"disconnected": 1}
        closed = await socket.closed()
        assert closed is not None
        assert closed.code == 4403


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        ('{"principal": "carl"}', "text/plain", 415),
        ("nonsense", "application/json", 400),
        ("[]", "application/json", 400),
        ('{"principal": 5}', "application/json", 400),
        ('{"principal": "carl"}', "application/json; charset=utf-8", 200),
    ],
)
def test_requests_of_an_administrator_are_checked_like_others(
    guarded: RunningGateway, issuer: Issuer, body: str, kind: str, status: int
) -> None:
    """Requests that a form could send are refused, and each refusal is an error with its code."""
    headers = {**bearer(issuer.token("olga", roles=["operator"])), "content-type": kind}
    url = f"{guarded.address}/admin/disconnect"
    answer = http.post(url, headers=headers, content=body)
    assert answer.status_code == status
    if status != 200:
        assert answer.json()["errors"][0]["extensions"] == {"code": "BAD_USER_INPUT"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), "authentication: none"),
        (("--jwt-keys", "jwks.json"), "--jwt-issuer and --jwt-audience"),
        (("--api-keys", "missing.toml"), "missing.toml"),
        (("--admin-role", "x"), "requires authentication"),
    ],
)
def test_a_model_with_access_rules_needs_authentication(
    mongo_uri: str, tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    """A model with @access does not start where authentication is impossible.

    The error has the remedy.
    """
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    done = run_command(
        *("serve", "--mongodb-uri", mongo_uri, "--database", "unused", "--port", "0"),
        *("--schema", str(model), *options),
    )
    assert done.returncode != 0
    assert expected in done.stderr


def test_the_log_has_no_tokens(guarded: RunningGateway, issuer: Issuer) -> None:
    """This holds for accepted and for refused ones."""
    token = reader(issuer)
    ask(guarded, bearer(token))
    ask(guarded, bearer(token[:-5] + "xxxxx"))
    assert token[:40] not in "".join(guarded.lines)
    assert json.dumps(KEY) not in "".join(guarded.lines)
