"""Documents that may have changed unobserved since their last version, after a loss of history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import ChangeEvent, identity
from revstream.streams.coordination.checkpoint import Baseline
from revstream.streams.layouts.core.snapshot_scan import find_unscanned
from revstream.streams.mongo.database import Mongo
from revstream.streams.recording.versions.last_version_cache import LastVersionCache

__all__ = ["doubtful_keys"]


async def doubtful_keys(
    mongo: Mongo,
    archive: Archive,
    lasts: LastVersionCache,
    events: Sequence[ChangeEvent],
    baseline: Baseline,
) -> set[Any]:
    """Return, by identity, the documents of these events that the repeated snapshot has not
    reached.

    Args:
        lasts: Contains the last versions of all of them.
    """
    if baseline.done or not baseline.doubt:
        return set()
    keys = [each.key for each in events if _in_doubt(lasts, each.key, baseline.doubt)]
    if keys and baseline.started:
        keys = await find_unscanned(mongo, archive.collection, baseline.after, keys)
    return {identity(each) for each in keys}


def _in_doubt(lasts: LastVersionCache, key: Any, doubt: str) -> bool:
    last = lasts.get(key)
    return last is not None and last.full is not None and last.token < doubt
