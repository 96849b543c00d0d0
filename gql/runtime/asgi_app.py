"""The web application over an open gateway: GraphQL, pages, health, metrics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as ASGIScope

from revstream.gql.auth.authenticator import Authenticator, Credentials
from revstream.gql.endpoint.admin import admin_routes
from revstream.gql.endpoint.allowed_hosts import AllowedHosts, allowed_hosts
from revstream.gql.endpoint.client_files import client_routes
from revstream.gql.endpoint.example_queries import examples_of
from revstream.gql.endpoint.http import GraphQLEndpoint
from revstream.gql.endpoint.pages import Handle, pages_routes
from revstream.gql.engine.request.context import RequestContext
from revstream.gql.engine.request.context_factory import RequestContextFactory
from revstream.gql.observability.request_id import identified
from revstream.gql.runtime.configuration.limit_setup import (
    concurrency_limiter,
    document_limits,
    persisted_documents,
)
from revstream.gql.runtime.gateway import Gateway
from revstream.gql.runtime.management import api_connections, management_routes
from revstream.gql.schema import build_schema, print_sdl, select_naming
from revstream.resolvers.access.permissions import OPEN, Scope, has_access
from revstream.resolvers.access.principal import ANONYMOUS, Principal
from revstream.resolvers.access.row_filter import claims_named
from revstream.streams.core.errors import GatewayError

__all__ = ["context_of", "create_app"]


def context_of(
    gateway: Gateway,
    *,
    principal: str | None = None,
    caller: Principal | None = None,
    idempotency_key: str | None = None,
) -> RequestContext:
    """Create the context of one request: the services, limited to what its caller may access.

    Args:
        principal: name of a caller without authentication.
    """
    if caller is None:
        caller = ANONYMOUS if principal is None else Principal(name=principal)
    scope = Scope(gateway.model, caller) if has_access(gateway.model) else OPEN
    return RequestContext(
        services=gateway.services.within(scope),
        deployment=gateway.deployment,
        scope=scope,
        caller=caller,
        principal=caller.name,
        idempotency_key=idempotency_key,
        subscription_filters=gateway.subscription_filters,
        filter_turns=gateway.filter_turns,
    )


def _shared(endpoint: ASGIApp, origins: Collection[str]) -> ASGIApp:
    """CORS for pages of these origins. Without cookies: authentication is sent in a header."""
    return CORSMiddleware(
        endpoint,
        allow_origins=origins,
        allow_methods=("GET", "POST"),
        allow_headers=("*",),
        expose_headers=("retry-after", "x-request-id"),
    )


class Application(Starlette):
    """Starlette application that routes the most frequent paths first.

    Args:
        busy: handlers by path; they answer in every state of the process.
    """

    def __init__(self, busy: Mapping[str, ASGIApp], **options: Any) -> None:
        super().__init__(**options)
        self._busy = busy

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        busy = self._busy.get(scope.get("path", ""))
        if scope["type"] in ("http", "websocket"):
            send = identified(scope, send)
        await (super().__call__ if busy is None else busy)(scope, receive, send)


def create_app(gateway: Gateway, sign_in: Authenticator | None = None) -> Starlette:
    """Create the routes over open services; the caller closes the services.

    Args:
        sign_in: None if every caller may access everything.
    """
    if sign_in is None and has_access(gateway.model):
        raise ValueError(
            "authentication: none, expected one for a model with @access; pass --jwt-keys or "
            "--api-keys"
        )
    settings = gateway.settings
    schema = build_schema(
        gateway.model,
        document_limits(settings),
        concurrency_limiter(settings),
        persisted_documents(settings),
        select_naming(relay=settings.relay),
    )
    gateway.availability.changed = schema.limiter.interrupt
    sdl = print_sdl(schema)

    callers = RequestContextFactory(
        sign_in,
        lambda principal: context_of(gateway, caller=principal),
        author_header=settings.author_header,
        deciding=claims_named(gateway.model),
    )
    origins = settings.origins()
    endpoint = GraphQLEndpoint(
        schema,
        callers,
        allowed_origins=origins,
        body_bytes=settings.body_bytes,
        heartbeat_s=settings.heartbeat_s,
        max_operations=settings.max_connection_operations or None,
    )
    connections = api_connections(settings, schema.error_reporter)

    def for_those_who_may_ask(handle: Handle) -> Handle:
        """Guard a route that shows the schema, under the same rule as introspection."""

        async def guarded(request: Request) -> Response:
            if not settings.introspection:
                return PlainTextResponse("introspection is disabled\n", status_code=404)
            try:
                await callers.principal(Credentials.from_headers(request.headers))
            except GatewayError as exc:
                return schema.error_reporter.response(exc)
            return await handle(request)

        return guarded

    async def schema_graphql(request: Request) -> Response:
        return PlainTextResponse(sdl)

    managed = []
    if settings.management_port is None:
        managed = management_routes(gateway, schema.operations, schema.limiter, connections)
    hosts = allowed_hosts(settings.allowed_hosts, settings.host)
    requests = _shared(endpoint, origins) if origins else endpoint
    routes: list[Route | Mount] = [
        # The same with a trailing slash.
        Route("/graphql", requests),
        Route("/schema.graphql", for_those_who_may_ask(schema_graphql)),
        *client_routes(sdl, for_those_who_may_ask),
        *managed,
        *admin_routes(callers, settings.admin_role, schema.error_reporter, settings.body_bytes),
        *pages_routes(lambda: examples_of(gateway.model), for_those_who_may_ask),
    ]
    checked = Middleware(AllowedHosts, names=hosts, reporter=schema.error_reporter)
    app = Application(
        {"/graphql": AllowedHosts(requests, names=hosts, reporter=schema.error_reporter)},
        routes=routes,
        middleware=[checked],
    )
    app.state.operations = schema.operations
    app.state.limiter = schema.limiter
    app.state.connections = connections
    return app
