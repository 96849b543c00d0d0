"""Authentication of a WebSocket: its start, its renewal and its end.

A refused sign-in and an administrator's disconnect close the socket with 4403 and a reason. The
expiry of a sign-in, and an interrupted subscription, close it with 1012, so that the client comes
back; the other subscriptions on the socket get their resume tokens before. If the sign-in cannot be
checked for now, the socket is closed with 1013. A `ping` with the payload of a `connection_init`
renews the sign-in without a reconnect; in the legacy protocol, which has no ping, another
`connection_init` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from strawberry.http.exceptions import WebSocketDisconnected

from revstream.gql.auth.sessions import Session
from revstream.gql.endpoint.request_trace import enter_connection
from revstream.gql.subscriptions.interruption import Interruption
from revstream.resolvers.errors import SignInEnded, Unauthenticated
from revstream.streams.core.errors import GatewayError, Unavailable
from revstream.streams.core.task_cleanup import cancel_and_wait

__all__ = ["WebSocketAuthentication"]

_FORBIDDEN = 4403
# IANA's "Try Again Later".
_TRY_AGAIN = 1013
# Maximum time for the operations of an interrupted socket to send a last message each.
_PARTING_MOST_S = 2.0


class WebSocketAuthentication:
    """Sign-in of one WebSocket.

    Args:
        handler: Strawberry's handler, of either protocol; its `view` has the context factory, and
            `running` the tasks of its operations.
    """

    def __init__(self, handler: Any) -> None:
        self._handler = handler
        self._session: Session | None = None
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> WebSocketAuthentication:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._session is not None:
            self._handler.view.callers.sessions.close(self._session)
        try:
            if self._closing is not None:
                await asyncio.wait([self._closing])
        finally:
            try:
                await cancel_and_wait(self._closing, expected=(WebSocketDisconnected,))
            finally:
                # Break the cycle between handler and session, for the garbage collector.
                self._handler = self._session = None

    @property
    def renewable(self) -> bool:
        """Return True if the sign-in of the socket can expire."""
        return self._session is not None and bool(self._handler.view.callers.signs_in)

    async def authenticate(self, message: Mapping[str, Any]) -> bool:
        """Authenticate a `connection_init`; close the socket and return False if it is refused."""
        handler = self._handler
        callers = handler.view.callers
        headers = handler.websocket.ws.headers
        try:
            principal, context = await callers.authenticate_socket(headers, message.get("payload"))
        except GatewayError as exc:
            await self._refuse(exc)
            return False
        self._session = Session(principal, "websocket", self._end)
        callers.sessions.open(self._session)
        handler.context = context.for_session(self._session)
        enter_connection(headers, message.get("payload"))
        return True

    async def renew(self, message: Mapping[str, Any]) -> bool:
        """Renew the sign-in; close the socket and return False if it is refused."""
        if self._session is None:
            return True
        callers = self._handler.view.callers
        try:
            principal = await callers.renew(self._session.principal, message.get("payload"))
        except SignInEnded as exc:
            self._end(exc.message, True)
            return False
        except GatewayError as exc:
            await self._refuse(exc)
            return False
        if principal is not None:
            self._session.until(principal)
        return True

    async def _refuse(self, exc: GatewayError) -> None:
        code = _FORBIDDEN if isinstance(exc, Unauthenticated) else _TRY_AGAIN
        await self._close(code, exc.message)

    def _end(self, reason: str, again: bool) -> None:
        if again:
            self.interrupt(Interruption(reason), SignInEnded)
        elif self._closing is None:
            self._closing = asyncio.create_task(self._close(_FORBIDDEN, reason))

    def interrupt(self, interruption: Interruption, kind: type[GatewayError] = Unavailable) -> None:
        """Close the socket after its other subscriptions have sent their resume tokens.

        Args:
            kind: class of the error that ends them.
        """
        if self._closing is None:
            if self._session is not None:
                self._session.shutdown.begin(interruption.message, kind)
            self._closing = asyncio.create_task(self._part(interruption))

    async def _part(self, interruption: Interruption) -> None:
        running = self._handler.running
        if running:
            await asyncio.wait(running, timeout=_PARTING_MOST_S)
        await self._close(interruption.code, interruption.message)

    async def _close(self, code: int, reason: str) -> None:
        await self._handler.websocket.close(code=code, reason=reason)
