"""The hub: delivery of events, and ends of subscribers."""

from __future__ import annotations

import asyncio
import tracemalloc
from dataclasses import replace

import pytest
from bson import Decimal128

from revstream.streams.changefeed.event import ChangeEvent, EventBatch
from revstream.streams.changefeed.routing import Interest
from revstream.streams.core.errors import InexactKey, SlowConsumer, Unavailable
from revstream.streams.live.hub import EVENTS_PER_READ, Hub, HubOptions, Subscriber, publish_source
from tests.support.streams import batch, event, stop_task, token_at, turn

pytestmark = pytest.mark.timeout(10)


def hub_of(*collections: str, backlog: int = 100) -> Hub:
    options = HubOptions(backlog_events=backlog)
    return Hub(collections or ("things",), position=token_at(0), options=options)


async def backlog_tokens(subscriber: Subscriber) -> list[str]:
    """Return the tokens in the backlog without waiting for more."""
    return [each.token for each in await subscriber.next(0)]


async def test_publish_gives_each_collection_its_events() -> None:
    """A subscriber gets events of its own collection; collections outside the model are ignored."""
    hub = hub_of("things", "people")
    things, people = hub.attach("things"), hub.attach("people")
    hub.publish(
        batch(event(1), event(2, collection="people"), event(3, collection="unknown"), event(4))
    )
    assert await backlog_tokens(things) == [token_at(1), token_at(4)]
    assert await backlog_tokens(people) == [token_at(2)]
    assert hub.position == token_at(4)


async def test_the_ring_of_a_collection_can_be_emptied() -> None:
    """Resuming then needs the archive; attached subscribers and other collections continue."""
    hub = hub_of("things", "people")
    things = hub.attach("things")
    hub.publish(batch(event(1), event(2, collection="people")))
    hub.drop_events("things")
    assert hub.ring("things").items_after(token_at(1)) is None
    assert len(hub.ring("people")) == 1
    hub.publish(batch(event(3)))
    assert await backlog_tokens(things) == [token_at(1), token_at(3)]
    assert [each.token for each in hub.ring("things").items_after(token_at(2)) or ()] == [
        token_at(3)
    ]


async def test_publish_finds_the_subscriber_of_one_document() -> None:
    """Keys compare as in MongoDB: 1, 1.0 and Decimal128("1") are equal, 1 and true are not."""
    hub = hub_of()
    one, true, pair = (
        hub.attach("things", Interest(keys=(1,))),
        hub.attach("things", Interest(keys=(True,))),
        hub.attach("things", Interest(keys=({"a": 1},))),
    )
    hub.publish(
        batch(
            event(1, key=1.0),
            event(2, key=True),
            event(3, key={"a": 1}),
            event(4, key=2),
            event(5, key=Decimal128("1")),
        )
    )
    assert await backlog_tokens(one) == [token_at(1), token_at(5)]
    assert await backlog_tokens(true) == [token_at(2)]
    assert await backlog_tokens(pair) == [token_at(3)]


async def test_publish_sends_collection_events_to_every_subscriber() -> None:
    """A drop concerns the subscriber of one document too."""
    hub = hub_of()
    whole, one = hub.attach("things"), hub.attach("things", Interest(keys=(1,)))
    hub.publish(batch(event(1, operation="drop", key=None)))
    assert await backlog_tokens(whole) == await backlog_tokens(one) == [token_at(1)]


async def test_publish_sends_a_rename_to_both_collections() -> None:
    """One loses its documents; the other one's are replaced."""
    hub = hub_of("things", "people")
    things, people = hub.attach("things"), hub.attach("people", Interest(keys=(1,)))
    hub.publish(batch(event(1, operation="rename", key=None, renamed_to="people")))
    hub.publish(batch(event(2, operation="rename", key=None, collection="x", renamed_to="people")))
    hub.publish(batch(event(3, operation="rename", key=None, renamed_to="x")))
    assert await backlog_tokens(things) == [token_at(1), token_at(3)]
    assert await backlog_tokens(people) == [token_at(1), token_at(2)]
    ring = hub.ring("people").items_after(token_at(0))
    assert ring is not None
    assert [each.token for each in ring] == [token_at(1), token_at(2)]


async def test_publish_never_waits_for_a_subscriber_whose_backlog_is_full() -> None:
    """It ends with SLOW_CONSUMER after its backlog is read; the others miss nothing."""
    hub = hub_of(backlog=2)
    slow, quick = hub.attach("things"), hub.attach("things")
    received = []
    for seconds in (1, 2, 3, 4):
        hub.publish(batch(event(seconds)))
        received += await backlog_tokens(quick)
    assert received == [token_at(n) for n in (1, 2, 3, 4)]
    assert hub.statistics()["slow_consumers"] == 1
    assert hub.statistics()["subscribers"] == 1
    assert await backlog_tokens(slow) == [token_at(1), token_at(2)]
    with pytest.raises(SlowConsumer, match="backlog: 2 events, maximum is 2"):
        await slow.next()


async def test_a_batch_larger_than_the_backlog_ends_a_waiting_subscriber() -> None:
    """The limit holds within one batch too; the first events are received."""
    hub = hub_of(backlog=3)
    subscriber = hub.attach("things")
    waiting = asyncio.ensure_future(subscriber.next())
    await turn()
    hub.publish(batch(*(event(seconds) for seconds in range(1, 6))))
    assert [each.token for each in await waiting] == [token_at(n) for n in (1, 2, 3)]
    with pytest.raises(SlowConsumer):
        await subscriber.next()


async def test_a_backlog_is_bounded_in_bytes_too() -> None:
    """A single event of any size fits; events that were read free their bytes."""
    size = event(1).size_bytes
    most = 2 * size + size // 2
    hub = Hub(["things"], position=token_at(0), options=HubOptions(backlog_bytes=most))
    slow, quick = hub.attach("things"), hub.attach("things")
    for seconds in (1, 2, 3):
        hub.publish(batch(event(seconds)))
        assert await backlog_tokens(quick) == [token_at(seconds)]
    assert await backlog_tokens(slow) == [token_at(1), token_at(2)]
    with pytest.raises(SlowConsumer, match=f"backlog: {3 * size:,} bytes, maximum is {most:,}"):
        await slow.next()
    tiny = Hub(["things"], position=token_at(0), options=HubOptions(backlog_bytes=1))
    one = tiny.attach("things")
    tiny.publish(batch(event(1)))
    assert await backlog_tokens(one) == [token_at(1)]


async def test_a_backlog_is_read_in_portions() -> None:
    """Portions are in order and complete.

    A subscriber holds the results of one portion at a time.
    """
    hub = hub_of(backlog=1000)
    subscriber = hub.attach("things")
    hub.publish(batch(*(event(seconds) for seconds in range(1, 2 * EVENTS_PER_READ + 51))))
    portions = [await backlog_tokens(subscriber) for _ in range(3)]
    assert [len(each) for each in portions] == [EVENTS_PER_READ, EVENTS_PER_READ, 50]
    assert [token for each in portions for token in each] == [
        token_at(n) for n in range(1, 2 * EVENTS_PER_READ + 51)
    ]


async def test_restart_ends_subscribers_and_empties_the_rings() -> None:
    """The new position does not continue the old one."""
    hub = hub_of()
    subscriber, waiting = hub.attach("things"), hub.attach("things", Interest(keys=(7,)))
    waits = asyncio.ensure_future(waiting.next())
    await turn()
    hub.publish(batch(event(1)))
    hub.restart(token_at(9))
    assert await backlog_tokens(subscriber) == [token_at(1)]
    with pytest.raises(Unavailable):
        await subscriber.next()
    with pytest.raises(Unavailable):
        await waits
    assert hub.ring("things").items_after(token_at(1)) is None
    assert hub.ring("things").items_after(token_at(9)) == []
    assert hub.statistics()["subscribers"] == 0


async def test_a_closed_subscriber_receives_nothing_and_leaves_no_trace() -> None:
    """Closing is repeatable."""
    hub = hub_of()
    subscriber = hub.attach("things", Interest(keys=({"a": 1},)))
    subscriber.close()
    subscriber.close()
    hub.publish(batch(event(1, key={"a": 1})))
    assert await backlog_tokens(subscriber) == []
    assert hub.statistics()["subscribers"] == 0


async def test_next_loses_nothing_when_it_is_cancelled() -> None:
    """Events stay in the backlog until they are returned."""
    hub = hub_of()
    subscriber = hub.attach("things")
    waiting = asyncio.ensure_future(subscriber.next())
    await turn()
    hub.publish(batch(event(1)))
    await stop_task(waiting)
    assert await backlog_tokens(subscriber) == [token_at(1)]


async def test_next_returns_nothing_after_its_time() -> None:
    """The empty result means that no event arrived; later events are received."""
    hub = hub_of()
    subscriber = hub.attach("things")
    assert await subscriber.next(0.001) == ()
    hub.publish(batch(event(1)))
    assert await backlog_tokens(subscriber) == [token_at(1)]


async def test_wait_until_returns_once_a_token_is_published() -> None:
    """An empty batch moves the position as well, and an older token returns at once."""
    hub = hub_of()
    waiting = asyncio.ensure_future(hub.wait_until(token_at(2)))
    hub.publish(batch(event(1)))
    await turn()
    await turn()
    assert not waiting.done()
    hub.publish(EventBatch((), token_at(3)))
    await waiting
    await hub.wait_until(token_at(2))


async def test_wait_until_returns_when_the_hub_restarts_after_it() -> None:
    """A restart moves the position as a batch does."""
    hub = hub_of()
    waiting = asyncio.ensure_future(hub.wait_until(token_at(2)))
    await turn()
    hub.restart(token_at(3))
    await waiting


async def test_statistics_count_waiting_events() -> None:
    """The deepest backlog is reported."""
    hub = hub_of()
    hub.attach("things")
    hub.publish(batch(event(1), event(2)))
    hub.attach("things", Interest(keys=(5,)))
    found = hub.statistics()
    assert (found["subscribers"], found["deepest_backlog"]) == (2, 2)
    assert (found["published"], found["ring_events"]) == (2, 2)
    assert found["ring_bytes"] > 0


async def test_statistics_of_a_collection_exclude_the_others() -> None:
    """The sum is over all collections."""
    hub = hub_of("things", "people", backlog=1)
    hub.attach("things")
    hub.attach("people", Interest(keys=(1,)))
    hub.publish(batch(event(1), event(2), event(3, collection="people")))
    things, people = hub.statistics("things"), hub.statistics("people")
    assert (things["published"], things["slow_consumers"], things["subscribers"]) == (2, 1, 0)
    assert (people["published"], people["slow_consumers"], people["subscribers"]) == (1, 0, 1)
    assert (things["deepest_backlog"], people["deepest_backlog"]) == (0, 1)
    assert hub.statistics()["ring_events"] == 3


async def test_follow_publishes_from_the_hubs_position() -> None:
    """The source starts after the hub's position."""
    starts: list[str] = []

    class Script:
        async def batches(self, after: str):  # type: ignore[no-untyped-def]
            starts.append(after)
            yield batch(event(1))
            yield EventBatch((), token_at(2))
            raise Unavailable("the script ends")

    hub = hub_of()
    subscriber = hub.attach("things")
    with pytest.raises(Unavailable, match="the script ends"):
        await publish_source(Script(), hub)  # type: ignore[arg-type]
    assert starts == [token_at(0)]
    assert hub.position == token_at(2)
    assert await backlog_tokens(subscriber) == [token_at(1)]


async def test_an_event_that_becomes_no_version_is_only_in_the_ring() -> None:
    """The recorder takes it from the ring; subscribers do not get it."""

    class Script:
        async def batches(self, after: str):  # type: ignore[no-untyped-def]
            yield batch(replace(event(1), fault=InexactKey("bytes that drivers change")), event(2))
            raise Unavailable("the script ends")

    hub = hub_of()
    subscriber = hub.attach("things")
    with pytest.raises(Unavailable, match="the script ends"):
        await publish_source(Script(), hub)  # type: ignore[arg-type]
    assert await backlog_tokens(subscriber) == [token_at(2)]
    ring = hub.ring("things").items_after(token_at(0)) or ()
    assert [each.token for each in ring] == [token_at(1), token_at(2)]


def test_deletions_are_kept_without_the_ids() -> None:
    """Ids may be of any length, and their bytes are not counted."""
    hub = Hub(["things"], position=token_at(0), options=HubOptions(ring_events=1))
    tracemalloc.start()
    try:
        for n in range(200):
            key = {"n": n, "text": f"{n}" * 50_000}
            hub.publish(batch(event(n + 1, key=key, operation="delete")))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(hub.deletions("things")) == 200
    assert held < 2_000_000


def test_an_event_is_shared_not_copied() -> None:
    """All receivers get the same object: it is decoded once for all."""
    hub = hub_of()
    one, other = hub.attach("things"), hub.attach("things", Interest(keys=(1,)))
    sent: ChangeEvent = event(1, after={"_id": 1})
    hub.publish(batch(sent))
    assert one._backlog[0] is other._backlog[0] is sent
