"""Version numbers of current documents while the archive and the process's stream move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pymongo import MongoClient

from revstream.model.compiler.loader import read_model
from revstream.resolvers.current.document_numbers import DocumentNumbers
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.current.version_number_cache import VersionNumberCache
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import EventBatch
from revstream.streams.core import resume_tokens
from revstream.streams.mongo.database import Mongo
from tests.support.eventually import eventually
from tests.support.streams import Recording, event

THING = read_model('type Thing @collection(name: "things") { id: Int! n: Int }').entity("Thing")


class Overtaken(Archive):
    """An archive whose answer comes after something else has happened."""

    def __init__(self, mongo: Mongo) -> None:
        super().__init__(mongo, "things")
        self.before_answer: Callable[[], None] = lambda: None

    async def newest(self, *arguments: Any, **more: Any) -> list[Any]:
        found = await super().newest(*arguments, **more)
        self.before_answer()
        return found


async def test_a_number_that_was_read_before_a_change_is_not_cached_after_it(
    mongo: Mongo, client: MongoClient[dict[str, Any]]
) -> None:
    """Though the archive has recorded the change before the read, and the stream shows it during
    the read.
    """
    archive = Overtaken(mongo)
    recording = Recording(mongo, archive=archive)
    await recording.begin(baseline_done=True)
    things, hub = client[mongo.name].things, recording.hub
    cache = VersionNumberCache(hub)
    numbers = DocumentNumbers(mongo, {"things": archive}, OwnWrites(recording.progress, cache))

    async def now() -> str:
        return resume_tokens.token_from_time(await mongo.operation_time())

    things.insert_one({"_id": 1, "n": 0})
    async with recording.running() as task:
        await recording.caught_up(task)
        before = await now()
        hub.publish(EventBatch((), before))
        assert await numbers.numbers(THING, [{"_id": 1}], before) == [1]
        things.update_one({"_id": 1}, {"$inc": {"n": 1}})
        await recording.caught_up(task)
        changed = (await recording.versions())[-1]["_id"]
        await eventually(lambda: recording.progress.known_position("things") >= changed)
        update = replace(event(key=1), token=changed, at=resume_tokens.cluster_time(changed))
        after = await now()
        archive.before_answer = lambda: hub.publish(EventBatch((update,), after))
        assert await numbers.numbers(THING, [{"_id": 1}], before) == [1]
        archive.before_answer = lambda: None
        assert numbers.known_numbers(THING, [{"_id": 1}], after) == [None]
        assert await numbers.numbers(THING, [{"_id": 1}], after) == [2]
        assert numbers.known_numbers(THING, [{"_id": 1}], after) == [2]
