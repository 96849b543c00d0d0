"""How a program talks to the benchmark that started it: lines of JSON out, the end of its input
in."""

from __future__ import annotations

import json
import sys
from typing import Any

__all__ = ["say", "until_told"]


def say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def until_told() -> None:
    """Return when the benchmark has what it wants."""
    sys.stdin.read()
