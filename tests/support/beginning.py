"""Where history begins for a test."""

from __future__ import annotations

from streams import tokens
from streams.checkpoints import Baseline, Checkpoint, Checkpoints
from streams.mongo import Mongo

__all__ = ["begin_now"]


async def begin_now(uri: str, database: str, *collections: str) -> None:
    """Of collections that are empty: not at the oldest entry of an oplog that other tests fill,
    from where it is a long way."""
    async with Mongo.connect(uri, database) as mongo:
        now = tokens.moment(await mongo.operation_time())
        for each in collections:
            begun = Checkpoint(now, now, Baseline(done=True))
            await Checkpoints(mongo).save(f"recorder:{each}", begun, fencing_token=0)
