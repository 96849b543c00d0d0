"""Cancellation of requests whose client has closed the connection.

A query is cancelled, and with it its reads in MongoDB. A mutation is cancelled while it waits for a
slot; one that has begun is finished, since half of it may have been written.
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
        presence: client of the request that is being answered; the connection calls its `leave`
            when it closes.
    """

    presence: ClientPresence | None


class ClientPresence:
    """Cancels the task of a request when its client leaves.

    Args:
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
        """Let the request run to its end, even if the client leaves."""
        self._task = None


_PRESENCE: ContextVar[ClientPresence | None] = ContextVar("presence of a client", default=None)


@contextmanager
def while_client_waits(scope: Scope) -> Iterator[None]:
    """Cancel the running request once its client has disconnected.

    Args:
        scope: scope of a request whose body is complete. Other servers do not report the client's
            end; the request is then never cancelled.

    Raises:
        ClientDisconnect: the client has disconnected.
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
        # Another task may have cancelled it, too.
        if presence.gone and task.uncancel() == 0:
            raise ClientDisconnect from None
        raise
    finally:
        presence.finish()
        connection.presence = None


def finish_without_client() -> None:
    """Let the running request run to its end, even if its client disconnects."""
    presence = _PRESENCE.get()
    if presence is not None:
        presence.finish()
