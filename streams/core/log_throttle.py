"""Log what may come with every event as a line now and then: the first at once, then how many more
there were."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

__all__ = ["LogThrottle"]


class LogThrottle:
    """Of one event name of one logger. Belongs to an event loop.

    Args:
        every_s: after a line, the shortest time to the next. That one has the facts of the last
            occurrence, and `more`: how many there were since, itself counted.
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
        """It has happened once more."""
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
