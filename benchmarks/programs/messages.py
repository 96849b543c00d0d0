"""Messages between a program and its benchmark: lines of JSON on standard output; the program ends
with its standard input.
"""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["emit", "wait_for_end"]


def emit(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def wait_for_end() -> None:
    """Wait for the end of standard input."""
    sys.stdin.read()
