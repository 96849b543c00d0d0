"""Connections as broadcasts write to them: at once, without awaiting room.

Source: docs/decisions/0028-shared-subscriptions.md
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["WRITER", "Writer"]

WRITER = "revstream.writer"
"""Key of a connection's `Writer` among the extensions of its scope."""


class Writer(Protocol):
    """A connection that bytes are written to in the order of the calls."""

    def write(self, data: bytes) -> bool:
        """Hand bytes to the transport; once the connection is closed, drop them.

        Returns False, and writes nothing, where its client has yet to read too much.
        """
