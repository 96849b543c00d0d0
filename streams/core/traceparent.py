"""`traceparent` of the running work, as text: the trace that a write belongs to.

It is kept with the version of the write, and passed on to receivers and subscribers, whether or not
this process records spans itself.

Source: W3C Trace Context, 3.2. docs/decisions/0047-traceparent.md.
"""

from __future__ import annotations

import re
from contextvars import ContextVar

__all__ = ["TRACEPARENT", "read_traceparent"]

TRACEPARENT: ContextVar[str | None] = ContextVar("traceparent", default=None)
"""Valid `traceparent` of the running request or operation; None where there is none."""

# Version, trace id, parent id, flags. The version ff, and ids of zeros only, are invalid.
_FORM = re.compile("(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def read_traceparent(value: object) -> str | None:
    """Return a `traceparent` of any origin, if it is one of 55 characters; None otherwise."""
    return value if isinstance(value, str) and _FORM.fullmatch(value) else None
