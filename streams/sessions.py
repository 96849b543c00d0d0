"""The driver's sessions, kept for the next one who needs one.

Motor makes and ends each in a thread of its own, which costs two hops per write. A session serves
one at a time; one that something went wrong in is not kept, since a transaction may be open in it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

__all__ = ["Sessions"]

# As many writes at once come from few processes; more are made, and not kept.
_MOST_KEPT = 64


class Sessions:
    """Of one client."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._idle: list[Any] = []

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Any]:
        """It knows the cluster time of its last reply."""
        if self._idle:
            session = self._idle.pop()
        else:
            made = self._client.start_session(causal_consistency=False)
            session = await made if inspect.isawaitable(made) else made
        kept = False
        try:
            yield session
            kept = len(self._idle) < _MOST_KEPT
        finally:
            if kept:
                self._idle.append(session)
            else:
                await session.end_session()

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().end_session()
