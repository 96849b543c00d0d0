"""Mending what crashes of programs leave in a collection that keeps versions itself, while it is
recorded.

A look costs a read of all documents there, so looks take no more than a twentieth of the time.
"""

from __future__ import annotations

import asyncio
import logging
import time

from revstream.model.definition import Model
from revstream.streams.core.errors import GatewayError, reason_from_error
from revstream.streams.layouts.core.interface import SETTLE_S, Layout
from revstream.streams.layouts.factory import create_layout
from revstream.streams.mongo.database import Mongo

__all__ = ["count_unfinished_updates", "repair_layout"]

log = logging.getLogger(__name__)

# Of the time between two looks, what a look takes at most.
_SHARE = 20
# What is seen twice so far apart is no update under way, in all likelihood.
_UPDATE_S = 1.0


async def repair_layout(layout: Layout, *, every_s: float = SETTLE_S) -> None:
    """Look for what crashes have left, again and again, and mend it. Never ends."""
    reason = ""
    while True:
        began = time.monotonic()
        mended = 0
        try:
            mended = await layout.recover()
        except Exception as exc:
            # It is told once, and recording goes on.
            if reason_from_error(exc) != reason:
                log.warning(
                    "layout not recovered: tried again",
                    extra={"collection": layout.collection, "reason": reason_from_error(exc)},
                    exc_info=None if isinstance(exc, GatewayError) else exc,
                )
            reason = reason_from_error(exc)
        else:
            reason = ""
        if mended:
            log.warning(
                "layout recovered",
                extra={"collection": layout.collection, "documents": mended},
            )
        took_s = time.monotonic() - began
        # Most of a longer one it has waited, to tell a crash from an update under way.
        look_s = took_s if took_s < SETTLE_S else took_s - SETTLE_S
        await asyncio.sleep(max(every_s, _SHARE * look_s))


async def count_unfinished_updates(mongo: Mongo, model: Model) -> dict[str, int]:
    """By collection that keeps versions itself, how many documents have what crashes have left
    between two writes of an update."""
    layouts = [create_layout(mongo, each) for each in model.entities]
    return {each.collection: await _count_left_over(each) for each in layouts if each.keeps}


async def _count_left_over(layout: Layout) -> int:
    count = await layout.count_unfinished()
    if count:
        await asyncio.sleep(_UPDATE_S)
        count = min(count, await layout.count_unfinished())
    return count
