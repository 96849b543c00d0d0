"""GraphQL over HTTP and WebSocket.

A response over HTTP is `application/graphql-response+json` with a status for the result,
`application/json` with 200 for every well-formed request, or a stream, if the operation is a
subscription or the client accepts no JSON. Every error is JSON with `errors`, each with a code.
WebSockets use Strawberry's view with the handlers of this package.

Source: the specification "GraphQL over HTTP". docs/decisions/0023
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import replace
from datetime import timedelta

import orjson
from graphql import GraphQLError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket
from strawberry.asgi import GraphQL
from strawberry.exceptions import MissingQueryError
from strawberry.schema.exceptions import CannotGetOperationTypeError, InvalidOperationTypeError
from strawberry.subscriptions import GRAPHQL_TRANSPORT_WS_PROTOCOL, GRAPHQL_WS_PROTOCOL
from strawberry.types import ExecutionResult
from strawberry.types.graphql import OperationType

from revstream.gql.endpoint.broadcast_target import HttpStreamTarget
from revstream.gql.endpoint.pages import graphiql_response
from revstream.gql.endpoint.request_trace import enter_request, trace_request
from revstream.gql.endpoint.streaming_response import StreamResponse, body_of, streamed
from revstream.gql.endpoint.websocket import LegacySocket, SocketMessages, TransportSocket
from revstream.gql.engine.execution.schema import Schema
from revstream.gql.engine.request.context import RequestContext, SubscriptionPosition
from revstream.gql.engine.request.context_factory import RequestContextFactory
from revstream.gql.http.content_negotiation import RESPONSE_JSON, AcceptedFormats, negotiate
from revstream.gql.http.headers import HEADERS
from revstream.gql.http.media_types import JSON, MediaType
from revstream.gql.http.request import (
    GraphQLRequest,
    Refused,
    headers_of,
    json_from_request,
    read_request,
)
from revstream.gql.observability.error_response import answer
from revstream.gql.server.client_presence import while_client_waits
from revstream.gql.subscriptions.broadcast_message import CURRENT_TARGET
from revstream.streams.core import tracing
from revstream.streams.core.log_throttle import LogThrottle

__all__ = ["GraphQLEndpoint"]

logger = logging.getLogger(__name__)

_ALLOWED = {
    "GET": (OperationType.QUERY,),
    "POST": (OperationType.QUERY, OperationType.MUTATION),
}
# Maximum characters of a header in the log.
_SHOWN = 200


class GraphQLEndpoint(GraphQL[RequestContext, None]):
    """ASGI application for GraphQL.

    Args:
        callers: creates the context of a request, or of the operations of a connection.
        allowed_origins: origins whose pages may open WebSockets, beside the gateway's own.
        body_bytes: maximum length of a request.
        heartbeat_s: maximum time that a stream is silent.
        max_operations: maximum of operations at once on one WebSocket; None: no limit.
    """

    websocket_adapter_class = SocketMessages
    graphql_transport_ws_handler_class = TransportSocket
    graphql_ws_handler_class = LegacySocket
    schema: Schema

    def __init__(
        self,
        schema: Schema,
        callers: RequestContextFactory,
        *,
        allowed_origins: Collection[str] = (),
        body_bytes: int = 1024 * 1024,
        heartbeat_s: float = 12.0,
        max_operations: int | None = 100,
    ) -> None:
        super().__init__(
            schema,
            subscription_protocols=(GRAPHQL_TRANSPORT_WS_PROTOCOL, GRAPHQL_WS_PROTOCOL),
            connection_init_wait_timeout=timedelta(seconds=3),
            # For the legacy protocol, which has messages for it.
            keep_alive=True,
            keep_alive_interval=20,
            max_subscriptions_per_connection=max_operations,
            allowed_origins=tuple(allowed_origins),
        )
        self.callers = callers
        self._body_bytes = body_bytes
        self._heartbeat_s = heartbeat_s
        self._refused = LogThrottle(logger, "origin refused")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        headers = headers_of(scope)
        enter_request(headers)
        answering = self._answer(scope, receive, headers)
        tracer = tracing.installed()
        response = await (
            answering if tracer is None else trace_request(tracer, scope["method"], answering)
        )
        if response is not None:
            await response(scope, receive, send)

    async def get_context(
        self, request: Request | WebSocket, response: Response | WebSocket
    ) -> RequestContext:
        # Context of a WebSocket until it is authenticated.
        return self.callers.for_socket(request.headers)

    def is_websocket_origin_allowed(self, request: WebSocket, origin: str) -> bool:
        """Return True if pages of another origin may open a WebSocket.

        Requests without an origin come from programs.
        """
        allowed = super().is_websocket_origin_allowed(request, origin)
        if not allowed:
            host = request.headers.get("host", "")
            self._refused.note(origin=origin[:_SHOWN], host=host[:_SHOWN])
        return allowed

    def encode_json(self, data: object) -> str:
        # Text: Strawberry would send bytes as binary frames, which clients cannot read.
        return orjson.dumps(data).decode()

    def decode_json(self, data: str | bytes) -> object:
        return json_from_request(data)

    async def _answer(
        self, scope: Scope, receive: Receive, headers: Mapping[str, str]
    ) -> ASGIApp | None:
        """Return the response to a request, or None if its client is gone."""
        formats = negotiate(headers.get("accept", ""))
        try:
            return await self._response(scope, receive, headers, formats)
        except ClientDisconnect:
            return None
        except Exception as exc:
            return self.schema.error_reporter.response(exc, formats.json or JSON)

    async def _response(
        self, scope: Scope, receive: Receive, headers: Mapping[str, str], formats: AcceptedFormats
    ) -> ASGIApp:
        method = scope["method"]
        if method not in _ALLOWED:
            raise _not_allowed(f"method: {method}, expected GET or POST")
        if formats.page and method == "GET" and "query" not in Request(scope).query_params:
            return graphiql_response()
        if formats.json is None and formats.stream is None:
            raise Refused(
                406,
                "accept: no supported type, expected application/graphql-response+json, "
                "application/json, text/event-stream, or multipart/mixed;subscriptionSpec=1.0",
            )
        asked = await read_request(scope, receive, headers, most_bytes=self._body_bytes)
        context = await self.callers.for_request(headers)
        with while_client_waits(scope):
            return await self._response_to(asked, context, scope, headers, formats)

    async def _response_to(
        self,
        asked: GraphQLRequest,
        context: RequestContext,
        scope: Scope,
        headers: Mapping[str, str],
        formats: AcceptedFormats,
    ) -> ASGIApp:
        result = await self._executed(asked, scope["method"], context)
        if result is not None and formats.json is not None:
            return _executed_response(result, formats.json)
        if formats.stream is None:
            raise Refused(
                400,
                "accept: no stream, expected text/event-stream for a subscription; or connect to "
                f"this address by WebSocket with the protocol {GRAPHQL_TRANSPORT_WS_PROTOCOL}",
            )
        place = SubscriptionPosition(after=headers.get("last-event-id") or None)
        if result is None:
            CURRENT_TARGET.set(HttpStreamTarget.from_scope(scope, formats.stream, asked.extensions))
            results = await self.schema.stream(
                asked.query,
                variable_values=asked.variables,
                context_value=replace(context, position=place),
                operation_name=asked.operation_name,
                operation_extensions=asked.extensions,
            )
        else:
            results = _one(result)
        chunks = streamed(results, formats.stream, place, self._heartbeat_s)
        return StreamResponse(chunks, formats.stream.media_type)

    async def _executed(
        self, asked: GraphQLRequest, method: str, context: RequestContext
    ) -> ExecutionResult | None:
        """Execute an operation; return None for a subscription."""
        try:
            return await self.schema.execute(
                asked.query,
                variable_values=asked.variables,
                context_value=context,
                operation_name=asked.operation_name,
                operation_extensions=asked.extensions,
                allowed_operation_types=_ALLOWED[method],
            )
        except MissingQueryError:
            raise Refused(400, "query: missing, expected a GraphQL document; send one") from None
        except CannotGetOperationTypeError as exc:
            error = GraphQLError(exc.as_http_error_reason(), original_error=exc)
            self.schema.error_reporter.finish([error], "unknown")
            return ExecutionResult(data=None, errors=[error])
        except InvalidOperationTypeError as exc:
            if exc.operation_type is OperationType.SUBSCRIPTION:
                return None
            raise _not_allowed("method: GET, expected POST for a mutation") from None


async def _one(result: ExecutionResult) -> AsyncGenerator[ExecutionResult]:
    yield result


class _Executed:
    """Response 200 with headers that are built once per media type.

    starlette builds them for each response, a twentieth of the time of a lookup.
    """

    def __init__(self, body: bytes, media_type: MediaType) -> None:
        self._body = body
        self._headers = _JSON_HEADERS[media_type.name]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = (b"content-length", b"%d" % len(self._body))
        start = {"type": "http.response.start", "status": 200, "headers": [*self._headers, length]}
        await send(start)
        await send({"type": "http.response.body", "body": self._body})


_JSON_HEADERS = {
    media_type.name: [
        (name.encode(), value.encode())
        for name, value in {**HEADERS, "content-type": str(media_type)}.items()
    ]
    for media_type in (JSON, RESPONSE_JSON)
}


def _executed_response(result: ExecutionResult, media_type: MediaType) -> ASGIApp:
    """Build the response to an operation that was executed or refused."""
    body = body_of(result)
    if "data" in body:
        return _Executed(orjson.dumps(body), media_type)
    # For application/json the specification wants 200, even if the document is invalid.
    return answer(body, media_type, otherwise=400 if media_type is RESPONSE_JSON else 200)


def _not_allowed(message: str) -> Refused:
    return Refused(405, message, headers={"allow": "GET, POST"})
