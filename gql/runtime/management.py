"""Health and metrics of one process, on the API's port or on one of their own."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from revstream.gql.endpoint.allowed_hosts import AllowedHosts, allowed_hosts
from revstream.gql.engine.limits.concurrency import ConcurrencyLimiter
from revstream.gql.observability.error_response import ErrorReporter
from revstream.gql.observability.operation_metrics import Operations
from revstream.gql.runtime.configuration.limit_setup import concurrency_limiter
from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.gateway import Gateway
from revstream.gql.runtime.metrics_endpoint import metrics_route
from revstream.gql.server.websocket_connection import Connections

__all__ = ["api_connections", "management_app", "management_connections", "management_routes"]

# A scraper and some probes; nobody else should reach the port.
_CONNECTIONS = 100


def management_routes(
    gateway: Gateway, operations: Operations, limiter: ConcurrencyLimiter, connections: Connections
) -> list[Route]:
    """Create `/livez`, `/readyz` and `/metrics`.

    Args:
        connections: of the API's clients.
    """

    async def livez(request: Request) -> Response:
        return JSONResponse({"live": True})

    async def readyz(request: Request) -> Response:
        missing = gateway.not_ready()
        said: dict[str, object] = {"ready": not missing, "notReady": missing}
        if troubles := gateway.troubles():
            said["trouble"] = troubles
        if warnings := await gateway.warnings():
            said["warnings"] = warnings
        return JSONResponse(said, status_code=503 if missing else 200)

    return [
        Route("/livez", livez),
        Route("/readyz", readyz),
        metrics_route(gateway, operations, limiter, connections),
    ]


def management_app(gateway: Gateway, api: Starlette | None) -> Starlette:
    """Create the application of the management port.

    Args:
        api: the application of the API in the same process; None if there is none.
    """
    settings = gateway.settings
    if api is None:
        operations, limiter = Operations(), concurrency_limiter(settings)
        routes = management_routes(
            gateway, operations, limiter, api_connections(settings, ErrorReporter(operations))
        )
    else:
        operations = api.state.operations
        routes = management_routes(gateway, operations, api.state.limiter, api.state.connections)
    reporter = ErrorReporter(operations)
    hosts = allowed_hosts(settings.allowed_hosts, settings.management_host or settings.host)
    app = Starlette(
        routes=routes, middleware=[Middleware(AllowedHosts, names=hosts, reporter=reporter)]
    )
    app.state.connections = management_connections(settings, reporter)
    return app


def api_connections(settings: Settings, reporter: ErrorReporter) -> Connections:
    """Create the registry of the API's connections."""
    return Connections(
        most=settings.sockets,
        most_http=settings.connections,
        most_http_bytes=settings.connections_bytes,
        most_bytes=settings.sockets_bytes,
        stalled_s=settings.socket_stalled_s,
        failed=reporter.response,
    )


def management_connections(settings: Settings, reporter: ErrorReporter) -> Connections:
    """Create the registry of the management port's connections, which serves no WebSockets."""
    return Connections(
        most=0,
        most_http=_CONNECTIONS,
        most_http_bytes=settings.connections_bytes,
        most_bytes=0,
        stalled_s=settings.socket_stalled_s,
        failed=reporter.response,
    )
