"""A subscription as something that somebody follows: it shows among the sessions, and it ends when
its caller's sign-in does, whatever it is sent over."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TypeVar

from gql.context import Context
from gql.sessions import Session, Sessions
from resolvers.errors import Unauthenticated
from resolvers.farewell import Farewell

__all__ = ["Followed"]

T = TypeVar("T")


class Followed:
    """One of them; a context manager, and it shows while that is open."""

    __slots__ = ("_farewell", "_name", "_opened", "_session")

    def __init__(self, context: Context, name: str) -> None:
        self._name = name
        self._session = context.session
        self._farewell: Farewell | None = None
        # Where the session is this subscription's own.
        self._opened: Sessions | None = None
        if self._session is None and context.sessions is not None:
            # Over a socket, closing that ends it. Elsewhere it has to end by itself.
            self._farewell = farewell = Farewell()

            def end(reason: str) -> None:
                farewell.say(reason, Unauthenticated)

            self._session, self._opened = Session(context.caller, "http", end), context.sessions

    def __enter__(self) -> Followed:
        if self._session is not None:
            if self._opened is not None:
                self._opened.open(self._session)
            self._session.followed[self] = self._name
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.followed.pop(self, None)
            if self._opened is not None:
                self._opened.close(self._session)

    def within(self, items: AsyncGenerator[T]) -> AsyncGenerator[T]:
        """The same items, which raise `Unauthenticated` once the sign-in has ended, or an
        administrator has ended it, where no socket does so."""
        return items if self._farewell is None else self._farewell.until(items)
