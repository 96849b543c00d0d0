"""Administration of one process: list its sessions, and disconnect a principal.

    GET  /admin/sessions
    POST /admin/disconnect      {"principal": "ann"}

Plain HTTP, not a part of the generated API: it is about the process, not its data, and a proxy can
block the path.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from revstream.gql.auth.authenticator import Credentials
from revstream.gql.engine.request.context_factory import RequestContextFactory
from revstream.gql.http.request import Refused, read_json
from revstream.gql.observability.error_response import ErrorReporter
from revstream.resolvers.access.principal import Principal
from revstream.resolvers.errors import Forbidden
from revstream.streams.core.errors import GatewayError

__all__ = ["admin_routes"]

log = logging.getLogger(__name__)

Handle = Callable[[Request, Principal], Awaitable[Response]]


def admin_routes(
    callers: RequestContextFactory, role: str | None, reporter: ErrorReporter, body_bytes: int
) -> list[Route]:
    """Create the routes for administrators; empty if no role is configured."""
    if role is None:
        return []

    def for_administrators(handle: Handle) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                principal = await callers.principal(Credentials.from_headers(request.headers))
                if role not in principal.roles:
                    raise Forbidden(
                        f"administration requires the role {role}; use an account that has it"
                    )
                return await handle(request, principal)
            except (GatewayError, Refused) as exc:
                return reporter.response(exc)

        return endpoint

    async def sessions(_request: Request, _principal: Principal) -> Response:
        return JSONResponse({"sessions": callers.sessions.shown()})

    async def disconnect(request: Request, principal: Principal) -> Response:
        given = await read_json(request.receive, request.headers, most_bytes=body_bytes)
        name = given.get("principal") if isinstance(given, dict) else None
        if not isinstance(name, str):
            raise Refused(400, 'request body: no principal, expected {"principal": "<name>"}')
        count = callers.sessions.disconnect(name)
        log.info("disconnected", extra={"principal": name, "by": principal.name, "count": count})
        return JSONResponse({"disconnected": count})

    return [
        Route("/admin/sessions", for_administrators(sessions), methods=["GET"]),
        Route("/admin/disconnect", for_administrators(disconnect), methods=["POST"]),
    ]
