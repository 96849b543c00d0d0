"""Counts of fallbacks from compiled queries to graphql-core's executor."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from typing import Literal

from revstream.streams.core.log_throttle import LogThrottle

__all__ = ["FallbackCounter", "Place", "Reason"]

logger = logging.getLogger(__name__)

Place = Literal["query", "object"]
Reason = Literal["error", "value", "exception"]


class FallbackCounter:
    """Counter of the fallbacks of one process.

    Places: `query` is a compiled query that graphql-core finishes, `object` is an object of the
    response whose fields it resolves one by one.
    Reasons: `error` is a read that failed, or a document that was left out; `value` is a value that
    the generated code does not handle, or that is not read yet; `exception` is a fault of the
    generated code.

    Attributes:
        counts: fallbacks by place and reason.
    """

    def __init__(self) -> None:
        self.counts: Counter[tuple[Place, Reason]] = Counter()
        self._faults = LogThrottle(logger, "compiled query failed", level=logging.ERROR)

    def count(self, place: Place, reason: Reason) -> None:
        """Count one fallback."""
        self.counts[place, reason] += 1

    def count_exception(self, place: Place, exc: Exception) -> None:
        """Count and log a fallback after an exception that no data should raise."""
        self.count(place, "exception")
        self._faults.note(place=place, detail="".join(traceback.format_exception(exc)))
