"""Size of a response, estimated before it is written as JSON.

Fields that are selected under several names share one value in memory, but not in JSON.
"""

from __future__ import annotations

from typing import Any

from revstream.resolvers.errors import LimitExceeded

__all__ = ["check_response"]

# Bytes of a number, a boolean, null, and of the punctuation around a value.
_OTHER = 6


def check_response(data: Any, most_bytes: int) -> None:
    """Refuse a response that is too large.

    Raises:
        LimitExceeded: it would take about more than `most_bytes`; 0: no limit.
    """
    if most_bytes <= 0:
        return
    size = 0
    # Lists and objects that are not counted yet.
    waiting: list[Any] = [[data]]
    while waiting:
        each = waiting.pop()
        if each.__class__ is dict:
            size += sum(map(len, each))
            values = each.values()
        else:
            values = each
        size += _OTHER * len(values)
        for value in values:
            kind = value.__class__
            if kind is str:
                size += len(value)
            elif kind is dict or kind is list:
                waiting.append(value)
        if size > most_bytes:
            raise LimitExceeded(
                f"bytes of the response: over {most_bytes:,}, maximum is {most_bytes:,}; "
                "request smaller pages (first, last), or fewer fields",
                limit="max_response_bytes",
                asked=size,
                bound=most_bytes,
            )
