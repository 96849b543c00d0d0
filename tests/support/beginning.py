"""Start of a recorded history for a test."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Thread

from pymongo import MongoClient

from revstream.model.compiler.loader import read_model
from revstream.streams.archive.coverage import CoverageStore
from revstream.streams.coordination.checkpoint import Baseline, Checkpoint, Checkpoints
from revstream.streams.core import resume_tokens
from revstream.streams.mongo.database import Mongo

__all__ = ["begin_new", "begin_now"]


def begin_new(uri: str, database: str, model: Path) -> None:
    """Start the history of all collections of the model now, in a new database.

    The default start, the oldest oplog entry, may be far back: other tests fill the oplog.
    """
    with MongoClient[dict[str, object]](uri) as client:
        if database in client.list_database_names():
            return
    names = [each.collection for each in read_model(model.read_text()).entities]
    # In a thread, because the current thread may run an event loop already.
    thread = Thread(target=lambda: asyncio.run(begin_now(uri, database, *names)))
    thread.start()
    thread.join()


async def begin_now(uri: str, database: str, *collections: str) -> None:
    """Start the history of empty collections now."""
    async with Mongo.connect(uri, database) as mongo:
        now = resume_tokens.token_from_time(await mongo.operation_time())
        for each in collections:
            begun = Checkpoint(now, now, Baseline(done=True))
            await CoverageStore(mongo).set_begin(each, None)
            await CoverageStore(mongo).set_known(each, None)
            await Checkpoints(mongo).save(f"recorder:{each}", begun, fencing_token=0)
