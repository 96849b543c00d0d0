"""Messages between a program and its benchmark: lines of JSON on standard output; the program ends
with its standard input.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["say", "until_told"]


def say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def until_told() -> None:
    """Wait for the end of standard input."""
    sys.stdin.read()
