"""Allowed host names, as settings and requests write them."""

from __future__ import annotations

import click
import pytest
from httpx2 import Response
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from revstream.gql.endpoint.allowed_hosts import AllowedHosts, allowed_hosts
from revstream.gql.observability.error_response import ErrorReporter
from revstream.gql.observability.operation_metrics import Operations


@pytest.mark.parametrize(
    ("given", "bound", "names"),
    [
        (None, "127.0.0.1", {"localhost", "127.0.0.1", "[::1]"}),
        (None, "127.0.0.2", {"localhost", "127.0.0.1", "[::1]", "127.0.0.2"}),
        (None, "::1", {"localhost", "127.0.0.1", "[::1]"}),
        (None, "localhost", {"localhost", "127.0.0.1", "[::1]"}),
        (None, "0.0.0.0", None),
        (None, "::", None),
        (None, "10.0.0.1", None),
        (None, "app.example.org", None),
        ("*", "127.0.0.1", None),
        ("App.example.org, b.example.org:8443", "0.0.0.0", {"app.example.org", "b.example.org"}),
    ],
)
def test_allowed_hosts_are_those_of_the_settings_or_of_this_machine(
    given: str | None, bound: str, names: set[str] | None
) -> None:
    """None allows any host."""
    assert allowed_hosts(given, bound) == names


@pytest.mark.parametrize("given", ["", ",", "a.example.org,", "http://a.example.org"])
def test_an_invalid_name_is_refused_at_the_start(given: str) -> None:
    """Otherwise it would match no request, or every one."""
    with pytest.raises(click.UsageError, match="--allowed-hosts"):
        allowed_hosts(given, "127.0.0.1")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST.:8000", 200),
        ("127.0.0.1:1", 200),
        ("[::1]", 200),
        ("[::1]:8000", 200),
        ("rebound.example.org", 421),
        ("rebound.example.org:8000", 421),
        ("localhost.example.org", 421),
        ("localhost@example.org", 421),
        ("[::1].example.org:8000", 421),
        ("", 421),
    ],
)
def test_a_request_to_another_host_is_refused(host: str, status: int) -> None:
    """The port does not matter."""
    response = _get("/", host)
    assert response.status_code == status
    assert ("secret" in response.text) == (status == 200)


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_a_health_check_is_answered_under_any_address(path: str) -> None:
    """Kubernetes asks by the address of the pod, which is in no list."""
    assert _get(path, "10.0.0.7:8000").status_code == 200
    assert _get(path, "[fd00::7]:8000").status_code == 200
    assert _get("/", "10.0.0.7:8000").status_code == 421
    assert _get(path, "rebound.example.org").status_code == 421
    assert _get(path, "").status_code == 421


def _get(path: str, host: str) -> Response:
    """Return the response of an application that answers every path with `secret`."""

    async def served(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("secret")

    names = allowed_hosts(None, "127.0.0.1")
    checked = Middleware(AllowedHosts, names=names, reporter=ErrorReporter(Operations()))
    app = Starlette(routes=[Route("/{path:path}", served)], middleware=[checked])
    with TestClient(app) as client:
        return client.get(path, headers={"host": host})
