"""End of a request whose client has closed the connection: nobody waits for its answer.

A query is cancelled, and with it what MongoDB does for it. A mutation is cancelled as long as it
waits for its turn; one that has begun is finished, since half of it may have been written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from starlette.requests import ClientDisconnect
from starlette.types import Scope

__all__ = [
    "CLIENT",
    "ClientConnection",
    "ClientPresence",
    "finish_without_client",
    "while_client_waits",
]

CLIENT = "revstream-client"
"""Key of a `ClientConnection` among the extensions of a scope; None once it is closed."""


class ClientConnection(Protocol):
    """Connection that answers one request at a time.

    Attributes:
        presence: of the client whose request is answered; its `leave` is called at the end of the
            connection.
    """

    presence: ClientPresence | None


class ClientPresence:
    """Args:
    task: executes the request.
    """

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.gone = False
        self._task: asyncio.Task[Any] | None = task

    def leave(self) -> None:
        """Cancel the request."""
        if self._task is not None:
            self.gone = True
            self._task.cancel()

    def finish(self) -> None:
        """Let the request go on, whatever the client does."""
        self._task = None


_PRESENCE: ContextVar[ClientPresence | None] = ContextVar("presence of a client", default=None)


@contextmanager
def while_client_waits(scope: Scope) -> Iterator[None]:
    """Cancel the running request once its client has gone.

    Args:
        scope: of a request whose body has come. Nothing is known of the client where the server is
            not ours.

    Raises:
        ClientDisconnect: the client has gone.
    """
    extensions = scope.get("extensions", {})
    task = asyncio.current_task()
    if CLIENT not in extensions or task is None:
        yield
        return
    connection: ClientConnection | None = extensions[CLIENT]
    if connection is None:
        raise ClientDisconnect
    presence = connection.presence = ClientPresence(task)
    _PRESENCE.set(presence)
    try:
        yield
    except asyncio.CancelledError:
        # Somebody else may have cancelled it, too.
        if presence.gone and task.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        presence.finish()
        connection.presence = None


def finish_without_client() -> None:
    """Let the running request go on whether or not its client still waits for it."""
    presence = _PRESENCE.get()
    if presence is not None:
        presence.finish()
