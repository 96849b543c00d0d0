"""Size of a response, found out before it is written as JSON.

Fields that are selected again under other names share one value in memory; as JSON they do not.
"""

from __future__ import annotations

from typing import Any

from resolvers.errors import LimitExceeded

__all__ = ["check_response"]

# A number, a boolean, null, and the marks around a value.
_OTHER = 6


def check_response(data: Any, most_bytes: int) -> None:
    """Raises:
    LimitExceeded: it would take about more than so many bytes; 0: no limit.
    """
    if most_bytes <= 0:
        return
    size = 0
    waiting = [data]
    while waiting:
        each = waiting.pop()
        kind = each.__class__
        if kind is dict:
            size += sum(map(len, each)) + _OTHER * len(each)
            waiting += each.values()
        elif kind is list:
            size += len(each)
            waiting += each
        elif kind is str:
            size += len(each)
        else:
            size += _OTHER
        if size > most_bytes:
            raise LimitExceeded(
                f"the response would have more than {most_bytes:,} bytes, which is the most; "
                "ask for smaller pages (first, last), or for fewer fields",
                limit="max_response_bytes",
                asked=size,
                bound=most_bytes,
            )
