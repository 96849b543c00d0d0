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
from revstream.gql.server.writer import WRITER
from revstream.gql.subscriptions.broadcast_message import CURRENT_TARGET
from revstream.gql.subscriptions.interruption import Interruption
from revstream.resolvers.access.principal import ANONYMOUS, Principal
from tests.support.eventually import eventually
from tests.support.reads import Memory


class _Wire:
    """The messages that a client sends and receives."""

    def __init__(
        self, *messages: dict[str, Any], until: Callable[[], object] = lambda: True
    ) -> None:
        self.ended = False
        self._until = until
        self.ws = SimpleNamespace(headers=Headers(), scope={})
        self.sent: list[Any] = []
        self._messages = messages

    async def iter_json(self, **_options: Any) -> AsyncGenerator[object]:
        for each in self._messages:
            yield each
        await eventually(self._until)
        self.ended = True

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


async def test_a_fault_of_an_operation_is_logged_once(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    """Strawberry completes the operation, and its task raises the fault."""

    async def at_once() -> None:
        pass

    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    messages: list[dict[str, Any]] = [
        {"type": "connection_init"},
        {"type": "subscribe", "id": "1", "payload": {"query": "{ a }"}},
    ]
    wire = _Wire(*messages, until=lambda: not handler.operations)
    handler = socket_of(TransportSocket, wire, _View(memory.context(), at_once))
    handler.schema = SimpleNamespace(stream=fail)
    await handler.handle()
    assert wire.sent == ["connection_ack", "complete"]
    assert [each.message for each in caplog.records if each.exc_info] == ["task failed"]


@pytest.mark.parametrize(
    ("kind", "start"), [(TransportSocket, "subscribe"), (LegacySocket, "start")]
)
async def test_the_target_of_an_ended_operation_is_not_written_to(
    memory: Memory, kind: type[Any], start: str
) -> None:
    """The client may reuse the id of the operation."""
    written: list[bytes] = []
    targets: list[Any] = []

    async def at_once() -> None:
        pass

    async def execute(*_: object, **__: object) -> AsyncGenerator[Any]:
        async def results() -> AsyncGenerator[Any]:
            targets.append(CURRENT_TARGET.get())
            return
            yield

        return results()

    messages: list[dict[str, Any]] = [
        {"type": "connection_init"},
        {"type": start, "id": "1", "payload": {"query": "subscription { a }"}},
    ]
    wire = _Wire(*messages, until=lambda: "complete" in wire.sent)
    wire.ws.scope = {"extensions": {WRITER: SimpleNamespace(write=written.append)}}
    handler = socket_of(kind, wire, _View(memory.context(), at_once))
    handler.schema = SimpleNamespace(stream=execute, subscribe=execute)
    await handler.handle()
    [target] = targets
    target.writer.write(b"late")
    assert written == []


@pytest.mark.parametrize("kind", [TransportSocket, LegacySocket])
async def test_a_socket_that_is_cancelled_ends_its_closing(memory: Memory, kind: type[Any]) -> None:
    """And refers to nothing any more, so that it needs no garbage collector."""

    async def at_once() -> None:
        pass

    async def close(**_: object) -> None:
        closing.set()
        await asyncio.Event().wait()

    closing = asyncio.Event()
    wire = _Wire({"type": "connection_init"}, until=closing.is_set)
    wire.close = close  # type: ignore[method-assign,assignment]
    handler = socket_of(kind, wire, _View(memory.context(), at_once))
    authentication = handler._authentication
    before = asyncio.all_tasks()
    handling = asyncio.create_task(handler.handle())
    await eventually(lambda: wire.sent)
    authentication.interrupt(Interruption("the gateway restarts"))
    await closing.wait()
    # The handler waits for the close that was begun.
    await eventually(lambda: authentication._handler is not None and wire.ended)
    handling.cancel()
    await asyncio.wait([handling])
    assert handling.cancelled()
    assert asyncio.all_tasks() == before
    assert authentication._handler is None
