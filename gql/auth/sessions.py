"""Who is connected: sockets, and what is followed over them or otherwise, for administrators to see
and to end.

A session ends when what its caller has signed in with does, unless he renews it, and when the key
of that is withdrawn. Of one process: a deployment of several is asked one by one.
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

EXPIRED = "what was signed in with has expired"
WITHDRAWN = "the key of this sign-in has been withdrawn or changed; sign in again"


@dataclass(eq=False)
class Session:
    """Args:
    transport: "websocket" or "http".
    end: closes it, given the reason, and whether its client may come back; may be called more than
        once.
    farewell: ends what is followed over it.
    followed: the names of the subscriptions that run.
    """

    principal: Principal
    transport: str
    end: Callable[[str, bool], None]
    farewell: SubscriptionShutdown = field(default_factory=SubscriptionShutdown)
    since: datetime = field(default_factory=lambda: datetime.now(UTC))
    followed: dict[object, str] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None

    def until(self, principal: Principal) -> None:
        """From now on this sign-in counts."""
        self.principal = principal
        self.forget()
        if principal.expires_at is not None:
            left_s = max(0.0, principal.expires_at - time.time())
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(left_s, self.end, EXPIRED, True)

    def forget(self) -> None:
        """It is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Sessions:
    """All of one process.

    Args:
        holds: whether what a caller has signed in with still counts.
    """

    def __init__(self, holds: Callable[[Principal], bool] = lambda principal: True) -> None:
        self._holds = holds
        self._open: set[Session] = set()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, session: Session) -> None:
        """It is, until `close`; on a running loop."""
        self._open.add(session)
        session.until(session.principal)
        # Since he was asked for it, and had to wait.
        self._review(session)

    def close(self, session: Session) -> None:
        session.forget()
        self._open.discard(session)

    def shown(self) -> list[dict[str, Any]]:
        """As JSON, the oldest first."""
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
        """End those that no longer hold."""
        for each in list(self._open):
            self._review(each)

    def _review(self, session: Session) -> None:
        if not self._holds(session.principal):
            session.end(WITHDRAWN, True)

    def disconnect(self, name: str) -> int:
        """End all of a principal. Returns how many there were."""
        found = [each for each in self._open if each.principal.name == name]
        for each in found:
            each.end("an administrator has ended this connection", False)
        return len(found)


def _expiry(principal: Principal) -> str | None:
    if principal.expires_at is None:
        return None
    return date_text(datetime.fromtimestamp(principal.expires_at, UTC))
