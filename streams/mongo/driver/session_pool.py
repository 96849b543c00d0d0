"""Pool of driver sessions.

Motor starts and ends each session in a thread, which costs two thread switches per write. A session
serves one caller at a time; after an error it is not reused, since a transaction may be open in it.

A connection that the driver opens while its server recovers from an election has no sessions, also
once the server is primary: the driver checks once, when it connects (PyMongo 4.20). A caller that
gets such a connection receives AutoReconnect, and the connection is not used again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pymongo.errors

from revstream.streams.core.task_cleanup import retrieve_exception
from revstream.streams.mongo.driver.pymongo_internals import reset_pools

__all__ = ["SessionPool"]

# Few processes write more at once; further sessions are created and not kept.
_MOST_KEPT = 64
# The driver's message.
_NONE = "Sessions are not supported"


class SessionPool:
    """Session pool of one client."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._idle: list[Any] = []
        self._ending: set[asyncio.Future[Any]] = set()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[Any]:
        """Lend a session, which knows the cluster time of its last reply.

        Raises:
            AutoReconnect: The driver's; the last command was not sent.
        """
        if self._idle:
            session = self._idle.pop()
        else:
            made = self._client.start_session(causal_consistency=False)
            session = await made if inspect.isawaitable(made) else made
        kept = False
        try:
            yield session
            kept = len(self._idle) < _MOST_KEPT
        except pymongo.errors.ConfigurationError as exc:
            if not str(exc).startswith(_NONE):
                raise
            try:
                await reset_pools(self._client)
            except AttributeError:
                # Another PyMongo: the connection would go on being used.
                raise exc from None
            raise pymongo.errors.AutoReconnect(
                "the connection was opened before the server was ready; try again"
            ) from exc
        finally:
            if kept:
                self._idle.append(session)
            else:
                # An operation that ended because the server is unreachable must not wait for it
                # again.
                ending = asyncio.ensure_future(session.end_session())
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
                ending.add_done_callback(_retrieve_exception)

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().end_session()


def _retrieve_exception(ending: asyncio.Future[Any]) -> None:
    # A server that is away ends the session by itself.
    retrieve_exception(ending, (pymongo.errors.PyMongoError,))
