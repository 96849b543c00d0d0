"""How long a version stood: from its `at` until that of the next one."""

from __future__ import annotations

from typing import Any

from bson import Timestamp

from streams.documents import Document

__all__ = ["SPANS", "Until", "closing", "span"]

Until = tuple[str, Timestamp, Any]
"""Of a version that is stored: its token, the `at` and the `wall` that end it."""

SPANS = range(33)
"""What `span` may be."""


def closing(at: Timestamp, until: Timestamp, until_wall: Any) -> Document:
    """What a version that stood from `at` is given when the next one replaces it."""
    return {"until": until, "untilWall": until_wall, "span": span(at, until)}


def span(at: Timestamp, until: Timestamp) -> int:
    """The version stood less than 2 ** span seconds: 0 to 32.

    No index finds the intervals that contain a moment in time proportional to their number. But of
    those that stood less than 2 ** n seconds, only such can contain it as begin less than 2 ** n
    seconds before: 33 short ranges of an index.
    """
    return int((until.time - at.time).bit_length())
