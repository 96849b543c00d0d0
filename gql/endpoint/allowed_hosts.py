"""Allowed host names, against DNS rebinding.

A page whose own name resolves to this gateway has the same origin for its browser, and could reach
a gateway that listens on this machine only.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

import click
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from revstream.gql.http.request import Refused
from revstream.gql.observability.error_response import ErrorReporter

__all__ = ["AllowedHosts", "allowed_hosts"]

_HEALTH_PATHS = frozenset({"/livez", "/readyz"})
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(\[[0-9a-f:.]*\]|[^:\[\]]*)(?::\d*)?")
# Maximum characters of a header in a message.
_SHOWN = 200


def allowed_hosts(given: str | None, bound: str) -> frozenset[str] | None:
    """Return the host names that a request may have, without ports; None: any.

    Args:
        given: names separated by commas, `*` for any; None: loopback names if the gateway listens
            on a loopback address, otherwise any.
        bound: address that the gateway listens on.

    Raises:
        click.UsageError: one of them is not a host name.
    """
    if given is None:
        if not _is_loopback(bound):
            return None
        return frozenset((*_LOOPBACK, f"[{bound}]" if ":" in bound else bound.lower()))
    named = frozenset(map(_name, given.split(",")))
    if "" in named:
        raise click.UsageError(f"--allowed-hosts: {given!r}, expected host names")
    return None if "*" in named else named


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address.lower() == "localhost"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


@lru_cache(maxsize=128)
def _name(host: str) -> str:
    """Return a host in lower case without its port; empty if it is invalid."""
    found = _HOST.fullmatch(host.strip().lower())
    return "" if found is None else found[1].rstrip(".")


class AllowedHosts:
    """Middleware that refuses requests and handshakes for other host names, with 421.

    Health checks are answered under any address, too: Kubernetes asks by that of the pod, which no
    list has, and no name can be made to resolve to another address where none is used.

    Args:
        names: allowed names; None: any.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str] | None, reporter: ErrorReporter) -> None:
        self._app = app
        self._names = names
        self._reporter = reporter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._names is None or scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        name = _name(host.decode("latin-1"))
        if name in self._names or (_is_address(name) and scope["path"] in _HEALTH_PATHS):
            await self._app(scope, receive, send)
            return
        refused = Refused(
            421,
            f"host: {host.decode('latin-1')[:_SHOWN]!r}, expected one of --allowed-hosts",
        )
        response = self._reporter.response(refused)
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(response)
        else:
            await response(scope, receive, send)
