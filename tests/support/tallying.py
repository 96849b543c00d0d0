"""A listener as users write it: `--listeners tests.support.tallying:Tally`."""

from __future__ import annotations

from collections.abc import Sequence

from revstream.streams.listeners.consumer import Handler
from revstream.streams.listeners.context import ListenerContext
from revstream.streams.versioning.version import Version


class Tally(Handler):
    """Handler that stores each version once and counts how often it was delivered."""

    name = "tally"
    collection = "things"
    start = "beginning"

    def __init__(self, context: ListenerContext) -> None:
        self._mongo = context.mongo

    async def handle(self, versions: Sequence[Version], fencing_token: int) -> None:
        for each in versions:
            assert each.document != "poison", "this one is not for us"
            await self._mongo.find_one_and_update(
                "tally",
                {"_id": {"doc": each.document, "v": each.number}},
                {"$inc": {"times": 1}, "$max": {"fencingToken": fencing_token}},
                upsert=True,
            )


class Elsewhere(Tally):
    """Handler of a collection that is in no model."""

    collection = "nowhere"


class Unfinished(Handler):
    """Handler without a `handle` method."""
