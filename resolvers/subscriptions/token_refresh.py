"""Refresh of resume tokens for subscriptions without events."""

from __future__ import annotations

import time

from revstream.streams.live.replay import jittered_timeout_s

__all__ = ["TokenRefresh"]


class TokenRefresh:
    """The checkpoint that one subscription is due after a while without an event.

    Args:
        quiet_s: the longest that it waits for a fresher token.
    """

    def __init__(self, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        self._token: str | None = None
        self._wait_anew()

    def note(self, reached: str | None, sent: str | None) -> None:
        """Take note of events.

        Args:
            reached: token of the last of them.
            sent: token of the last that was sent.
        """
        if reached is not None:
            self._token = reached
        if sent is not None:
            self._wait_anew()
            if sent == self._token:
                self._token = None

    def due_token(self) -> str | None:
        """Return the last token passed over, once nothing was sent for long."""
        if self._token is None or time.monotonic() < self._due_at:
            return None
        token, self._token = self._token, None
        self._wait_anew()
        return token

    def _wait_anew(self) -> None:
        self._due_at = time.monotonic() + jittered_timeout_s(self._quiet_s)
