"""Rate-limited logging of an event that may occur very often."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

__all__ = ["LogThrottle"]


class LogThrottle:
    """Throttle of one event name of one logger; belongs to an event loop.

    The first occurrence is logged at once, further ones as one line per interval.

    Args:
        every_s: Minimum time between two lines. A later line has the facts of the last occurrence,
            and
            `more`: the number of occurrences since the previous line, the last one included.
    """

    def __init__(
        self,
        log: logging.Logger,
        event: str,
        *,
        level: int = logging.WARNING,
        every_s: float = 10.0,
    ) -> None:
        self._log = log
        self._event = event
        self._level = level
        self._every_s = every_s
        self._timer: asyncio.TimerHandle | None = None
        self._facts: dict[str, Any] = {}
        self._more = 0

    def note(self, **facts: Any) -> None:
        """Count an occurrence, and log it if no line was logged lately."""
        if self._timer is None:
            self._log.log(self._level, self._event, extra=facts)
            self._wait()
            return
        self._facts = facts
        self._more += 1

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._every_s, self._tell)

    def _tell(self) -> None:
        self._timer = None
        if self._more:
            self._log.log(self._level, self._event, extra={**self._facts, "more": self._more})
            self._more = 0
            self._wait()
