"""The gateway over HTTP: queries, pages, health, and what is refused, always with JSON errors."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest
from graphql import build_schema

from tests.support.eventually import wait_until
from tests.support.gateway import RunningGateway

QUERY = '{ thing(id: "a") { name } }'
DATA = {"data": {"thing": {"name": "first"}}}
JSON = {"content-type": "application/json"}


@pytest.fixture
def url(gateway: RunningGateway) -> str:
    return f"{gateway.address}/graphql"


@pytest.mark.parametrize("accept", ["application/json", "*/*", "text/html"])
def test_a_query_is_answered_over_post_and_get(url: str, accept: str) -> None:
    """In JSON, also for a browser that asks with a query in the address."""
    headers = {"accept": accept}
    for response in (
        httpx.post(url, json={"query": QUERY}, headers=headers),
        httpx.get(url, params={"query": QUERY}, headers=headers),
    ):
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        assert response.json() == DATA


def test_variables_and_the_operations_name_come_along(url: str) -> None:
    """In the body, and in the address as JSON."""
    text = "query One($id: ID!) { thing(id: $id) { name } } query Two { streams { name } }"
    body = {"query": text, "variables": {"id": "a"}, "operationName": "One"}
    assert httpx.post(url, json=body).json() == DATA
    address = {"query": text, "variables": '{"id": "a"}', "operationName": "One"}
    assert httpx.get(url, params=address).json() == DATA


def test_a_browser_gets_graphiql(url: str) -> None:
    """Where it asks for a page and brings no query."""
    response = httpx.get(url, headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert "GraphiQL" in response.text


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "half an object": ({"content": b"{", "headers": JSON}, 400, "JSON"),
    "no text": ({"content": b"\xff\xfe", "headers": JSON}, 400, "JSON"),
    "half of a character": (
        {"content": b'{"query": "{ a }", "variables": {"a": "\\ud800"}}', "headers": JSON},
        400,
        "JSON",
    ),
    "too deep": ({"content": b"[" * 100_000, "headers": JSON}, 400, "JSON"),
    "no object": ({"content": b"5", "headers": JSON}, 400, "a JSON object"),
    "text alone": ({"content": b'"{ a }"', "headers": JSON}, 400, "a JSON object"),
    "null": ({"content": b"null", "headers": JSON}, 400, "a JSON object"),
    "a list": ({"json": [{"query": QUERY}]}, 400, "Batching"),
    "no query": ({"json": {}}, 400, "no query"),
    "an empty query": ({"json": {"query": ""}}, 400, "no query"),
    "a number for a query": ({"json": {"query": 5}}, 400, "query"),
    "a list of variables": ({"json": {"query": QUERY, "variables": [1]}}, 400, "variables"),
    "extensions of no kind": ({"json": {"query": QUERY, "extensions": 5}}, 400, "extensions"),
    "an operation that is none": (
        {"json": {"query": QUERY, "operationName": "nope"}},
        400,
        '"nope"',
    ),
    "an operation without name": (
        {"json": {"query": QUERY, "operationName": 5}},
        400,
        '"5"',
    ),
    "another content": (
        {"content": b"x", "headers": {"content-type": "text/plain"}},
        400,
        "content type",
    ),
    "a subscription": (
        {"json": {"query": "subscription { thingChanges { kind } }"}},
        400,
        "graphql-transport-ws",
    ),
    "a document in the wrong words": ({"json": {"query": "{"}}, 200, "Syntax Error"),
}


@pytest.mark.parametrize(("request_", "status", "said"), REFUSED.values(), ids=REFUSED)
def test_a_request_that_cannot_be_is_refused_in_json(
    url: str, request_: dict[str, Any], status: int, said: str
) -> None:
    """With the code that bad input has everywhere."""
    response = httpx.post(url, **request_)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/json"
    (error,) = response.json()["errors"]
    assert error["extensions"] == {"code": "BAD_USER_INPUT"}
    assert said in error["message"]


@pytest.mark.parametrize(
    ("params", "status", "said"),
    [
        ({}, 400, "no query"),
        ({"query": "subscription { thingChanges { kind } }"}, 400, "graphql-transport-ws"),
        ({"query": "mutation { x }"}, 405, "POST"),
        ({"query": QUERY, "variables": "x"}, 400, "JSON"),
    ],
)
def test_what_a_get_cannot_ask_is_refused_in_json(
    url: str, params: dict[str, str], status: int, said: str
) -> None:
    """Nothing that changes something, and nothing that does not end."""
    response = httpx.get(url, params=params, headers={"accept": "application/json"})
    assert response.status_code == status
    (error,) = response.json()["errors"]
    assert error["extensions"] == {"code": "BAD_USER_INPUT"}
    assert said in error["message"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_other_methods_are_told_which_there_are(url: str, method: str) -> None:
    """405 names the ones that are allowed."""
    response = httpx.request(method, url)
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, POST"
    assert response.json()["errors"][0]["extensions"]["code"] == "BAD_USER_INPUT"


def test_the_schema_is_served_as_sdl(gateway: RunningGateway) -> None:
    """As text that builds the same schema again."""
    response = httpx.get(f"{gateway.address}/schema.graphql")
    assert response.headers["content-type"].startswith("text/plain")
    schema = build_schema(response.text)
    assert schema.subscription_type is not None
    assert "thingChanges" in schema.subscription_type.fields


def test_health_is_told_alive_and_ready(gateway: RunningGateway) -> None:
    """Alive at once; ready once the stream is followed."""
    assert httpx.get(f"{gateway.address}/livez").json() == {"live": True}
    wait_until(lambda: httpx.get(f"{gateway.address}/readyz").status_code == 200)
    assert httpx.get(f"{gateway.address}/readyz").json() == {"ready": True, "notReady": {}}


def test_counters_are_told_in_prometheus_words(gateway: RunningGateway) -> None:
    """Of the hub and of each recorder."""
    response = httpx.get(f"{gateway.address}/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    names = {line.partition(" ")[0] for line in response.text.splitlines()}
    assert {
        "revstream_hub_subscribers",
        "revstream_hub_slow_consumers",
        'revstream_recorder_versions{collection="things"}',
        'revstream_recorder_lag_seconds{collection="things"}',
    } <= names


def test_an_address_that_is_none_is_not_found(gateway: RunningGateway) -> None:
    """404, and not a page of another one."""
    assert httpx.get(f"{gateway.address}/nope").status_code == 404
