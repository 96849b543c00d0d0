"""Repair of updates that crashed programs left unfinished, in collections that keep versions.

A check reads all documents, so checks take at most a twentieth of the time.
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

# Ratio of the time between checks to the time of a check.
_SHARE = 20
# An unfinished update seen twice at this distance is most likely not in progress.
_UPDATE_S = 1.0


async def repair_layout(layout: Layout, *, every_s: float = SETTLE_S) -> None:
    """Repair unfinished updates regularly. Never ends."""
    reason = ""
    while True:
        began = time.monotonic()
        mended = 0
        try:
            mended = await layout.recover()
        except Exception as exc:
            # Logged once, and recording goes on.
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
        # A longer check mostly waited, to distinguish a crash from an update in progress.
        look_s = took_s if took_s < SETTLE_S else took_s - SETTLE_S
        await asyncio.sleep(max(every_s, _SHARE * look_s))


async def count_unfinished_updates(mongo: Mongo, model: Model) -> dict[str, int]:
    """Count, per collection that keeps versions itself, the documents with an unfinished update."""
    layouts = [create_layout(mongo, each) for each in model.entities]
    return {each.collection: await _count_left_over(each) for each in layouts if each.keeps}


async def _count_left_over(layout: Layout) -> int:
    count = await layout.count_unfinished()
    if count:
        await asyncio.sleep(_UPDATE_S)
        count = min(count, await layout.count_unfinished())
    return count
