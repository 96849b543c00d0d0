"""Shutdown of the subscriptions of a process, or of a connection: they end with a resume token.

A subscription that waits for the stream, the archive or MongoDB is interrupted; one that is sending
ends before its next event. Nothing is lost: events that were not sent follow after the last token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

from revstream.streams.core.errors import GatewayError, Unavailable

__all__ = ["SubscriptionShutdown"]

T = TypeVar("T")


class SubscriptionShutdown:
    """Shutdown flag of one process or one connection; cannot be reset."""

    __slots__ = ("_kind", "_message", "_waits")

    def __init__(self) -> None:
        self._message: str | None = None
        self._kind: type[GatewayError] = Unavailable
        self._waits: set[asyncio.Timeout] = set()

    @property
    def begun(self) -> bool:
        return self._message is not None

    def begin(self, message: str, kind: type[GatewayError] = Unavailable) -> None:
        """End present and later subscriptions. Repeatable.

        Args:
            kind: Class of the error.
        """
        if self._message is None:
            self._message, self._kind = message, kind
            for each in self._waits:
                each.reschedule(0)

    def check(self) -> None:
        """Raise if the subscriptions have ended.

        Raises:
            Unavailable: Or the class that `begin` was given.
        """
        if self._message is not None:
            # A copy for each, since facts of one subscriber are added to it.
            raise self._kind(self._message)

    async def next(self, items: AsyncGenerator[T], other: SubscriptionShutdown | None = None) -> T:
        """Return the next item; the shutdown ends the wait for it.

        Args:
            other: A shutdown that ends the wait, too.

        Raises:
            StopAsyncIteration: There is no other item.
            Unavailable: Or the class that `begin` was given; the shutdown has begun.
        """
        both = (self,) if other is None else (self, other)
        for each in both:
            each.check()
        wait = asyncio.timeout(None)
        try:
            async with wait:
                for each in both:
                    each._waits.add(wait)
                try:
                    return await anext(items)
                finally:
                    for each in both:
                        each._waits.discard(wait)
        except TimeoutError:
            if wait.expired():
                for each in both:
                    each.check()
            raise
