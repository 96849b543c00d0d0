"""The sign-in of a socket: when it is introduced, when it is renewed, and when it ends.

A refusal closes it with 4403 and the reason, and so does an administrator. The end of what was
signed in with closes it with 1012, since the client may come back with another sign-in, and so does
a subscription that is interrupted; whatever else runs on it is told where it stands before. Where
it cannot be told for now who it is, it closes with 1013. A `ping` with a
payload as of `connection_init` renews the sign-in of a socket without a reconnect; in the legacy
protocol, which has no ping, another `connection_init` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from strawberry.http.exceptions import WebSocketDisconnected

from revstream.gql.auth.sessions import Session
from revstream.gql.subscriptions.interruption import Interruption
from revstream.resolvers.errors import SignInEnded, Unauthenticated
from revstream.streams.core.errors import GatewayError, Unavailable
from revstream.streams.core.task_cleanup import retrieve_exception

__all__ = ["WebSocketAuthentication"]

_FORBIDDEN = 4403
# IANA's "Try Again Later".
_TRY_AGAIN = 1013
# How long it is waited for what runs on an interrupted socket: one message each is sent.
_PARTING_MOST_S = 2.0


class WebSocketAuthentication:
    """Args:
    handler: Strawberry's, of either protocol; its `view` knows the callers, and `running` are the
        tasks of its operations.
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
        if self._closing is not None:
            await asyncio.wait([self._closing])
            retrieve_exception(self._closing, (WebSocketDisconnected,))
        # Each knows of the other: left so, only the garbage collector would find them.
        self._handler = self._session = None

    @property
    def renewable(self) -> bool:
        """Whether it has been introduced by what comes to an end."""
        return self._session is not None and bool(self._handler.view.callers.signs_in)

    async def authenticate(self, message: Mapping[str, Any]) -> bool:
        """Whether it is one; else the socket is closed."""
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
        return True

    async def renew(self, message: Mapping[str, Any]) -> bool:
        """Whether it may go on; else the socket is closed."""
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
        """Close the socket, once the other subscriptions on it are told where they stand.

        Args:
            kind: of the error that ends those.
        """
        if self._closing is None:
            if self._session is not None:
                self._session.shutdown.say(interruption.message, kind)
            self._closing = asyncio.create_task(self._part(interruption))

    async def _part(self, interruption: Interruption) -> None:
        running = self._handler.running
        if running:
            await asyncio.wait(running, timeout=_PARTING_MOST_S)
        await self._close(interruption.code, interruption.message)

    async def _close(self, code: int, reason: str) -> None:
        await self._handler.websocket.close(code=code, reason=reason)
