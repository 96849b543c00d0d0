"""GraphQL over WebSocket: Strawberry's handlers of the two protocols, with what they lack.

Guarantees: a message that is not of its protocol closes the socket with 4400 and a reason; a
document that cannot be executed is an error of its one operation, and the others on the socket go
on. Both protocols take queries as well as subscriptions.

Source: PROTOCOL.md of enisdenjo/graphql-ws and of apollographql/subscriptions-transport-ws.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from graphql import GraphQLError
from strawberry.subscriptions.protocols.graphql_transport_ws.handlers import (
    BaseGraphQLTransportWSHandler,
)
from strawberry.subscriptions.protocols.graphql_transport_ws.types import (
    Message,
    SubscribeMessage,
)
from strawberry.subscriptions.protocols.graphql_ws.handlers import BaseGraphQLWSHandler
from strawberry.subscriptions.protocols.graphql_ws.types import OperationMessage, StartMessage

from gql.context import Context

__all__ = ["LegacySocket", "TransportSocket"]

_MALFORMED = 4400
# RFC 6455, 5.5.1: a control frame holds 125 bytes, and the code takes two.
_REASON_BYTES = 123


# Of the operation that a message starts: Strawberry's handlers do not hand them on.
_extensions: ContextVar[Mapping[str, Any] | None] = ContextVar("extensions", default=None)


class TransportSocket(BaseGraphQLTransportWSHandler[Context, None]):
    """`graphql-transport-ws`, the protocol of today."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.schema = _Operations(self.schema)  # type: ignore[assignment]

    async def handle_message(self, message: Message) -> None:
        malformed = _malformed(message, starts="subscribe", ends="complete")
        if malformed is None:
            _extensions.set(_extensions_of(message))
            await super().handle_message(message)
        else:
            await self.handle_invalid_message(malformed)

    async def handle_invalid_message(self, error_message: str) -> None:
        await self.websocket.close(code=_MALFORMED, reason=_reason(error_message))

    async def handle_subscribe(self, message: SubscribeMessage) -> None:
        known = message["id"] in self.operations or not self.connection_acknowledged
        full = _full(len(self.operations), self.max_subscriptions_per_connection)
        if known or full is None:
            await super().handle_subscribe(message)
            return
        await self.send_message({"id": message["id"], "type": "error", "payload": [full.formatted]})

    @staticmethod
    def _get_pre_execution_close_reason(error: GraphQLError) -> str | None:
        # Strawberry closes the socket on a syntax error, with all that runs on it.
        return None


class LegacySocket(BaseGraphQLWSHandler[Context, None]):
    """`graphql-ws`, the protocol of subscriptions-transport-ws."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.schema = _Operations(self.schema)  # type: ignore[assignment]

    async def handle_message(self, message: OperationMessage) -> None:
        malformed = _malformed(message, starts="start", ends="stop")
        if malformed is None:
            _extensions.set(_extensions_of(message))
            await super().handle_message(message)
        else:
            await self.websocket.close(code=_MALFORMED, reason=_reason(malformed))

    async def handle_start(self, message: StartMessage) -> None:
        known = message["id"] in self.tasks or not self.connection_acknowledged
        full = _full(len(self.tasks), self.max_subscriptions_per_connection)
        if known or full is None:
            await super().handle_start(message)
            return
        await self.send_message({"id": message["id"], "type": "error", "payload": full.formatted})


class _Operations:
    """A schema as Strawberry's handlers call it, with the extensions of the operation.

    `subscribe`, all that the legacy one calls, takes nothing but subscriptions in Strawberry, which
    the protocol does not say.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema

    async def stream(self, query: str, **given: Any) -> Any:
        # Set where the message was handled; the operation's task has a copy of that context.
        return await self._schema.stream(query, operation_extensions=_extensions.get(), **given)

    subscribe = stream


def _extensions_of(message: Mapping[str, Any]) -> Mapping[str, Any] | None:
    payload = message.get("payload")
    extensions = payload.get("extensions") if isinstance(payload, Mapping) else None
    return extensions if isinstance(extensions, Mapping) else None


def _malformed(message: object, *, starts: str, ends: str) -> str | None:
    """What is wrong with a message, where it would lead to an error other than KeyError."""
    if not isinstance(message, Mapping) or not isinstance(message.get("type"), str):
        return 'a message is an object with a "type"'
    kind = message["type"]
    if kind not in (starts, ends):
        return None
    if not isinstance(message.get("id"), str):
        return f'the "id" of a message {kind} is text'
    if kind == ends:
        return None
    payload = message.get("payload")
    if not isinstance(payload, Mapping) or not isinstance(payload.get("query"), str):
        return f'the "payload" of a message {kind} is an object with a "query"'
    if not isinstance(payload.get("variables"), Mapping | None):
        return '"variables" is an object'
    if not isinstance(payload.get("operationName"), str | None):
        return '"operationName" is text'
    return None


def _full(count: int, most: int | None) -> GraphQLError | None:
    if most is None or count < most:
        return None
    return GraphQLError(
        f"{count} operations run on this connection, and {most} is the most; open another one",
        extensions={"code": "LIMIT_EXCEEDED"},
    )


def _reason(text: str) -> str:
    """As much of it as a closing frame holds."""
    return text.encode()[:_REASON_BYTES].decode(errors="ignore")
