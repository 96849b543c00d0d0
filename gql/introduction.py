"""The sign-in of a socket: when it is introduced, when it is renewed, and when it ends.

A refusal closes it with 4403 and the reason, and so do the end of what was signed in with and an
administrator; where it cannot be told for now who it is, it closes with 1013. A `ping` with a
payload as of `connection_init` renews the sign-in of a socket without a reconnect; in the legacy
protocol, which has no ping, another `connection_init` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from gql.sessions import Session
from resolvers.errors import Unauthenticated
from streams.errors import GatewayError

__all__ = ["Introduction"]

_FORBIDDEN = 4403
# IANA's "Try Again Later".
_TRY_AGAIN = 1013


class Introduction:
    """Args:
    handler: Strawberry's, of either protocol; its `view` knows the callers.
    """

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self._session: Session | None = None
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Introduction:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._session is not None:
            self._handler.view.callers.sessions.close(self._session)
        if self._closing is not None:
            await asyncio.gather(self._closing, return_exceptions=True)
        # Each knows of the other: left so, only the garbage collector would find them.
        self._handler = self._session = None

    @property
    def renewable(self) -> bool:
        """Whether it has been introduced by what comes to an end."""
        return self._session is not None and bool(self._handler.view.callers.signs_in)

    async def of(self, message: Mapping[str, Any]) -> bool:
        """Whether it is one; else the socket is closed."""
        handler = self._handler
        callers = handler.view.callers
        headers = handler.websocket.ws.headers
        try:
            principal, context = await callers.introduced(headers, message.get("payload"))
        except GatewayError as exc:
            await self._refuse(exc)
            return False
        self._session = Session(principal, "websocket", self._end)
        callers.sessions.open(self._session)
        handler.context = context.over(self._session)
        return True

    async def again(self, message: Mapping[str, Any]) -> bool:
        """Whether it may go on; else the socket is closed."""
        if self._session is None:
            return True
        callers = self._handler.view.callers
        try:
            principal = await callers.renewed(self._session.principal, message.get("payload"))
        except GatewayError as exc:
            await self._refuse(exc)
            return False
        if principal is not None:
            self._session.until(principal)
        return True

    async def _refuse(self, exc: GatewayError) -> None:
        code = _FORBIDDEN if isinstance(exc, Unauthenticated) else _TRY_AGAIN
        await self._close(code, exc.message)

    def _end(self, reason: str) -> None:
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(_FORBIDDEN, reason))

    async def _close(self, code: int, reason: str) -> None:
        await self._handler.websocket.close(code=code, reason=reason)
