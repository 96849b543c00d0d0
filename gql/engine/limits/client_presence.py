"""End of a request whose client has closed the connection: nobody waits for its answer.

A query is cancelled, and with it what MongoDB does for it. A mutation is cancelled as long as it
waits for its turn; one that has begun is finished, since half of it may have been written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

__all__ = ["finish_without_client", "while_client_waits"]

# Most requests have been answered by then, and need not be watched.
_PATIENCE_S = 0.05


class _Presence:
    """Args:
    task: executes the request.
    """

    def __init__(self, receive: Receive, task: asyncio.Task[object]) -> None:
        self.gone = False
        self._receive = receive
        self._task: asyncio.Task[object] | None = task
        self._watching: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self._watch)

    def finish(self) -> None:
        """Stop watching: whatever the client does, the request goes on."""
        self._task = None
        self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()
            # A cancelled task keeps the frames that it has left, and these refer to this.
            self._watching = None

    def _watch(self) -> None:
        self._watching = asyncio.get_running_loop().create_task(self._wait(), name="client watch")

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if self._task is not None:
            self.gone = True
            self._task.cancel()


_PRESENCE: ContextVar[_Presence | None] = ContextVar("presence of a client", default=None)


@asynccontextmanager
async def while_client_waits(receive: Receive) -> AsyncIterator[None]:
    """Cancel what is inside once the client has gone.

    Args:
        receive: of a request whose body has come.

    Raises:
        ClientDisconnect: the client has gone.
    """
    task = asyncio.current_task()
    assert task is not None
    presence = _Presence(receive, task)
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


def finish_without_client() -> None:
    """Let the running request go on whether or not its client still waits for it."""
    presence = _PRESENCE.get()
    if presence is not None:
        presence.finish()
