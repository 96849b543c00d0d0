"""The web application over an open gateway: GraphQL, pages, health, metrics."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute

from gql.context import Context
from gql.examples import examples_of
from gql.gateway import Gateway
from gql.http import GraphQLEndpoint
from gql.metrics import metrics_route
from gql.pages import pages_routes
from gql.schema import build_schema, print_sdl

__all__ = ["create_app"]


def create_app(gateway: Gateway) -> Starlette:
    """Routes over services that are open already; whoever opened them closes them."""
    schema = build_schema(gateway.model)
    sdl = print_sdl(schema)

    def context(headers: Headers) -> Context:
        trusted = gateway.settings.author_header
        return Context(
            current=gateway.current,
            history=gateway.history,
            moments=gateway.moments,
            live=gateway.live,
            status=gateway.status,
            editing=gateway.editing,
            principal=headers.get(trusted) if trusted else None,
            idempotency_key=headers.get("idempotency-key"),
            deployment=gateway.deployment,
        )

    endpoint = GraphQLEndpoint(schema, context)

    async def schema_graphql(request: Request) -> Response:
        return PlainTextResponse(sdl)

    async def livez(request: Request) -> Response:
        return JSONResponse({"live": True})

    async def readyz(request: Request) -> Response:
        missing = gateway.not_ready()
        return JSONResponse(
            {"ready": not missing, "notReady": missing}, status_code=503 if missing else 200
        )

    routes: list[Route | Mount | WebSocketRoute] = [
        Route("/graphql", endpoint),
        WebSocketRoute("/graphql", endpoint),
        Route("/schema.graphql", schema_graphql),
        Route("/livez", livez),
        Route("/readyz", readyz),
        metrics_route(gateway.statistics),
        *pages_routes(lambda: examples_of(gateway.model)),
    ]
    return Starlette(routes=routes)
