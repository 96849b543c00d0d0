"""Waiting for the archive: with the recorder in this process, in another one, or in none."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from bson import Timestamp

from revstream.streams.changefeed.event import ChangeEvent, EventBatch
from revstream.streams.coordination.checkpoint import Checkpoint
from revstream.streams.coordination.partition import Partition, collection_partitions
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind, Unavailable
from revstream.streams.live import hub as hub_module
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import Hub, HubOptions
from tests.support.streams import batch, event, stop_task, token_at, turn

NAME = "things"
WHOLE = Partition(NAME)


class Stored:
    """Checkpoints as another process saves them."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token
        self.reads = 0
        self.answers = asyncio.Event()
        self.answers.set()

    async def load_collection(self, collection: str) -> dict[Partition, Checkpoint]:
        self.reads += 1
        await self.answers.wait()
        assert collection == NAME
        return {} if self.token is None else {WHOLE: Checkpoint(self.token, token_at(0))}


def progress_of(stored: Stored, hub: Hub | None = None, limit_s: float = 10) -> ArchiveProgress:
    hub = hub or Hub([NAME], position=token_at(0))
    return ArchiveProgress(
        stored,  # type: ignore[arg-type]
        hub,
        limit_s=limit_s,
        poll_s=0.001,
    )


async def test_a_recorder_in_this_process_reports_its_position() -> None:
    """The database is not read, and waiting readers are woken."""
    stored = Stored()
    progress = progress_of(stored)
    progress.advance(WHOLE, token_at(5))
    assert await progress.position(NAME) == token_at(5)
    waiting = asyncio.ensure_future(progress.wait(NAME, token_at(7)))
    await turn()
    progress.advance(WHOLE, token_at(6))
    await turn()
    assert not waiting.done()
    progress.advance(WHOLE, token_at(7))
    await waiting
    assert stored.reads == 0


async def test_a_position_never_moves_back() -> None:
    """A recorder that restarts from an older position has not lost archived events."""
    progress = progress_of(Stored())
    progress.advance(WHOLE, token_at(5))
    progress.advance(WHOLE, token_at(3))
    assert await progress.position(NAME) == token_at(5)


async def test_a_recorder_in_another_process_is_followed_by_its_checkpoint() -> None:
    """The wait ends once the checkpoint is far enough."""
    stored = Stored(token_at(5))
    progress = progress_of(stored)
    assert await progress.position(NAME) == token_at(5)
    await progress.wait(NAME, token_at(5))
    waiting = asyncio.ensure_future(progress.wait(NAME, token_at(7)))
    stored.token = token_at(8)
    await waiting
    assert await progress.position(NAME) == token_at(8)


async def test_an_idle_recorder_elsewhere_is_known_to_be_done_by_the_live_stream() -> None:
    """Its checkpoint is seldom saved, but no event happened between it and the time point."""
    hub = Hub([NAME], position=token_at(0))
    stored = Stored(token_at(5))
    progress = progress_of(stored, hub)
    hub.publish(batch(event(5)))
    hub.publish(EventBatch((), resume_tokens.token_from_time(Timestamp(9, 1))))
    await progress.wait(NAME, token_at(9))
    # The event after it is not archived yet.
    hub.publish(batch(event(10)))
    with pytest.raises(ArchiveBehind):
        await progress.wait(NAME, token_at(10), limit_s=0.01)
    # Nothing follows if the ring does not reach back to the checkpoint.
    late = progress_of(Stored(token_at(5)), Hub([NAME], position=token_at(8)))
    late._hub.publish(EventBatch((), token_at(9)))
    with pytest.raises(ArchiveBehind):
        await late.wait(NAME, token_at(9), limit_s=0.01)
    # The same holds if this process has not reached the time point itself.
    behind = progress_of(Stored(token_at(5)), Hub([NAME], position=token_at(5)))
    with pytest.raises(ArchiveBehind):
        await behind.wait(NAME, token_at(9), limit_s=0.01)


async def test_a_wait_continues_with_the_next_recorders_checkpoint() -> None:
    """The lease has moved to another process meanwhile."""
    stored = Stored()
    progress = progress_of(stored)
    progress.advance(WHOLE, token_at(5))
    waiting = asyncio.ensure_future(progress.wait(NAME, token_at(7)))
    await turn()
    stored.token = token_at(7)
    progress.remove_recorder(WHOLE)
    await waiting


async def test_an_archive_that_is_late_is_an_error_with_its_lag() -> None:
    """The error names both times."""
    progress = progress_of(Stored(token_at(5)), limit_s=0.01)
    with pytest.raises(ArchiveBehind, match="recorded up to 1970-01-01 00:00:05Z") as caught:
        await progress.wait(NAME, token_at(65))
    assert caught.value.extensions == {
        "code": "ARCHIVE_BEHIND",
        "collection": NAME,
        "lagSeconds": 60.0,
    }
    local = progress_of(Stored(), limit_s=0.01)
    local.advance(WHOLE, token_at(5))
    with pytest.raises(ArchiveBehind, match="expected 1970-01-01 00:01:05Z"):
        await local.wait(NAME, token_at(65))


async def test_an_archive_without_any_recorder_is_an_error_with_a_fix() -> None:
    """The error says how to start recording, and has no lag."""
    with pytest.raises(ArchiveBehind, match="archive of things: empty"):
        await progress_of(Stored(), limit_s=0.01).wait(NAME, token_at(5))


async def test_concurrent_requests_share_one_read() -> None:
    """The first caller may be cancelled; later calls read again."""
    stored = Stored(token_at(5))
    stored.answers.clear()
    progress = progress_of(stored)
    first, *others = [asyncio.ensure_future(progress.position(NAME)) for _ in range(50)]
    await turn()
    await stop_task(first)
    stored.answers.set()
    assert await asyncio.gather(*others) == [token_at(5)] * 49
    assert stored.reads == 1
    assert await progress.position(NAME) == token_at(5)
    assert stored.reads == 2


async def test_a_read_that_fails_fails_only_for_the_calls_that_share_it() -> None:
    """The next call reads again."""

    class Failing(Stored):
        async def load_collection(self, collection: str) -> dict[Partition, Checkpoint]:
            found = await super().load_collection(collection)
            if self.reads == 1:
                raise Unavailable("gone")
            return found

    progress = progress_of(Failing(token_at(5)))
    results = await asyncio.gather(
        *(progress.position(NAME) for _ in range(3)), return_exceptions=True
    )
    assert [type(each) for each in results] == [Unavailable] * 3
    assert await progress.position(NAME) == token_at(5)


async def test_the_lag_is_the_age_of_the_oldest_waiting_change() -> None:
    """Without waiting changes it is 0.

    If the ring is too short, it is the age of the position, which is larger.
    """
    hub = Hub([NAME], position=token_at(0), options=HubOptions(ring_events=2))
    progress = progress_of(Stored(), hub)
    assert progress.lag_s(WHOLE) == 0.0
    hub.publish(batch(event(5), event(6)))
    progress.advance(WHOLE, token_at(5))
    age_s = (datetime.now(UTC) - event(6).wall) / timedelta(seconds=1)
    assert progress.lag_s(WHOLE) == pytest.approx(age_s, abs=5)
    progress.advance(WHOLE, token_at(6))
    assert progress.lag_s(WHOLE) == 0.0
    hub.publish(batch(event(7), event(8), event(9)))
    age_s = (datetime.now(UTC) - datetime.fromtimestamp(6, UTC)) / timedelta(seconds=1)
    assert progress.lag_s(WHOLE) == pytest.approx(age_s, abs=5)


async def test_the_lag_of_an_older_position_is_its_age() -> None:
    """Events before the start of this process are unknown; those after it are known."""
    now = int(datetime.now(UTC).timestamp())
    hub = Hub([NAME], position=token_at(now - 10))
    progress = progress_of(Stored(), hub)
    # No position is known yet.
    assert progress.lag_s(WHOLE) == 0.0
    progress.advance(WHOLE, token_at(now - 600))
    assert progress.lag_s(WHOLE) == pytest.approx(600, abs=5)
    assert progress.lag_after_s(NAME, token_at(now - 300)) == pytest.approx(300, abs=5)
    assert progress.lag_after_s(NAME, resume_tokens.BEGINNING) == 0.0
    progress.advance(WHOLE, token_at(now - 10))
    assert progress.lag_s(WHOLE) == 0.0
    assert progress.lag_after_s(NAME, token_at(now - 9)) == 0.0


async def test_the_lag_while_the_live_stream_is_silent_is_the_silence() -> None:
    """Events of that time are not seen, and a lag of 0 would deny them."""
    now = int(datetime.now(UTC).timestamp())
    hub = Hub([NAME], position=token_at(now - 60))
    progress = progress_of(Stored(), hub)
    progress.advance(WHOLE, token_at(now - 60))
    hub.moved_at -= 50
    # Without a recorder, the silence proves nothing.
    assert progress.lag_s(WHOLE) == 0.0
    hub.start_following()
    assert progress.lag_s(WHOLE) == 0.0
    hub.moved_at -= 50
    assert progress.lag_s(WHOLE) == pytest.approx(50, abs=5)
    # A recorder with a stream of its own is further.
    progress.advance(WHOLE, token_at(now - 20))
    assert progress.lag_s(WHOLE) == pytest.approx(20, abs=5)


PARTS = collection_partitions(NAME, 3)
# For each partition, the `_id` of a document in it.
KEYS = {part: next(n for n in range(99) if part.contains(n)) for part in PARTS}


class StoredParts:
    """Checkpoints of a partitioned collection."""

    def __init__(self, *tokens_: str, others: dict[Partition, str] | None = None) -> None:
        self.tokens = dict(zip(PARTS, tokens_, strict=False)) | (others or {})

    async def load_collection(self, collection: str) -> dict[Partition, Checkpoint]:
        return {part: Checkpoint(token, token_at(0)) for part, token in self.tokens.items()}


async def test_a_collection_is_archived_up_to_the_last_of_its_partitions() -> None:
    """The recorders may be in this process, in others, or in both."""
    here = progress_of(StoredParts())  # type: ignore[arg-type]
    for n, part in enumerate(PARTS):
        here.advance(part, token_at(5 + n))
    assert await here.position(NAME) == token_at(5)
    elsewhere = progress_of(StoredParts(token_at(7), token_at(4), token_at(9)))  # type: ignore[arg-type]
    assert await elsewhere.position(NAME) == token_at(4)
    elsewhere.advance(PARTS[1], token_at(8))
    assert await elsewhere.position(NAME) == token_at(7)
    elsewhere.remove_recorder(PARTS[1])
    assert await elsewhere.position(NAME) == token_at(7)


async def test_a_collection_has_no_position_while_a_partition_has_no_checkpoint() -> None:
    """Records of that partition may be missing."""
    progress = progress_of(StoredParts(token_at(7), token_at(4)))  # type: ignore[arg-type]
    assert await progress.position(NAME) == ""
    assert await progress.checkpoint(NAME) is None


async def test_checkpoints_of_an_earlier_partitioning_count_while_they_are_further() -> None:
    """They are ignored once the current ones are further."""
    stored = StoredParts(token_at(3), token_at(4), others={WHOLE: token_at(6)})
    progress = progress_of(stored)  # type: ignore[arg-type]
    assert await progress.position(NAME) == token_at(6)
    stored.tokens = dict.fromkeys(PARTS, token_at(8)) | {WHOLE: token_at(6)}
    assert await progress.position(NAME) == token_at(8)
    checkpoint = await progress.checkpoint(NAME)
    assert checkpoint is not None
    assert checkpoint.token == token_at(8)


async def test_events_are_archived_by_the_partition_that_they_concern() -> None:
    """Two events are archived although the third partition is late; its own event is not."""
    one, two, three = PARTS
    hub = Hub([NAME], position=token_at(0))
    progress = progress_of(StoredParts(token_at(5), token_at(6), token_at(1)), hub)  # type: ignore[arg-type]
    hub.publish(batch(event(5, key=KEYS[one]), event(6, key=KEYS[two]), event(7, key=KEYS[three])))
    await progress.wait(NAME, token_at(6))
    assert await progress.position(NAME) == token_at(6)
    with pytest.raises(ArchiveBehind):
        await progress.wait(NAME, token_at(7), limit_s=0.01)
    assert [progress.lag_s(part) > 0 for part in PARTS] == [False, False, True]


async def test_a_collection_event_is_archived_once_all_partitions_have_it() -> None:
    """Each partition deletes its own documents."""
    hub = Hub([NAME], position=token_at(0))
    stored = StoredParts(token_at(9), token_at(9), token_at(4))
    progress = progress_of(stored, hub)  # type: ignore[arg-type]
    hub.publish(batch(event(5, operation="drop", key=None), event(6, key=KEYS[PARTS[0]])))
    with pytest.raises(ArchiveBehind):
        await progress.wait(NAME, token_at(6), limit_s=0.01)
    stored.tokens[PARTS[2]] = resume_tokens.token_after_event(token_at(5))
    await progress.wait(NAME, token_at(6))


async def test_a_slow_read_of_the_checkpoint_is_repeated() -> None:
    """The time limit has passed meanwhile, but the recorder has arrived."""

    class Slow(Stored):
        async def load_collection(self, collection: str) -> dict[Partition, Checkpoint]:
            found = await super().load_collection(collection)
            if self.reads == 1:
                await asyncio.sleep(0.02)
                self.token = token_at(7)
            return found

    await progress_of(Slow(token_at(5)), limit_s=0.01).wait(NAME, token_at(7))


async def test_a_wait_ends_with_the_last_partition() -> None:
    """The recorders are in this process; a stopped one has no position any more."""
    progress = progress_of(Stored())
    one, other = collection_partitions(NAME, 2)
    for each in (one, other):
        progress.advance(each, token_at(5))
    waiting = asyncio.ensure_future(progress.wait(NAME, token_at(6)))
    await turn()
    progress.advance(one, token_at(6))
    await turn()
    assert not waiting.done()
    assert await progress.position(NAME) == token_at(5)
    progress.advance(other, token_at(7))
    await waiting
    progress.remove_recorder(one)
    with pytest.raises(ArchiveBehind):
        await progress.wait(NAME, token_at(7), limit_s=0.01)


@pytest.mark.parametrize(
    ("brought", "waits"),
    [
        ((event(6, operation="insert"), event(7, key=2, operation="delete")), False),
        ((event(6, operation="delete"), event(7, operation="insert")), True),
        ((event(6, operation="drop", key=None), event(7)), True),
        # More deletions than are kept in memory.
        (tuple(event(6, key=n, operation="delete", count=n) for n in range(2, 6)), True),
    ],
    ids=["none of it", "of it", "of all", "too many"],
)
async def test_a_wait_for_deletions_is_for_those_of_the_documents(
    brought: tuple[ChangeEvent, ...], waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the stream cannot tell, it waits as well.

    Other events do not matter, however late the archive is.
    """
    monkeypatch.setattr(hub_module, "_DELETIONS", 2)
    hub = Hub([NAME], position=token_at(5), options=HubOptions(ring_events=1))
    progress = progress_of(Stored(token_at(5)), hub)
    waiting = asyncio.ensure_future(progress.wait_deletions(NAME, token_at(8), [1, "x"]))
    hub.publish(EventBatch(brought, token_at(7, 9)))
    await turn()
    assert not waiting.done()
    hub.publish(EventBatch((), token_at(8)))
    if waits:
        progress.advance(WHOLE, token_at(7))
        for _ in range(5):
            await turn()
        assert not waiting.done()
        progress.advance(WHOLE, token_at(8))
    await asyncio.wait_for(waiting, 5)


async def test_a_wait_for_deletions_is_bounded_and_needs_a_recorder() -> None:
    """A silent stream is not awaited for longer than the archive."""
    progress = progress_of(Stored(token_at(5)), limit_s=0.05)
    with pytest.raises(ArchiveBehind, match=r"wait of 0\.05 s"):
        await progress.wait_deletions(NAME, token_at(8), [1])
    await progress_of(Stored()).wait_deletions(NAME, token_at(8), [1])
