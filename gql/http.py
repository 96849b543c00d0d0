"""GraphQL over HTTP and WebSocket.

Over HTTP, the answer is what the client takes: `application/graphql-response+json`, with a status
that tells, or `application/json`, with 200 for every request that is one; a stream, where the
operation is a subscription or the client takes no JSON. Whatever is wrong, the answer is JSON with
`errors`, each with a code. Sockets are Strawberry's view with this gateway's handlers.

Source: the specification "GraphQL over HTTP". docs/decisions/0023
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any

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

from gql.callers import Callers
from gql.context import Context, Place
from gql.errors import finish_errors
from gql.event_streams import MULTIPART, SSE, Framing, StreamResponse, body_of, streamed
from gql.execution import Schema
from gql.http_requests import GraphQLRequest, Refused, read_request
from gql.media_types import Accept, MediaType
from gql.pages import graphiql_response
from gql.sockets import LegacySocket, SocketMessages, TransportSocket
from resolvers.errors import Unauthenticated
from streams.errors import GatewayError
from streams.storms import Storm

__all__ = ["GraphQLEndpoint", "not_signed_in"]

logger = logging.getLogger(__name__)

_ALLOWED = {
    "GET": {OperationType.QUERY},
    "POST": {OperationType.QUERY, OperationType.MUTATION},
}
_HTML = MediaType("text/html")
_JSON = MediaType("application/json", {"charset": "utf-8"})
_RESPONSE_JSON = MediaType("application/graphql-response+json", {"charset": "utf-8"})
# Where nothing was executed, by the first error's code. Other codes are of what the client asked:
# 400, but in application/json, for which the specification wants 200.
_STATUS = {"UNAUTHENTICATED": 401, "FORBIDDEN": 403, "INTERNAL": 500, "UNAVAILABLE": 503}
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_RETRY_AFTER_S = 1
# Characters of a header that the log shows.
_SHOWN = 200


class GraphQLEndpoint(GraphQL[Context, None]):
    """`callers` makes the context of a request, or of a connection's operations.

    Args:
        allowed_origins: whose pages may open sockets, beside those of this gateway's own address.
        body_bytes: the longest request.
        heartbeat_s: the longest that a stream is silent.
    """

    websocket_adapter_class = SocketMessages
    graphql_transport_ws_handler_class = TransportSocket
    graphql_ws_handler_class = LegacySocket
    schema: Schema

    def __init__(
        self,
        schema: Schema,
        callers: Callers,
        *,
        allowed_origins: Collection[str] = (),
        body_bytes: int = 1024 * 1024,
        heartbeat_s: float = 12.0,
    ) -> None:
        super().__init__(
            schema,
            subscription_protocols=(GRAPHQL_TRANSPORT_WS_PROTOCOL, GRAPHQL_WS_PROTOCOL),
            connection_init_wait_timeout=timedelta(seconds=3),
            # Of the older protocol, which has messages for it.
            keep_alive=True,
            keep_alive_interval=20,
            max_subscriptions_per_connection=100,
            allowed_origins=tuple(allowed_origins),
        )
        self.callers = callers
        self._body_bytes = body_bytes
        self._heartbeat_s = heartbeat_s
        self._refused = Storm(logger, "origin refused")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        request = Request(scope, receive)
        takes = _takes(", ".join(request.headers.getlist("accept")))
        response: ASGIApp
        try:
            response = await self._response(request, takes)
        except Refused as exc:
            response = _refusal(exc, takes)
        except Unauthenticated as exc:
            response = not_signed_in(exc)
        except ClientDisconnect:
            return
        except Exception as exc:
            response = _failure(exc, takes)
        await response(scope, receive, send)

    async def get_context(
        self, request: Request | WebSocket, response: Response | WebSocket
    ) -> Context:
        # Of a socket, until it is introduced.
        return self.callers.of_socket(request.headers)

    def is_websocket_origin_allowed(self, request: WebSocket, origin: str) -> bool:
        """Of an origin that is not this gateway's own; requests without one are of programs."""
        allowed = super().is_websocket_origin_allowed(request, origin)
        if not allowed:
            host = request.headers.get("host", "")
            self._refused.note(origin=origin[:_SHOWN], host=host[:_SHOWN])
        return allowed

    def encode_json(self, data: object) -> str:
        # Text: Strawberry would send bytes as binary frames, which clients cannot read.
        return orjson.dumps(data).decode()

    def decode_json(self, data: str | bytes) -> object:
        return orjson.loads(data)

    async def _response(self, request: Request, takes: _Takes) -> ASGIApp:
        if request.method not in _ALLOWED:
            raise _not_allowed(f"requests are sent with GET or POST, got {request.method}")
        if takes.page and request.method == "GET" and "query" not in request.query_params:
            return graphiql_response()
        if takes.json is None and takes.stream is None:
            raise Refused(
                406,
                "responses are of application/graphql-response+json, application/json, "
                "text/event-stream, or multipart/mixed;subscriptionSpec=1.0",
            )
        asked = await read_request(request, most_bytes=self._body_bytes)
        context = await self.callers.of_request(request.headers)
        result = await self._executed(asked, request.method, context)
        if result is not None and takes.json is not None:
            return _answer(result, takes.json)
        if takes.stream is None:
            raise Refused(
                400,
                "subscriptions run over WebSocket: connect to this address with the protocol "
                f"{GRAPHQL_TRANSPORT_WS_PROTOCOL}; or take text/event-stream",
            )
        place = Place(after=request.headers.get("last-event-id") or None)
        if result is None:
            results = await self.schema.stream(
                asked.query,
                variable_values=asked.variables,
                context_value=replace(context, place=place),
                operation_name=asked.operation_name,
                operation_extensions=asked.extensions,
            )
        else:
            results = _one(result)
        chunks = streamed(results, takes.stream, place, self._heartbeat_s)
        return StreamResponse(chunks, takes.stream.media_type)

    async def _executed(
        self, asked: GraphQLRequest, method: str, context: Context
    ) -> ExecutionResult | None:
        """None of a subscription."""
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
            raise Refused(400, "there is no query in the request") from None
        except CannotGetOperationTypeError as exc:
            error = GraphQLError(exc.as_http_error_reason(), original_error=exc)
            finish_errors([error], str)
            return ExecutionResult(data=None, errors=[error])
        except InvalidOperationTypeError as exc:
            if exc.operation_type is OperationType.SUBSCRIPTION:
                return None
            raise _not_allowed("mutations are sent with POST, not GET") from None


@dataclass(frozen=True, slots=True)
class _Takes:
    """What a client takes: a page rather than JSON; which JSON; which stream."""

    page: bool
    json: MediaType | None
    stream: Framing | None


# A client sends the same with each request, and reading it takes as long as parsing a small query.
@lru_cache(maxsize=128)
def _takes(header: str) -> _Takes:
    accept = Accept(header)
    plain, modern = accept.rank(_JSON), accept.rank(_RESPONSE_JSON)
    most = max(plain, modern)
    # Who names the newer type understands it; anybody else understands the older one.
    newer = modern > plain or (modern == plain and modern[1] == 2)
    json = (_RESPONSE_JSON if newer else _JSON) if most[0] else None
    events = accept.rank(SSE.media_type)
    # Without the parameter it is the multipart of incremental delivery, which is another one.
    parts = accept.rank(MULTIPART.media_type, naming="subscriptionspec")
    stream = None
    if parts[0] and (json is not None or parts > events):
        stream = MULTIPART
    elif events[0] and json is None:
        stream = SSE
    return _Takes(accept.rank(_HTML) > most, json, stream)


async def _one(result: ExecutionResult) -> AsyncGenerator[ExecutionResult]:
    yield result


def _answer(result: ExecutionResult, media_type: MediaType) -> Response:
    body = body_of(result)
    status = 200
    if "data" not in body:
        unless_told = 400 if media_type is _RESPONSE_JSON else 200
        status = _STATUS.get(str(body["errors"][0]["extensions"]["code"]), unless_told)
    return _json(body, status, media_type)


def _failure(exc: Exception, takes: _Takes) -> Response:
    """A request that was not executed for a reason of ours; logged by the table of errors."""
    said = exc.message if isinstance(exc, GatewayError) else str(exc)
    error = GraphQLError(said, original_error=exc)
    finish_errors([error], str)
    status = _STATUS.get(str((error.extensions or {})["code"]), 400)
    return _json({"errors": [error.formatted]}, status, takes.json or _JSON)


def _refusal(refused: Refused, takes: _Takes) -> Response:
    error = {"message": refused.message, "extensions": {"code": refused.code}}
    response = _json({"errors": [error]}, refused.status, takes.json or _JSON)
    response.headers.update(refused.headers)
    return response


def _json(body: Mapping[str, Any], status: int, media_type: MediaType) -> Response:
    headers = {**_HEADERS, "content-type": str(media_type)}
    if status == 503:
        facts = body["errors"][0]["extensions"]
        headers["retry-after"] = str(facts.get("retryAfterSeconds", _RETRY_AFTER_S))
    return Response(orjson.dumps(body), status, headers)


def _not_allowed(message: str) -> Refused:
    return Refused(405, message, headers={"allow": "GET, POST"})


def not_signed_in(exc: GatewayError) -> Response:
    """A whole request is refused (RFC 6750, 3), or nobody can say for now whether it is to be."""
    known = isinstance(exc, Unauthenticated)
    words = exc.message.replace("\\", "").replace('"', "'")
    challenge = f'Bearer realm="revstream", error="invalid_token", error_description="{words}"'
    error = {"message": exc.message, "extensions": {"code": exc.code}}
    return Response(
        orjson.dumps({"errors": [error]}),
        status_code=401 if known else 503,
        headers={"www-authenticate": challenge} if known else {"retry-after": "5"},
        media_type="application/json",
    )
