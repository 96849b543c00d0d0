"""Sessions: open connections of one process, and their subscriptions, for administrators.

A session ends when its authentication expires, unless the client renews it, and when its key is
withdrawn. Each process of a deployment has its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from revstream.resolvers.access.principal import Principal
from revstream.resolvers.subscriptions.shutdown import SubscriptionShutdown
from revstream.resolvers.values.dates import date_text

__all__ = ["Session", "Sessions"]

EXPIRED = "the authentication has expired; authenticate again"
WITHDRAWN = "the key of this authentication was withdrawn or changed; authenticate again"


@dataclass(eq=False)
class Session:
    """One connection.

    Args:
        transport: "websocket" or "http".
        end: Closes the connection: (reason, whether the client may reconnect). May be called again.
        shutdown: Ends the subscriptions of the connection.
        followed: Names of the running subscriptions.
    """

    principal: Principal
    transport: str
    end: Callable[[str, bool], None]
    shutdown: SubscriptionShutdown = field(default_factory=SubscriptionShutdown)
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    followed: dict[object, str] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None

    def until(self, principal: Principal) -> None:
        """Set the principal, and end the session when its authentication expires."""
        self.principal = principal
        self.forget()
        if principal.expires_at is not None:
            left_s = max(0.0, principal.expires_at - time.time())
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(left_s, self.end, EXPIRED, True)

    def forget(self) -> None:
        """Cancel the timer of the expiry."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Sessions:
    """Registry of the open sessions of one process.

    Args:
        holds: Returns whether the authentication of a principal is still in force.
    """

    def __init__(self, holds: Callable[[Principal], bool] = lambda principal: True) -> None:
        self._holds = holds
        self._open: set[Session] = set()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, session: Session) -> None:
        """Add a session until `close`. Needs a running loop."""
        self._open.add(session)
        session.until(session.principal)
        # The key may have been withdrawn since the principal was verified.
        self._review(session)

    def close(self, session: Session) -> None:
        session.forget()
        self._open.discard(session)

    def shown(self) -> list[dict[str, Any]]:
        """Return the sessions as JSON, the oldest first."""
        return [
            {
                "principal": each.principal.name,
                "roles": sorted(each.principal.roles),
                "transport": each.transport,
                "since": date_text(each.since),
                "expiresAt": _expiry(each.principal),
                "subscriptions": sorted(each.followed.values()),
            }
            for each in sorted(self._open, key=lambda each: each.since)
        ]

    def review(self) -> None:
        """End the sessions whose authentication is no longer in force."""
        for each in list(self._open):
            self._review(each)

    def _review(self, session: Session) -> None:
        if not self._holds(session.principal):
            session.end(WITHDRAWN, True)

    def disconnect(self, name: str) -> int:
        """End all sessions of a principal. Returns their number."""
        found = [each for each in self._open if each.principal.name == name]
        for each in found:
            each.end("an administrator has ended this connection", False)
        return len(found)


def _expiry(principal: Principal) -> str | None:
    if principal.expires_at is None:
        return None
    return date_text(datetime.fromtimestamp(principal.expires_at, UTC))
