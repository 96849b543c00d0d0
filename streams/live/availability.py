"""Availability of MongoDB: from the live stream, and from a ping while the stream is silent.

Guarantees: an outage is known within about three seconds, and its end as soon as the stream is open
again or a ping is answered. An interruption of the stream for other reasons is no outage. One ping
at a time: a driver with threads uses a thread for each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from revstream.streams.changefeed.source import Source
from revstream.streams.core.errors import GatewayError, TimeLimit, Unavailable
from revstream.streams.core.task_cleanup import cancel_and_wait
from revstream.streams.live.hub import Hub
from revstream.streams.mongo.database import Mongo

__all__ = ["Availability"]

_LOOK_S = 0.25
# The stream reports its position ten times a second.
_SILENT_S = 1.0
# Time limit of a ping; many elections end sooner.
_PING_S = 1.5


class Availability:
    """Availability of one process's MongoDB.

    Attributes:
        trouble: Reason why it does not answer; None where it does.
        changed: Called with `trouble` when it changes.
    """

    def __init__(self, mongo: Mongo, source: Source, hub: Hub) -> None:
        self.trouble: str | None = None
        self.changed: Callable[[str | None], None] = lambda trouble: None
        self._mongo = mongo
        self._source = source
        self._hub = hub

    async def watch(self) -> None:
        """Check regularly; never ends."""
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._stream_is_well:
                self._set_trouble(None)
            else:
                await self._ping()

    @property
    def _stream_is_well(self) -> bool:
        silent_s = time.monotonic() - self._hub.moved_at
        return self._source.connected and silent_s < _SILENT_S

    async def _ping(self) -> None:
        ping = asyncio.ensure_future(self._mongo.command({"ping": 1}))
        began = time.monotonic()
        try:
            while not ping.done():
                await asyncio.wait({ping}, timeout=_LOOK_S)
                if self._stream_is_well:
                    return
                if time.monotonic() - began > _PING_S and not ping.done():
                    self._set_trouble(f"no response for {_PING_S:g} s")
            self._set_trouble(_trouble_of(ping))
        finally:
            await cancel_and_wait(ping)

    def _set_trouble(self, trouble: str | None) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            self.changed(trouble)


def _trouble_of(ping: asyncio.Future[Any]) -> str | None:
    try:
        ping.result()
    except (Unavailable, TimeLimit) as exc:
        return exc.message
    except GatewayError:
        # It answers; another error is reported to the operation that meets it.
        return None
    return None
