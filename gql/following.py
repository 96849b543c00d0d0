"""A subscription as something that somebody follows: it shows among the sessions, and it ends when
its caller's sign-in does, whatever it is sent over."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from typing import TypeVar

from gql.context import Context
from gql.sessions import Session
from resolvers.errors import Unauthenticated
from resolvers.farewell import Farewell

__all__ = ["followed"]

T = TypeVar("T")


async def followed(context: Context, name: str, items: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """The same items.

    Raises:
        Unauthenticated: the sign-in has ended, or an administrator has ended it.
    """
    with ExitStack() as stack:
        session = context.session
        if session is None and context.sessions is not None:
            # Over a socket, closing that ends it. Elsewhere it has to end by itself.
            farewell = Farewell()

            def end(reason: str) -> None:
                farewell.say(reason, Unauthenticated)

            session = Session(context.caller, "http", end)
            stack.enter_context(context.sessions.opened(session))
            items = farewell.until(items)
        if session is not None:
            stack.enter_context(session.following(name))
        async with aclosing(items) as opened:
            async for each in opened:
                yield each
