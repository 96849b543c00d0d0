"""GraphQL over HTTP and WebSocket: Strawberry's view with this gateway's context, JSON and page.

Guarantees: whatever is wrong with a request, the answer is JSON with `errors`, each with a code.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import orjson

# Strawberry's own requests and refusals, which it hands to its views.
from cross_web import AsyncHTTPRequestAdapter, HTTPException
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket
from strawberry.asgi import GraphQL
from strawberry.exceptions import MissingQueryError
from strawberry.http import GraphQLRequestData
from strawberry.schema import BaseSchema
from strawberry.schema.exceptions import CannotGetOperationTypeError, InvalidOperationTypeError
from strawberry.subscriptions import GRAPHQL_TRANSPORT_WS_PROTOCOL, GRAPHQL_WS_PROTOCOL
from strawberry.types import ExecutionResult
from strawberry.types.graphql import OperationType

from gql.context import Context
from gql.pages import graphiql_response
from gql.sockets import LegacySocket, TransportSocket

__all__ = ["GraphQLEndpoint"]

_ALLOWED = {
    "GET": {OperationType.QUERY},
    "POST": {OperationType.QUERY, OperationType.MUTATION},
}


class GraphQLEndpoint(GraphQL[Context, None]):
    """`context` makes the context of a request, or of a connection's operations, given its
    headers."""

    graphql_transport_ws_handler_class = TransportSocket
    graphql_ws_handler_class = LegacySocket

    def __init__(self, schema: BaseSchema, context: Callable[[Headers], Context]) -> None:
        super().__init__(
            schema,
            subscription_protocols=(GRAPHQL_TRANSPORT_WS_PROTOCOL, GRAPHQL_WS_PROTOCOL),
            connection_init_wait_timeout=timedelta(seconds=10),
            max_subscriptions_per_connection=100,
        )
        self._context = context

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        try:
            response = await self.run(Request(scope, receive))
        except HTTPException as exc:
            response = _refusal(exc.reason, exc.status_code)
        await response(scope, receive, send)

    async def get_context(
        self, request: Request | WebSocket, response: Response | WebSocket
    ) -> Context:
        return self._context(request.headers)

    async def render_graphql_ide(self, request: Request) -> Response:
        return graphiql_response()

    async def execute_single(
        self,
        request: Request,
        request_adapter: AsyncHTTPRequestAdapter,
        sub_response: Response,
        context: Context,
        root_value: None,
        request_data: GraphQLRequestData,
    ) -> ExecutionResult:
        """As Strawberry does it, but for subscriptions, which it would run into an error."""
        try:
            return await self.schema.execute(
                request_data.query,
                variable_values=request_data.variables,
                context_value=context,
                operation_name=request_data.operation_name,
                operation_extensions=request_data.extensions,
                allowed_operation_types=_ALLOWED[request_adapter.method],
            )
        except MissingQueryError as exc:
            raise HTTPException(400, "there is no query in the request") from exc
        except CannotGetOperationTypeError as exc:
            raise HTTPException(400, exc.as_http_error_reason()) from exc
        except InvalidOperationTypeError as exc:
            if exc.operation_type is OperationType.SUBSCRIPTION:
                raise HTTPException(
                    400,
                    "subscriptions run over WebSocket: connect to this address "
                    f"with the protocol {GRAPHQL_TRANSPORT_WS_PROTOCOL}",
                ) from exc
            raise HTTPException(405, "mutations are sent with POST, not GET") from exc

    def parse_json(self, data: str | bytes) -> Any:
        parsed = super().parse_json(data)
        # A list is a batch, of which Strawberry says itself that there are none here.
        if not isinstance(parsed, dict | list):
            raise HTTPException(400, "the request is a JSON object, and this is not")
        return parsed

    def encode_json(self, data: object) -> str:
        # Text: Strawberry would send bytes as binary frames, which clients cannot read.
        return orjson.dumps(data).decode()

    def decode_json(self, data: str | bytes) -> object:
        return orjson.loads(data)


def _refusal(reason: str, status: int) -> Response:
    error = {"message": reason, "extensions": {"code": "BAD_USER_INPUT"}}
    return Response(
        orjson.dumps({"errors": [error]}),
        status_code=status,
        headers={"allow": "GET, POST"} if status == 405 else None,
        media_type="application/json",
    )
