"""Committed texts with which results are compared. `UPDATE_SNAPSHOTS=1` rewrites them."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["SNAPSHOTS", "assert_snapshot"]

SNAPSHOTS = Path(__file__).parents[1] / "snapshots"


def assert_snapshot(name: str, actual: str) -> None:
    """Compare a text with `tests/snapshots/<name>`, or write that file.

    Raises:
        AssertionError: with the difference.
    """
    path = SNAPSHOTS / name
    if os.environ.get("UPDATE_SNAPSHOTS") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(actual, encoding="utf-8")
    expected = path.read_text(encoding="utf-8") if path.exists() else ""
    # Lists: pytest shows their first difference in full.
    assert actual.splitlines() == expected.splitlines(), (
        f"differs from tests/snapshots/{name}; if it is meant: UPDATE_SNAPSHOTS=1 pytest …"
    )
    assert actual == expected
