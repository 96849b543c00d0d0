"""GraphQL over WebSocket: Strawberry's handlers of the two protocols, extended.

Guarantees: a message that is invalid in its protocol closes the socket with 4400 and a reason,
never with an exception; a document that cannot be executed is an error of its one operation, and
the others on the socket go on. Both protocols run queries as well as subscriptions.

Source: docs/decisions/0024-sockets.md; PROTOCOL.md of enisdenjo/graphql-ws and of
apollographql/subscriptions-transport-ws.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from json import JSONDecodeError
from typing import Any

from graphql import GraphQLError
from starlette.websockets import WebSocketDisconnect, WebSocketState
from strawberry.asgi import ASGIWebSocketAdapter
from strawberry.http.exceptions import WebSocketDisconnected
from strawberry.subscriptions.protocols.graphql_transport_ws.handlers import (
    BaseGraphQLTransportWSHandler,
    Operation,
)
from strawberry.subscriptions.protocols.graphql_transport_ws.types import (
    ConnectionInitMessage,
    Message,
    PingMessage,
    SubscribeMessage,
)
from strawberry.subscriptions.protocols.graphql_ws.handlers import BaseGraphQLWSHandler
from strawberry.subscriptions.protocols.graphql_ws.types import (
    ConnectionInitMessage as LegacyInitMessage,
)
from strawberry.subscriptions.protocols.graphql_ws.types import OperationMessage, StartMessage

from revstream.gql.endpoint.broadcast_target import WebSocketTarget
from revstream.gql.endpoint.request_trace import enter_operation
from revstream.gql.endpoint.websocket_auth import WebSocketAuthentication
from revstream.gql.engine.request.context import RequestContext
from revstream.gql.observability.error_response import ErrorReporter
from revstream.gql.observability.operation_metrics import Operations
from revstream.gql.subscriptions.broadcast_message import CURRENT_TARGET
from revstream.gql.subscriptions.interruption import interruption_of
from revstream.resolvers.errors import LimitExceeded
from revstream.streams.core.task_cleanup import retrieve_exception

__all__ = ["LegacySocket", "SocketMessages", "TransportSocket"]

_MALFORMED = 4400
_NOT_INTRODUCED = 4408
_TOO_LATE = "Connection initialisation timeout"
_INTRODUCED_TWICE = 4429
# RFC 6455, 5.5.1: a control frame has at most 125 bytes, two of them for the code.
_REASON_BYTES = 123

# Extensions of the operation that a message starts: Strawberry's handlers drop them.
_extensions: ContextVar[Mapping[str, Any] | None] = ContextVar("extensions", default=None)
# True in the task of an interrupted operation: it must not complete, so that its client resumes.
_interrupted: ContextVar[bool] = ContextVar("interrupted", default=False)


@dataclass(frozen=True, slots=True)
class _NoMessage:
    """Placeholder for a frame that contains no message."""

    problem: str


class SocketMessages(ASGIWebSocketAdapter):
    """Messages of one socket; a socket closed by either side is a disconnect, not an error."""

    async def iter_json(self, *, ignore_parsing_errors: bool = False) -> AsyncGenerator[object]:
        while self.ws.application_state is not WebSocketState.DISCONNECTED:
            received = await self.ws.receive()
            if received["type"] == "websocket.disconnect":
                return
            text = received.get("text")
            if text is None:
                yield _NoMessage("message: a binary frame, expected text")
                continue
            try:
                message: object = self.view.decode_json(text)
            except JSONDecodeError as exc:
                message = _NoMessage(f"message: not JSON: {exc.msg}")
            yield message

    async def send_json(self, message: Mapping[str, object]) -> None:
        try:
            await super().send_json(message)
        except RuntimeError as exc:
            # Closed by another task, earlier or during this send.
            if self.ws.application_state is WebSocketState.DISCONNECTED:
                raise WebSocketDisconnected from exc
            raise

    async def close(self, code: int, reason: str) -> None:
        if self.ws.application_state is WebSocketState.DISCONNECTED:
            return
        with suppress(WebSocketDisconnect):
            await super().close(code, _cut(reason))


class TransportSocket(BaseGraphQLTransportWSHandler[RequestContext, None]):
    """Handler of `graphql-transport-ws`, the current protocol."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._operations: Operations = self.schema.operations  # type: ignore[attr-defined]
        self._reporter: ErrorReporter = self.schema.error_reporter  # type: ignore[attr-defined]
        self._targets: dict[str, WebSocketTarget] = {}
        self._waiting: asyncio.TimerHandle | None = None
        self._authentication = WebSocketAuthentication(self)
        self.schema = _Executing(self.schema, self._authentication)  # type: ignore[assignment]

    @property
    def running(self) -> list[asyncio.Task[Any]]:
        """Return the tasks of the operations."""
        return [each.task for each in self.operations.values() if each.task is not None]

    async def send_message(self, message: Any) -> None:
        if not (message["type"] == "complete" and _interrupted.get()):
            await super().send_message(message)

    async def handle(self) -> None:
        async with self._authentication:
            try:
                await super().handle()
            finally:
                self._wait_no_more()

    def on_request_accepted(self) -> None:
        # A timer in place of Strawberry's sleeping task: ten thousand clients reconnect at once.
        limit_s = self.connection_init_wait_timeout.total_seconds()
        self._waiting = asyncio.get_running_loop().call_later(limit_s, self._waited)

    def _waited(self) -> None:
        self.connection_timed_out = True
        closing = asyncio.create_task(self.websocket.close(_NOT_INTRODUCED, _TOO_LATE))
        closing.add_done_callback(self._task_done)
        self.connection_init_timeout_task = closing

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    async def run_operation(self, operation: Operation[RequestContext, None]) -> None:
        scope = self.websocket.ws.scope  # type: ignore[attr-defined]
        target = WebSocketTarget.from_scope(scope, operation.id, b"next", _extensions.get())
        CURRENT_TARGET.set(target)
        if target is not None:
            self._targets[operation.id] = target
        enter_operation(operation.id, _extensions.get())
        with self._operations:
            await super().run_operation(operation)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        # Strawberry cancels the tasks of ended subscriptions and does not await them.
        retrieve_exception(task, (WebSocketDisconnected,))

    async def handle_task_exception(self, error: Exception) -> None:
        # The task of the operation raises it as well, and `_task_done` logs it.
        pass

    async def cleanup_operation(self, operation_id: str) -> None:
        self._close_target(operation_id)
        await super().cleanup_operation(operation_id)

    def forget_id(self, id: str) -> None:
        self._close_target(id)
        super().forget_id(id)

    def _close_target(self, operation_id: str) -> None:
        target = self._targets.pop(operation_id, None)
        if target is not None:
            target.close()

    async def handle_message(self, message: Message) -> None:
        problem = _problem(message, _TRANSPORT)
        if problem is None:
            _extensions.set(_extensions_of(message))
            await super().handle_message(message)
        else:
            await self.handle_invalid_message(problem)

    async def handle_connection_init(self, message: ConnectionInitMessage) -> None:
        if self.connection_timed_out:
            return
        # Stop the timeout: the time of the check is not the client's.
        self._wait_no_more()
        if self.connection_init_timeout_task is not None:
            self.connection_init_timeout_task.cancel()
        # The protocol allows null as payload.
        taken: ConnectionInitMessage = {
            "type": "connection_init",
            "payload": message.get("payload") or {},
        }
        if self.connection_init_received or await self._authentication.authenticate(taken):
            await super().handle_connection_init(taken)

    async def handle_ping(self, message: PingMessage) -> None:
        if not await self._authentication.renew(message):
            return
        # Strawberry's pong has no payload, by which the client recognizes it.
        given = message.get("payload")
        answer: Any = {"type": "pong"} if given is None else {"type": "pong", "payload": given}
        await self.send_message(answer)

    async def handle_subscribe(self, message: SubscribeMessage) -> None:
        known = message["id"] in self.operations or not self.connection_acknowledged
        full = _room(len(self.operations), self.max_subscriptions_per_connection)
        if known or full is None:
            await super().handle_subscribe(message)
            return
        error = self._reporter.error(full).formatted
        await self.send_message({"id": message["id"], "type": "error", "payload": [error]})

    @staticmethod
    def _get_pre_execution_close_reason(error: GraphQLError) -> str | None:
        # Strawberry would close the socket on a syntax error, with all its operations.
        return None


class LegacySocket(BaseGraphQLWSHandler[RequestContext, None]):
    """Handler of `graphql-ws`, the protocol of subscriptions-transport-ws.

    The protocol leaves close codes and the time limit for `connection_init` open; here they are
    those of `graphql-transport-ws`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._operations: Operations = self.schema.operations  # type: ignore[attr-defined]
        self._reporter: ErrorReporter = self.schema.error_reporter  # type: ignore[attr-defined]
        self._initialized = False
        self._authentication = WebSocketAuthentication(self)
        self.schema = _Executing(self.schema, self._authentication)  # type: ignore[assignment]

    @property
    def running(self) -> list[asyncio.Task[Any]]:
        """Return the tasks of the operations."""
        return list(self.tasks.values())

    async def send_message(self, message: Any) -> None:
        if not (message["type"] == "complete" and _interrupted.get()):
            await super().send_message(message)

    async def handle(self) -> None:
        waiting = asyncio.create_task(self._expect_connection_init())
        try:
            async with self._authentication:
                await super().handle()
        finally:
            waiting.cancel()

    async def _expect_connection_init(self) -> None:
        await asyncio.sleep(self.view.connection_init_wait_timeout.total_seconds())
        if not self._initialized:
            await self.websocket.close(_NOT_INTRODUCED, _TOO_LATE)

    async def handle_async_results(self, *args: Any, **kwargs: Any) -> None:
        scope = self.websocket.ws.scope  # type: ignore[attr-defined]
        target = WebSocketTarget.from_scope(scope, args[0], b"data", _extensions.get())
        CURRENT_TARGET.set(target)
        enter_operation(args[0], _extensions.get())
        try:
            # No code retrieves the exception of the task.
            with self._operations, suppress(WebSocketDisconnected):
                await super().handle_async_results(*args, **kwargs)
        finally:
            if target is not None:
                target.close()

    async def handle_message(self, message: OperationMessage) -> None:
        problem = _problem(message, _LEGACY)
        if problem is not None:
            # As in the protocol; the socket is closed, too.
            await self.send_message({"type": "connection_error", "payload": {"message": problem}})
            await self.websocket.close(code=_MALFORMED, reason=problem)
            return
        _extensions.set(_extensions_of(message))
        await super().handle_message(message)

    async def handle_connection_init(self, message: LegacyInitMessage) -> None:
        if not self._initialized:
            self._initialized = True
            if await self._authentication.authenticate(message):
                await super().handle_connection_init(message)
        elif self._authentication.renewable:
            # This protocol has no ping: a repeated connection_init renews the sign-in.
            if await self._authentication.renew(message):
                await self.send_message({"type": "connection_ack"})
        else:
            await self.websocket.close(_INTRODUCED_TWICE, "Too many initialisation requests")

    async def handle_start(self, message: StartMessage) -> None:
        known = message["id"] in self.tasks or not self.connection_acknowledged
        full = _room(len(self.tasks), self.max_subscriptions_per_connection)
        if known or full is None:
            await super().handle_start(message)
            return
        error = self._reporter.error(full).formatted
        await self.send_message({"id": message["id"], "type": "error", "payload": error})


class _Executing:
    """Adapter that passes the extensions of an operation to the schema.

    An interrupted subscription interrupts the socket. The legacy handler calls `subscribe` only,
    which takes only subscriptions in Strawberry; the protocol has no such limit.
    """

    def __init__(self, schema: Any, authentication: WebSocketAuthentication) -> None:
        self._schema = schema
        self._authentication = authentication

    async def stream(self, query: str, **given: Any) -> Any:
        # Set when the message was handled; the operation's task has a copy of that context.
        return self._uninterrupted(
            await self._schema.stream(query, operation_extensions=_extensions.get(), **given)
        )

    subscribe = stream

    async def _uninterrupted(self, results: Any) -> AsyncGenerator[Any]:
        async with aclosing(results):
            async for result in results:
                interruption = interruption_of(result)
                if interruption is not None:
                    _interrupted.set(True)
                    self._authentication.interrupt(interruption)
                    return
                yield result


@dataclass(frozen=True, slots=True)
class _Protocol:
    """Message types of a client: start of an operation, end of an operation, and others."""

    starts: str
    ends: str
    others: frozenset[str]


_TRANSPORT = _Protocol("subscribe", "complete", frozenset({"connection_init", "ping", "pong"}))
_LEGACY = _Protocol("start", "stop", frozenset({"connection_init", "connection_terminate"}))


def _problem(message: object, protocol: _Protocol) -> str | None:
    """Return the error in a message; None if it is valid."""
    if isinstance(message, _NoMessage):
        return message.problem
    if not isinstance(message, Mapping) or not isinstance(message.get("type"), str):
        return 'message: no "type", expected an object with one'
    kind, payload = message["type"], message.get("payload")
    if kind in protocol.others:
        good = isinstance(payload, Mapping | None)
        return None if good else f"{kind}.payload: no object, expected one"
    if kind not in (protocol.starts, protocol.ends):
        return f"type: {kind}, expected a client's message"
    if not isinstance(message.get("id"), str) or not message["id"]:
        return f"{kind}.id: empty or no text, expected text"
    if kind == protocol.ends:
        return None
    if not isinstance(payload, Mapping) or not isinstance(payload.get("query"), str):
        return f'{kind}.payload: no "query", expected an object with one'
    if not isinstance(payload.get("operationName"), str | None):
        return "operationName: no text, expected text"
    for name in ("variables", "extensions"):
        if not isinstance(payload.get(name), Mapping | None):
            return f"{name}: no object, expected one"
    return None


def _extensions_of(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    payload = message.get("payload")
    return payload.get("extensions") if isinstance(payload, Mapping) else None


def _room(count: int, most: int | None) -> LimitExceeded | None:
    """Return an error if a connection may not run one more operation."""
    if most is None or count < most:
        return None
    return LimitExceeded(
        f"operations on this connection: {count + 1}, maximum is {most}; open another connection",
        limit="max_connection_operations",
        asked=count + 1,
        bound=most,
    )


def _cut(reason: str) -> str:
    """Shorten a reason to the length of a close frame."""
    return reason.encode(errors="replace")[:_REASON_BYTES].decode(errors="ignore")
