"""GraphQL over HTTP and WebSocket: Strawberry's view with this gateway's context, JSON and page."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket
from strawberry.asgi import GraphQL
from strawberry.schema import BaseSchema
from strawberry.subscriptions import GRAPHQL_TRANSPORT_WS_PROTOCOL, GRAPHQL_WS_PROTOCOL

from gql.context import Context
from gql.pages import graphiql_response

__all__ = ["GraphQLEndpoint"]


class GraphQLEndpoint(GraphQL[Context, None]):
    """`context` makes the context of a request, or of a connection's operations."""

    def __init__(self, schema: BaseSchema, context: Callable[[], Context]) -> None:
        super().__init__(
            schema,
            subscription_protocols=(GRAPHQL_TRANSPORT_WS_PROTOCOL, GRAPHQL_WS_PROTOCOL),
            connection_init_wait_timeout=timedelta(seconds=10),
            max_subscriptions_per_connection=100,
        )
        self._context = context

    async def get_context(
        self, request: Request | WebSocket, response: Response | WebSocket
    ) -> Context:
        return self._context()

    async def render_graphql_ide(self, request: Request) -> Response:
        return graphiql_response()

    def encode_json(self, data: object) -> str:
        # Text and not bytes: Strawberry would send bytes as binary frames, which clients cannot
        # read.
        return orjson.dumps(data).decode()

    def decode_json(self, data: str | bytes) -> object:
        return orjson.loads(data)
