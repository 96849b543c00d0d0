"""The start position of a subscription, which its end contains even without any event."""

from __future__ import annotations

from typing import Any

import pytest

from revstream.model.compiler.loader import read_model
from revstream.resolvers.subscriptions.start import ChangeRequest
from revstream.resolvers.subscriptions.stream import Changes
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.mongo.database import Mongo
from tests.support.streams import Recording

(ENTITY,) = read_model('type Thing @collection(name: "things") { id: ID! n: Int }').entities
one_driver = pytest.mark.parametrize("mongo", ["motor"], indirect=True)


@one_driver
async def test_a_subscription_that_cannot_catch_up_has_its_start_token(mongo: Mongo) -> None:
    """Without a recorder the archive does not reach the live stream within the limit."""
    recording = Recording(mongo)
    begun = await recording.begin(baseline_done=True)
    await mongo.insert_in_order("things", [{"_id": 1}])
    recording.hub.restart(resume_tokens.token_from_time(await mongo.operation_time()))
    progress = ArchiveProgress(recording.checkpoints, recording.hub, limit_s=0.01)
    changes = Changes(mongo, {"things": recording.archive}, recording.hub, progress)
    told: list[str] = []
    request = ChangeRequest(after=begun.token)
    with pytest.raises(ArchiveBehind):
        await anext(changes.changes(ENTITY, request, begun=told.append))
    assert told == [begun.token]


@one_driver
async def test_a_new_subscription_has_its_start_token_before_any_event(mongo: Mongo) -> None:
    """A client that resumes there misses none of the later writes."""
    recording = Recording(mongo)
    await recording.begin(baseline_done=True)
    now = resume_tokens.token_from_time(await mongo.operation_time())
    recording.hub.restart(now)
    changes = Changes(mongo, {"things": recording.archive}, recording.hub, recording.progress)
    told: list[Any] = []
    first = await anext(changes.changes(ENTITY, ChangeRequest(), begun=told.append))
    assert told == [now]
    assert first.token == now
