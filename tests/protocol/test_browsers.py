"""Rights of pages: same origin, allowed origins, and other origins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
import httpx2 as httpx
import pytest
from pymongo import MongoClient
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

from revstream.gql.runtime.configuration.settings import Settings
from tests.support import http
from tests.support.gateway import RunningGateway, run_command, running_gateway
from tests.support.sockets import TRANSPORT

MODEL = 'type Thing @collection(name: "things") { id: ID! name: String }'
ALLOWED = "https://app.example.org"
ALSO_ALLOWED = "http://localhost:3000"
EVIL = "https://evil.example"
ASKS = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "content-type,authorization,idempotency-key,last-event-id",
}


@pytest.fixture(scope="module")
def open_gateway(
    mongo_uri: str, client: MongoClient[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """Run a gateway that allows pages of two other origins."""
    model = tmp_path_factory.mktemp("model") / "schema.graphql"
    model.write_text(MODEL)
    name = f"browsers_{uuid4().hex[:8]}"
    origins = f"{ALLOWED}, HTTP://LocalHost:3000/"
    with running_gateway(mongo_uri, name, model, "--allowed-origins", origins) as running:
        yield running
        assert running.stop() == 0
    client.drop_database(name)


def preflight(gateway: RunningGateway, origin: str) -> httpx.Response:
    headers = {"origin": origin, **ASKS}
    return httpx.options(f"{gateway.address}/graphql", headers=headers)


def post(gateway: RunningGateway, origin: str) -> httpx.Response:
    query = {"query": "{ resumeToken }"}
    return http.post(f"{gateway.address}/graphql", json=query, headers={"origin": origin})


@pytest.mark.parametrize("origin", [ALLOWED, ALSO_ALLOWED])
def test_pages_of_an_allowed_origin_may_send_requests(
    open_gateway: RunningGateway, origin: str
) -> None:
    """A preflight allows the headers that clients send, and never cookies."""
    allowed = preflight(open_gateway, origin)
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == origin
    assert "POST" in allowed.headers["access-control-allow-methods"]
    names = allowed.headers["access-control-allow-headers"].lower()
    for each in ASKS["access-control-request-headers"].split(","):
        assert each in names
    answer = post(open_gateway, origin)
    assert answer.status_code == 200
    for response in (allowed, answer):
        assert response.headers["access-control-allow-origin"] == origin
        assert "Origin" in response.headers["vary"]
        assert "access-control-allow-credentials" not in response.headers


async def test_pages_of_an_allowed_origin_may_read_a_stream(open_gateway: RunningGateway) -> None:
    """This is an EventSource."""
    params = {"query": "{ resumeToken }"}
    headers = {"accept": "text/event-stream", "origin": ALLOWED}
    response = http.get(f"{open_gateway.address}/graphql", params=params, headers=headers)
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["access-control-allow-origin"] == ALLOWED


def test_pages_of_an_allowed_origin_may_read_an_error(open_gateway: RunningGateway) -> None:
    """Otherwise a page would not learn the reason of a failure."""
    headers = {"origin": ALLOWED, "content-type": "application/json"}
    response = http.post(f"{open_gateway.address}/graphql", content=b"{", headers=headers)
    assert response.status_code == 400
    assert response.headers["access-control-allow-origin"] == ALLOWED


@pytest.mark.parametrize("origin", [EVIL, "null", f"{ALLOWED}.evil.example", "http://localhost"])
def test_pages_of_other_origins_are_refused(open_gateway: RunningGateway, origin: str) -> None:
    """No preflight succeeds, and no response allows them to read it."""
    refused = preflight(open_gateway, origin)
    assert refused.status_code == 400
    for response in (refused, post(open_gateway, origin)):
        assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("origin", [ALLOWED, EVIL])
def test_without_allowed_origins_no_page_is_allowed(gateway: RunningGateway, origin: str) -> None:
    """There is no preflight, and no response has headers on origins."""
    assert preflight(gateway, origin).status_code == 405
    for response in (preflight(gateway, origin), post(gateway, origin)):
        assert not [name for name in response.headers if name.startswith("access-control")]


async def connected(gateway: RunningGateway, origin: str | None) -> bool:
    url = gateway.address.replace("http", "ws", 1) + "/graphql"
    given = None if origin is None else Origin(origin)
    try:
        async with connect(url, subprotocols=[Subprotocol(TRANSPORT)], origin=given):
            return True
    except InvalidStatus as exc:
        if exc.response.status_code != 403:
            raise
        return False


async def test_sockets_are_for_the_same_pages(
    gateway: RunningGateway, open_gateway: RunningGateway
) -> None:
    """A WebSocket of another origin is refused with 403, as browsers send no preflight for it."""
    for each in (gateway, open_gateway):
        assert await connected(each, None), "a program sends none"
        assert await connected(each, each.address)
        for origin in (EVIL, "null", "", f"{each.address}0", each.address.replace("127.", "128.")):
            assert not await connected(each, origin), origin
    refused = [line for line in open_gateway.lines if "origin" in line.lower()]
    assert f"origin refused origin={EVIL}" in refused[0]
    assert len(refused) <= 2, "one line at once, and then now and then"
    for origin in (ALLOWED, ALSO_ALLOWED):
        assert await connected(open_gateway, origin)
        assert not await connected(gateway, origin)


def test_an_invalid_origin_is_refused_at_the_start(tmp_path: Path) -> None:
    """It would match no page."""
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    options = ("--schema", str(model), "--mongodb-uri", "mongodb://127.0.0.1:1/x")
    ended = run_command("serve", *options, "--allowed-origins", "app.example.org")
    assert ended.returncode == 2
    assert "--allowed-origins: Invalid origin 'app.example.org'" in ended.stderr


@pytest.mark.parametrize("origins", ["https://a.example/page", "https://[", "null", "a b"])
def test_an_origin_is_a_scheme_and_a_host(origins: str) -> None:
    """It may have a port, and nothing else."""
    with pytest.raises(click.UsageError):
        Settings(allowed_origins=origins).origins()


PATHS = ("graphql?query={resumeToken}", "", "schema.graphql", "metrics")


@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_host_name_that_resolves_to_this_machine_is_refused(
    gateway: RunningGateway, path: str
) -> None:
    """Every request to such a name is refused, since its page would be of the same origin."""
    url = f"{gateway.address}/{path}"
    port = gateway.address.rpartition(":")[2]
    for host in ("localhost", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert http.get(url, headers={"host": host}).status_code == 200
    refused = http.get(url, headers={"host": f"rebound.example.org:{port}"})
    assert refused.status_code == 421
    (error,) = refused.json()["errors"]
    assert "rebound.example.org" in error["message"]
    assert "--allowed-hosts" in error["message"]


async def test_sockets_with_a_foreign_host_name_are_refused(gateway: RunningGateway) -> None:
    """The origin equals the host in such a request."""
    port = gateway.address.rpartition(":")[2]
    with pytest.raises(InvalidStatus) as caught:
        await connect(
            f"ws://rebound.example.org:{port}/graphql",
            host="127.0.0.1",
            origin=Origin(f"http://rebound.example.org:{port}"),
            subprotocols=[Subprotocol("graphql-transport-ws")],
        )
    assert caught.value.response.status_code == 421


@pytest.mark.parametrize("path", ["/", "/graphql"])
def test_pages_have_a_content_security_policy(gateway: RunningGateway, path: str) -> None:
    """It allows only the gateway's own scripts, no frames, and no other servers."""
    response = http.get(gateway.address + path, headers={"accept": "text/html"})
    assert response.status_code == 200
    directives = response.headers["content-security-policy"].split("; ")
    policy = dict(each.split(" ", 1) for each in directives)
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cross-origin-opener-policy"] == "same-origin"
    assert response.headers["cross-origin-resource-policy"] == "same-origin"
    for script in response.text.split("<script")[1:]:
        attributes, _, rest = script.partition(">")
        assert "src=" in attributes
        assert rest.startswith("</script>"), "a script within the page"
    assert "onclick" not in response.text
    assert "javascript:" not in response.text
