"""By which names this gateway may be asked: a page whose own name was made to resolve to it (DNS
rebinding) is of the same origin for its browser, and would get at what listens on this machine
only.
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

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(\[[0-9a-f:.]*\]|[^:\[\]]*)(?::\d*)?")
# Characters of a header that are shown.
_SHOWN = 200


def allowed_hosts(given: str | None, bound: str) -> frozenset[str] | None:
    """Names as in a request's `Host`, without ports; None: any.

    Args:
        given: separated by commas, `*` for any; None: those of this machine, where nobody else
            reaches the gateway, and any where others do.
        bound: the address that is listened on.

    Raises:
        click.UsageError: one is none.
    """
    if given is None:
        if not _is_loopback(bound):
            return None
        return frozenset((*_LOOPBACK, f"[{bound}]" if ":" in bound else bound.lower()))
    named = frozenset(map(_name, given.split(",")))
    if "" in named:
        raise click.UsageError(f"--allowed-hosts: names of hosts are expected, got {given!r}")
    return None if "*" in named else named


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address.lower() == "localhost"


@lru_cache(maxsize=128)
def _name(host: str) -> str:
    """Without its port; empty of what is none."""
    found = _HOST.fullmatch(host.strip().lower())
    return "" if found is None else found[1].rstrip(".")


class AllowedHosts:
    """Refuses requests and handshakes that go to another name, with 421.

    Args:
        names: None: any will do.
    """

    def __init__(self, app: ASGIApp, names: frozenset[str] | None, failures: ErrorReporter) -> None:
        self._app = app
        self._names = names
        self._failures = failures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._names is None or scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        asked = next((value for name, value in scope["headers"] if name == b"host"), b"")
        if _name(asked.decode("latin-1")) in self._names:
            await self._app(scope, receive, send)
            return
        refused = Refused(
            421,
            f"nothing is served here under {asked.decode('latin-1')[:_SHOWN]!r} "
            "(--allowed-hosts has the names)",
        )
        response = self._failures.response(refused)
        if scope["type"] == "websocket":
            await WebSocket(scope, receive, send).send_denial_response(response)
        else:
            await response(scope, receive, send)
