"""Registration of a subscription in its session.

The session lists it, and ends it when the caller's authentication ends, over any transport.
"""

from __future__ import annotations

from revstream.gql.auth.sessions import Session, Sessions
from revstream.gql.engine.request.context import RequestContext
from revstream.resolvers.errors import SignInEnded, Unauthenticated
from revstream.resolvers.subscriptions.shutdown import SubscriptionShutdown

__all__ = ["TrackedSubscription"]


class TrackedSubscription:
    """Context manager that lists a subscription in its session while it is open."""

    __slots__ = ("_name", "_opened", "_session")

    def __init__(self, context: RequestContext, name: str) -> None:
        self._name = name
        self._session = context.session
        # Set if this subscription has a session of its own, as over HTTP.
        self._opened: Sessions | None = None
        if self._session is None and context.sessions is not None:
            shutdown = SubscriptionShutdown()

            def end(reason: str, again: bool) -> None:
                shutdown.begin(reason, SignInEnded if again else Unauthenticated)

            self._session = Session(context.caller, "http", end, shutdown)
            self._opened = context.sessions

    @property
    def shutdown(self) -> SubscriptionShutdown | None:
        """Return the shutdown that the end of the authentication or an administrator triggers."""
        return None if self._session is None else self._session.shutdown

    def __enter__(self) -> TrackedSubscription:
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
