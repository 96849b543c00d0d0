"""WebSockets during authentication, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import fields
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import Headers
from strawberry.types.unset import UNSET

from revstream.gql.auth.sessions import Sessions
from revstream.gql.endpoint.websocket import LegacySocket, TransportSocket
from revstream.gql.engine.request.context import RequestContext
from revstream.gql.observability.error_response import ErrorReporter
from revstream.gql.observability.operation_metrics import Operations
from revstream.resolvers.access.principal import ANONYMOUS, Principal
from tests.support.eventually import eventually
from tests.support.reads import Memory


class _Wire:
    """The messages that a client sends and receives."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.ws = SimpleNamespace(headers=Headers())
        self.sent: list[Any] = []
        self._messages = messages

    async def iter_json(self, **_options: Any) -> AsyncGenerator[object]:
        for each in self._messages:
            yield each

    async def send_json(self, message: dict[str, Any]) -> None:
        self.sent.append(message["type"])

    async def close(self, code: int, reason: str) -> None:
        self.sent.append(code)


class _View:
    """A view whose authentication waits for the test."""

    def __init__(self, context: RequestContext, checking: Callable[[], Awaitable[None]]) -> None:
        self.context = context
        self.callers = self
        self.sessions = Sessions()
        self.signs_in = True
        self.connection_init_wait_timeout = timedelta(0)
        self._checking = checking

    async def authenticate_socket(self, *_given: object) -> tuple[Principal, RequestContext]:
        await self._checking()
        return ANONYMOUS, self.context

    async def on_ws_connect(self, _context: RequestContext) -> object:
        return UNSET


def socket_of(kind: type[Any], wire: _Wire, view: _View) -> Any:
    operations = Operations()
    given = {} if kind is LegacySocket else {"connection_init_wait_timeout": timedelta(0)}
    if kind is LegacySocket:
        given |= {"keep_alive": False, "keep_alive_interval": None}
    return kind(
        view=view,
        websocket=wire,
        context=view.context,
        root_value=None,
        schema=SimpleNamespace(operations=operations, error_reporter=ErrorReporter(operations)),
        max_subscriptions_per_connection=1,
        **given,
    )


@pytest.mark.parametrize("kind", [TransportSocket, LegacySocket])
async def test_the_init_timeout_ends_with_the_init_message(memory: Memory, kind: type[Any]) -> None:
    """The time that authentication takes does not count."""

    async def until_the_time_is_over() -> None:
        waiting = asyncio.all_tasks() - {asyncio.current_task()}
        await eventually(lambda: all(each.done() for each in waiting))

    wire = _Wire({"type": "connection_init", "payload": {"authorization": "Bearer x"}})
    await socket_of(kind, wire, _View(memory.context(), until_the_time_is_over)).handle()
    assert wire.sent == ["connection_ack"]


@pytest.mark.parametrize("kind", [TransportSocket, LegacySocket])
async def test_the_connection_parameters_are_not_kept(memory: Memory, kind: type[Any]) -> None:
    """The executed operations cannot read them either."""

    async def at_once() -> None:
        pass

    token = {"authorization": "Bearer secret"}
    wire = _Wire({"type": "connection_init", "payload": token})
    handler = socket_of(kind, wire, _View(memory.context(), at_once))
    await handler.handle()
    assert wire.sent == ["connection_ack"]
    context = handler.context
    assert "secret" not in str([getattr(context, each.name) for each in fields(context)])
