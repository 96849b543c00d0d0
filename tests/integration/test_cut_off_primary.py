"""A primary that is cut off from the others and does not notice has an older cluster time."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from bson import Timestamp

from revstream.resolvers.subscriptions.start import ChangeRequest
from revstream.resolvers.subscriptions.stream import Changes
from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ResumeTokenInvalid
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import Hub
from revstream.streams.mongo.database import Mongo
from tests.support.shop import PRODUCT


def changes(mongo: Mongo) -> Changes:
    hub = Hub(["products"], position=resume_tokens.token_from_time(Timestamp(1, 1)))
    progress = ArchiveProgress(Checkpoints(mongo), hub)
    return Changes(mongo, {"products": Archive(mongo, "products")}, hub, progress, quiet_s=0.01)


async def test_a_valid_token_is_not_refused_by_the_time_of_a_cut_off_primary(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A majority read decides: a token after its time is of another history."""
    await mongo.insert_in_order("unrelated", [{}])
    now = await mongo.operation_time()
    asked = []

    async def cut_off() -> Timestamp:
        asked.append(now)
        return Timestamp(now.time - 5, 1) if len(asked) == 1 else now

    monkeypatch.setattr(mongo, "operation_time", cut_off)
    request = ChangeRequest(after=resume_tokens.token_from_time(now))
    async with aclosing(changes(mongo).changes(PRODUCT, request)) as opened:
        assert (await anext(opened)).kind == "CHECKPOINT"
    assert len(asked) == 2

    later = ChangeRequest(after=resume_tokens.token_from_time(Timestamp(now.time + 1000, 1)))
    async with aclosing(changes(mongo).changes(PRODUCT, later)) as opened:
        with pytest.raises(ResumeTokenInvalid, match="maximum is the database's"):
            await anext(opened)
