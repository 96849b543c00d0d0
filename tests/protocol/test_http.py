"""The gateway over HTTP: queries, pages, health, and refusals with JSON errors."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from graphql import build_schema
from pymongo.collection import Collection

from tests.support import http
from tests.support.eventually import wait_until
from tests.support.gateway import RunningGateway
from tests.support.sockets import open_socket

QUERY = '{ thing(id: "a") { name } }'
DATA = {"data": {"thing": {"name": "first"}}}
JSON = {"content-type": "application/json"}
PLAIN = "application/json; charset=utf-8"
MODERN = "application/graphql-response+json; charset=utf-8"
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.fixture
def url(gateway: RunningGateway) -> str:
    return f"{gateway.address}/graphql"


@pytest.mark.parametrize(
    ("accept", "answered"),
    [
        ("application/json", PLAIN),
        ("*/*", PLAIN),
        ("application/*", PLAIN),
        (BROWSER, PLAIN),
        ("application/graphql-response+json", MODERN),
        ("application/graphql-response+json, application/json", MODERN),
        ("application/json, application/graphql-response+json", MODERN),
        ("application/graphql-response+json;q=0.5, application/json;q=0.9", PLAIN),
        ("application/graphql-response+json, application/json;q=0.9", MODERN),
        ("application/json;q=0, */*", MODERN),
        ("APPLICATION/GraphQL-Response+JSON; charset=UTF-8", MODERN),
        ("text/event-stream, application/json;q=0.1", PLAIN),
        ('text/x;a="application/graphql-response+json, ", application/json', PLAIN),
    ],
)
def test_a_query_is_answered_over_post_and_get(url: str, accept: str, answered: str) -> None:
    """The response has the preferred media type, also for a browser with a query in the URL."""
    headers = {"accept": accept}
    for response in (
        http.post(url, json={"query": QUERY}, headers=headers),
        http.get(url, params={"query": QUERY}, headers=headers),
    ):
        assert response.status_code == 200
        assert response.headers["content-type"] == answered
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.json() == DATA


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "text/plain",
        "application/json;q=0",
        "application/json; charset=utf-16",
        "multipart/mixed",
        "multipart/mixed;deferSpec=20220824",
        "nonsense",
    ],
)
def test_a_media_type_that_is_not_accepted_is_not_sent(url: str, accept: str) -> None:
    """The status is 406; the error is JSON all the same and lists the available types."""
    response = http.post(url, json={"query": QUERY}, headers={"accept": accept})
    assert response.status_code == 406
    assert response.headers["content-type"] == PLAIN
    [error] = response.json()["errors"]
    assert "application/graphql-response+json" in error["message"]


def test_headers_that_come_in_several_lines_are_one(url: str) -> None:
    """Several lines of a list header are one list, as in HTTP."""
    accept = [("accept", "text/html"), ("accept", "application/graphql-response+json")]
    response = http.post(url, json={"query": QUERY}, headers=accept)
    assert response.headers["content-type"] == MODERN
    encodings = [*JSON.items(), ("content-encoding", "identity"), ("content-encoding", "gzip")]
    response = http.post(url, content=b"{}", headers=encodings)
    assert response.status_code == 415


NOT_EXECUTED = {
    "no document": {"query": "{"},
    "no such field": {"query": "{ nope }"},
    "no such operation": {"query": QUERY, "operationName": "nope"},
    "which of two": {"query": "query A { resumeToken } query B { resumeToken }"},
    "which of two, and one writes": {
        "query": 'query A { resumeToken } mutation B { deleteThing(id: "a") { __typename } }'
    },
    "a variable that is missing": {"query": "query Q($id: ID!) { thing(id: $id) { name } }"},
}


@pytest.mark.parametrize("payload", NOT_EXECUTED.values(), ids=NOT_EXECUTED)
def test_the_status_depends_on_the_media_type(url: str, payload: dict[str, Any]) -> None:
    """A refused request has no data in either type; only `application/json` has status 200."""
    for accept, status in (("application/json", 200), ("application/graphql-response+json", 400)):
        response = http.post(url, json=payload, headers={"accept": accept})
        assert response.status_code == status
        body = response.json()
        assert body.keys() == {"errors"}
        assert body["errors"][0]["extensions"]["code"] == "BAD_USER_INPUT"


async def test_one_of_two_operations_must_be_named_over_a_socket_too(
    gateway: RunningGateway,
) -> None:
    """Without the name neither is executed."""
    payload = NOT_EXECUTED["which of two"]
    async with open_socket(gateway.address) as socket:
        [error] = await socket.errors(payload["query"])
        assert "2 operations" in error["message"]
        await socket.send(
            {"id": "1", "type": "subscribe", "payload": {**payload, "operationName": "A"}}
        )
        assert (await socket.receive())["payload"]["data"]["resumeToken"]


def test_an_error_of_a_field_is_part_of_a_response(url: str) -> None:
    """The status is 200, with the available data, in both types."""
    payload = {"query": '{ things(first: 1, after: "nonsense") { totalCount } }'}
    for accept in ("application/json", "application/graphql-response+json"):
        response = http.post(url, json=payload, headers={"accept": accept})
        assert response.status_code == 200
        assert response.json().keys() == {"data", "errors"}


def test_variables_and_the_operations_name_are_part_of_the_request(url: str) -> None:
    """They are in the body, or in the URL as JSON."""
    text = "query One($id: ID!) { thing(id: $id) { name } } query Two { streams { name } }"
    body = {"query": text, "variables": {"id": "a"}, "operationName": "One"}
    assert http.post(url, json=body).json() == DATA
    address = {"query": text, "variables": '{"id": "a"}', "operationName": "One"}
    assert http.get(url, params=address).json() == DATA


def test_a_browser_gets_graphiql(url: str) -> None:
    """GraphiQL is served where a page is accepted and there is no query."""
    response = http.get(url, headers={"accept": BROWSER})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    assert "GraphiQL" in response.text


def _sent_as(content_type: str, encoding: str | None = None) -> dict[str, Any]:
    headers = {"content-type": content_type, "accept-encoding": "identity"}
    if encoding is not None:
        headers["content-encoding"] = encoding
    return {"content": b'{"query": "{ resumeToken }"}', "headers": headers}


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
    "a list": ({"json": [{"query": QUERY}]}, 400, "request: a list"),
    "no query": ({"json": {}}, 400, "query: missing"),
    "an empty query": ({"json": {"query": ""}}, 400, "query: missing"),
    "a number for a query": ({"json": {"query": 5}}, 400, "query"),
    "a query that is too long": ({"json": {"query": " " * 1024 * 1024}}, 413, "1,048,576"),
    "a list of variables": ({"json": {"query": QUERY, "variables": [1]}}, 400, "variables"),
    "extensions of no kind": ({"json": {"query": QUERY, "extensions": 5}}, 400, "extensions"),
    "an operation that is none": (
        {"json": {"query": QUERY, "operationName": "nope"}},
        200,
        '"nope"',
    ),
    "an operation without name": (
        {"json": {"query": QUERY, "operationName": 5}},
        400,
        "operationName",
    ),
    "no content type": ({"content": b"{}"}, 415, "application/json"),
    "text": (_sent_as("text/plain"), 415, "text/plain"),
    "a form": (_sent_as("application/x-www-form-urlencoded"), 415, "application/json"),
    "a form in parts": (_sent_as("multipart/form-data; boundary=x"), 415, "application/json"),
    "text that mentions JSON": (_sent_as("text/plain; x=application/json"), 415, "text/plain"),
    "JSON and text": (_sent_as("application/json, text/plain"), 415, "application/json"),
    "almost JSON": (_sent_as("application/json5"), 415, "json5"),
    "another charset": (_sent_as("application/json; charset=utf-16"), 415, "utf-16"),
    "compressed": (_sent_as("application/json", "gzip"), 415, "gzip"),
    "encoded in an unknown way": (_sent_as("application/json", "x-nope"), 415, "x-nope"),
    "a subscription": (
        {"json": {"query": "subscription { thingChanges { kind } }"}},
        400,
        "graphql-transport-ws",
    ),
    "a document in the wrong words": ({"json": {"query": "{"}}, 200, "Syntax Error"),
}


@pytest.mark.parametrize(("request_", "status", "message"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_request_is_refused_in_json(
    url: str, request_: dict[str, Any], status: int, message: str
) -> None:
    """The code is that of bad input."""
    response = http.post(url, **request_)
    assert response.status_code == status
    assert response.headers["content-type"] == PLAIN
    (error,) = response.json()["errors"]
    assert error["extensions"] == {"code": "BAD_USER_INPUT"}
    assert message in error["message"]


@pytest.mark.parametrize(
    ("params", "status", "message"),
    [
        ({}, 400, "query: missing"),
        ({"query": "subscription { thingChanges { kind } }"}, 400, "graphql-transport-ws"),
        ({"query": "mutation { x }"}, 405, "POST"),
        ({"query": QUERY, "variables": "x"}, 400, "JSON"),
        ({"query": QUERY, "variables": "[]"}, 400, "variables"),
        ({"query": [QUERY, QUERY]}, 400, "more than once"),
    ],
)
def test_an_operation_that_a_get_cannot_have_is_refused_in_json(
    url: str, params: dict[str, Any], status: int, message: str
) -> None:
    """These are mutations and subscriptions."""
    response = http.get(url, params=params, headers={"accept": "application/json"})
    assert response.status_code == status
    (error,) = response.json()["errors"]
    assert error["extensions"] == {"code": "BAD_USER_INPUT"}
    assert message in error["message"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_other_methods_get_the_allowed_ones(url: str, method: str) -> None:
    """The status is 405, and `Allow` lists them."""
    response = http.request(method, url)
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, POST"
    assert response.json()["errors"][0]["extensions"]["code"] == "BAD_USER_INPUT"


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream", "*/*"])
def test_a_mutation_is_not_executed_by_a_get(
    url: str, things: Collection[dict[str, Any]], accept: str
) -> None:
    """The status is 405 for any `Accept`; a page of another origin could send it."""
    params = {"query": 'mutation { createThing(id: "got", document: {}) { __typename } }'}
    response = http.get(url, params=params, headers={"accept": accept})
    assert response.status_code == 405
    assert response.headers["allow"] == "GET, POST"
    assert things.find_one({"_id": "got"}) is None


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "Application/JSON;charset=UTF-8", 'application/json; charset="utf-8" ;'],
)
def test_json_may_be_named_as_headers_are(url: str, content_type: str) -> None:
    """The case does not matter, nor do quotes of the charset."""
    content = orjson.dumps({"query": QUERY})
    response = http.post(url, content=content, headers={"content-type": content_type})
    assert response.json() == DATA


def test_the_schema_is_served_as_sdl(gateway: RunningGateway) -> None:
    """The SDL builds the same schema again."""
    response = http.get(f"{gateway.address}/schema.graphql")
    assert response.headers["content-type"].startswith("text/plain")
    schema = build_schema(response.text)
    assert schema.subscription_type is not None
    assert "thingChanges" in schema.subscription_type.fields


def test_health_has_liveness_and_readiness(gateway: RunningGateway) -> None:
    """The process is live at once, and ready once the stream is followed."""
    assert http.get(f"{gateway.address}/livez").json() == {"live": True}
    wait_until(lambda: http.get(f"{gateway.address}/readyz").status_code == 200)
    assert http.get(f"{gateway.address}/readyz").json() == {"ready": True, "notReady": {}}


def test_an_unknown_path_is_not_found(gateway: RunningGateway) -> None:
    """The status is 404, and no page is served."""
    assert http.get(f"{gateway.address}/nope").status_code == 404
