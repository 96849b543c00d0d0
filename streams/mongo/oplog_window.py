"""Time that MongoDB's oplog reaches back."""

from __future__ import annotations

import math
import time

from revstream.streams.core.errors import DatabaseError, Unsuitable
from revstream.streams.mongo.database import Mongo

__all__ = ["OplogWindow"]

# Seconds between two reads: the oldest entry leaves the oplog with some thousand others.
_EVERY_S = 10.0


class OplogWindow:
    """Window of the oplog, read again when it is needed.

    Attributes:
        seconds: age of the oldest entry; None until it was read, and without the privilege to.
    """

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        self._read_at = -math.inf
        self.seconds: float | None = None

    async def refresh(self) -> None:
        """Read the oldest entry, at most every 10 s.

        Raises:
            GatewayError: MongoDB cannot be reached.
        """
        if time.monotonic() - self._read_at < _EVERY_S:
            return
        try:
            oldest = await self._mongo.oldest("oplog.rs", {}, database="local")
        except (Unsuitable, DatabaseError):
            # `revstream doctor` reports the missing privilege.
            self.seconds = None
        else:
            now = await self._mongo.operation_time()
            self.seconds = None if oldest is None else float(now.time - oldest["ts"].time)
        self._read_at = time.monotonic()
