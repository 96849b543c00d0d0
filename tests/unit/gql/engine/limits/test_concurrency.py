"""Concurrency limiter: slots, turns of callers, and the time limit of an operation."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest
from graphql import parse
from hypothesis import given, settings
from hypothesis import strategies as st

from revstream.gql.engine.limits.concurrency import ConcurrencyLimiter
from revstream.gql.engine.limits.schema_only import operation_asks_schema_only
from revstream.resolvers.errors import LimitExceeded
from revstream.streams.core.errors import TimeLimit, Unavailable
from revstream.streams.core.operation import execution_suspended
from tests.support.eventually import eventually
from tests.support.exhaustive import examples


async def hold(limiter: ConcurrencyLimiter, caller: str = "") -> None:
    async with limiter.slot(caller):
        pass


async def test_operations_without_a_slot_wait_in_order() -> None:
    """None overtakes another."""
    limiter = ConcurrencyLimiter(executing=1, waiting=3)
    done: list[int] = []

    async def execute(number: int) -> None:
        async with limiter.slot(""):
            assert limiter.executing == 1
            done.append(number)

    async with limiter.slot(""):
        tasks = [asyncio.create_task(execute(n)) for n in range(3)]
        await eventually(lambda: limiter.waiting == 3)
    await asyncio.gather(*tasks)
    assert done == [0, 1, 2]
    assert (limiter.executing, limiter.waiting, limiter.shed) == (0, 0, 0)


async def test_waiting_callers_take_turns() -> None:
    """The number of operations that one of them has sent before does not matter."""
    limiter = ConcurrencyLimiter(executing=1)
    done: list[str] = []

    async def execute(caller: str) -> None:
        async with limiter.slot(caller):
            done.append(caller)

    async with limiter.slot("ann"):
        tasks = [asyncio.create_task(execute(each)) for each in ("ann", "ann", "ann", "", "bob")]
        await eventually(lambda: limiter.waiting == 5)
    await asyncio.gather(*tasks)
    assert done == ["ann", "", "bob", "ann", "ann"]


async def test_one_caller_holds_half_of_the_slots() -> None:
    """The other slots are free for other callers at once."""
    limiter = ConcurrencyLimiter(executing=4)
    async with AsyncExitStack() as slots:
        for _ in range(2):
            await slots.enter_async_context(limiter.slot("ann"))
        third = asyncio.create_task(hold(limiter, "ann"))
        await eventually(lambda: limiter.waiting == 1)
        async with asyncio.timeout(5):
            await hold(limiter, "bob")
            await hold(limiter)
        assert not third.done()
    await third
    assert (limiter.executing, limiter.waiting) == (0, 0)


async def test_an_operation_beyond_the_queue_is_refused_at_once() -> None:
    """The error has `Retry-After`, and the operation leaves no trace."""
    limiter = ConcurrencyLimiter(executing=1, waiting=1)
    async with limiter.slot(""):
        waiting = asyncio.create_task(hold(limiter))
        await eventually(lambda: limiter.waiting == 1)
        with pytest.raises(Unavailable, match="waiting operations: 1, maximum is 1") as refused:
            await hold(limiter)
        assert refused.value.facts == {"retryAfterSeconds": 1}
        assert limiter.shed == 1
    await waiting
    await hold(limiter)


async def test_a_full_queue_refuses_the_newest_operation_of_its_largest_caller() -> None:
    """This happens once another caller arrives."""
    limiter = ConcurrencyLimiter(executing=1, waiting=3)
    async with limiter.slot("ann"):
        filling = [asyncio.create_task(hold(limiter, "ann")) for _ in range(3)]
        await eventually(lambda: limiter.waiting == 3)
        other = asyncio.create_task(hold(limiter, "bob"))
        with pytest.raises(Unavailable):
            await filling[-1]
        with pytest.raises(Unavailable):
            await hold(limiter, "ann")
    await asyncio.gather(other, *filling[:-1])
    assert (limiter.executing, limiter.waiting, limiter.shed) == (0, 0, 2)


async def test_a_cancelled_waiting_operation_leaves_its_place_to_others() -> None:
    """The client has disconnected."""
    limiter = ConcurrencyLimiter(executing=1, waiting=1)
    async with limiter.slot(""):
        gone = asyncio.create_task(hold(limiter))
        await eventually(lambda: limiter.waiting == 1)
        gone.cancel()
        await asyncio.wait([gone])
        assert limiter.waiting == 0
    await hold(limiter)
    assert limiter.executing == 0


async def test_an_operation_that_takes_too_long_is_cancelled() -> None:
    """Its awaited call is cancelled, and its slot is free again."""
    limiter = ConcurrencyLimiter(executing=1, waiting=1, limit_s=0.01)
    with pytest.raises(TimeLimit, match=r"more than 0\.01 s"):
        async with limiter.slot(""):
            await asyncio.Event().wait()
    with pytest.raises(TimeLimit):
        # Waiting for a slot counts, too.
        async with limiter.slot(""), limiter.slot(""):
            pass
    assert (limiter.executing, limiter.waiting) == (0, 0)


async def test_a_timeout_from_elsewhere_is_raised_unchanged() -> None:
    """It is not the limiter's own."""
    limiter = ConcurrencyLimiter()
    with pytest.raises(TimeoutError, match="another"):
        async with limiter.slot(""):
            raise TimeoutError("another")


async def test_an_operation_cancelled_at_its_turn_passes_its_slot_on() -> None:
    """It had received the slot, and was cancelled before it ran."""
    limiter = ConcurrencyLimiter(executing=1, waiting=2)
    async with limiter.slot(""):
        gone, following = (asyncio.create_task(hold(limiter)) for _ in range(2))
        await eventually(lambda: limiter.waiting == 2)
    gone.cancel()
    await asyncio.wait([gone, following])
    assert gone.cancelled()
    assert not following.cancelled()
    assert (limiter.executing, limiter.waiting) == (0, 0)


async def test_without_limits_no_operation_waits() -> None:
    """0 disables a limit."""
    limiter = ConcurrencyLimiter(executing=0, waiting=0, per_principal=0)
    async with AsyncExitStack() as slots:
        for _ in range(2000):
            await slots.enter_async_context(limiter.slot("ann"))
            limiter.begin("ann")
        assert (limiter.executing, limiter.waiting) == (2000, 0)


async def test_an_operation_that_waits_for_the_archive_holds_no_slot() -> None:
    """It takes another slot in the end, after those that are executing by then."""
    limiter = ConcurrencyLimiter(executing=1)
    reached, done = asyncio.Event(), []

    async def wait() -> None:
        async with limiter.slot("ann"):
            async with execution_suspended():
                await reached.wait()
            done.append(limiter.executing)

    waiting = [asyncio.create_task(wait()) for _ in range(5)]
    await eventually(lambda: limiter.suspended == 5)
    assert limiter.executing == 0
    async with limiter.slot("bob"):
        reached.set()
        await eventually(lambda: limiter.waiting == 5)
        assert done == []
    await asyncio.gather(*waiting)
    assert done == [1] * 5
    assert (limiter.executing, limiter.waiting, limiter.suspended) == (0, 0, 0)


async def test_several_fields_of_an_operation_may_wait_at_once() -> None:
    """It executes again once none of them waits; a failed one does not affect the others."""
    limiter = ConcurrencyLimiter(executing=1)
    events = [asyncio.Event() for _ in range(3)]

    async def wait(event: asyncio.Event) -> None:
        async with execution_suspended():
            await event.wait()
            if event is events[0]:
                raise LookupError

    async with limiter.slot("ann"):
        tasks = [asyncio.create_task(wait(each)) for each in events]
        await eventually(lambda: limiter.executing == 0)
        assert limiter.suspended == 1
        for event, task in zip(events, tasks, strict=True):
            assert limiter.executing == 0
            event.set()
            await asyncio.wait([task])
        assert (limiter.executing, limiter.suspended) == (1, 0)
        assert [type(each.exception()) for each in tasks] == [LookupError, type(None), type(None)]
    assert limiter.executing == 0


async def test_the_number_of_operations_waiting_for_the_archive_is_limited() -> None:
    """One caller may have half of them; a further one is refused and keeps its slot."""
    limiter = ConcurrencyLimiter(executing=0, suspended=4)
    reached = asyncio.Event()

    async def wait(caller: str) -> None:
        async with limiter.slot(caller), execution_suspended():
            await reached.wait()

    waiting = [asyncio.create_task(wait(each)) for each in ("ann", "ann", "bob")]
    await eventually(lambda: limiter.suspended == 3)
    with pytest.raises(Unavailable, match="that wait for data: 2, maximum is 2"):
        await wait("ann")
    waiting.append(asyncio.create_task(wait("")))
    await eventually(lambda: limiter.suspended == 4)
    with pytest.raises(Unavailable):
        await wait("carl")
    reached.set()
    await asyncio.gather(*waiting)
    assert (limiter.executing, limiter.suspended, limiter.shed) == (0, 0, 2)


def test_an_authenticated_caller_has_a_limit_of_operations() -> None:
    """Each caller is counted by itself.

    A refused operation takes no place, and anonymous callers are not counted.
    """
    limiter = ConcurrencyLimiter(per_principal=2)
    for each in ("ann", "ann", "bob", "", "", ""):
        limiter.begin(each)
    for _ in range(2):
        with pytest.raises(LimitExceeded, match="operations of ann at once: 3,") as refused:
            limiter.begin("ann")
        assert refused.value.facts["bound"] == 2
    limiter.begin("bob")
    for each in ("ann", "", "ann"):
        limiter.end(each)
    for _ in range(2):
        limiter.begin("ann")


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "suspend", "go on", "end", "cancel", "away", "back"]),
        st.integers(0, 11),
    ),
    max_size=60,
)


@given(steps=STEPS)
@settings(max_examples=examples(50), deadline=None)
def test_slots_are_neither_lost_nor_doubled(steps: list[tuple[str, int]]) -> None:
    """Twelve operations of three callers begin, wait, continue, end and are cancelled."""
    asyncio.run(_drawn(steps))


async def _drawn(steps: list[tuple[str, int]]) -> None:
    limiter = ConcurrencyLimiter(executing=3, waiting=4, suspended=4)
    holding: Counter[str] = Counter()
    operations: dict[int, Any] = {}

    async def operate(caller: str, orders: asyncio.Queue[str]) -> None:
        async with limiter.slot(caller):
            holding[caller] += 1
            try:
                while (order := await orders.get()) != "end":
                    if order != "suspend":
                        continue
                    holding[caller] -= 1
                    try:
                        async with execution_suspended():
                            while await orders.get() not in ("go on", "end"):
                                pass
                    finally:
                        holding[caller] += 1
            finally:
                holding[caller] -= 1

    for step, number in steps:
        task, orders = operations.get(number, (None, asyncio.Queue()))
        if step == "begin" and (task is None or task.done()):
            orders = asyncio.Queue()
            task = asyncio.create_task(operate("abc"[number % 3], orders))
            operations[number] = task, orders
        elif step in ("away", "back"):
            limiter.interrupt("it is off" if step == "away" else None)
        elif step == "cancel" and task is not None:
            task.cancel()
        elif task is not None:
            orders.put_nowait(step)
        for _ in range(6):
            await asyncio.sleep(0)
        assert limiter.executing <= 3
        assert all(count <= 2 for count in holding.values())
        assert limiter.executing == holding.total()
    for task, _ in operations.values():
        task.cancel()
    if operations:
        await asyncio.wait([task for task, _ in operations.values()])
    assert (limiter.executing, limiter.waiting, limiter.suspended) == (0, 0, 0)


async def test_operations_end_with_the_database_and_new_ones_are_refused() -> None:
    """They execute, wait for a slot or for the archive.

    New ones are refused until the database is back.
    """
    limiter = ConcurrencyLimiter(executing=2)

    async def operate(*, suspends: bool = False) -> None:
        async with limiter.slot("ann"):
            if suspends:
                async with execution_suspended():
                    await asyncio.Event().wait()
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(operate(suspends=n == 0)) for n in range(4)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert (limiter.executing, limiter.waiting, limiter.suspended) == (1, 2, 1)
    limiter.interrupt("nobody answers")
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, Unavailable)
        assert "nobody answers" in outcome.message
    with pytest.raises(Unavailable, match="nobody answers"):
        await operate()
    assert (limiter.executing, limiter.waiting, limiter.suspended) == (0, 0, 0)
    limiter.interrupt(None)
    async with limiter.slot("ann"):
        assert limiter.executing == 1


@pytest.mark.parametrize(
    ("text", "only"),
    [
        ("{ __typename }", True),
        (
            'query A { ...F ... { __type(name: "A") { name } } } fragment F on Query { __schema }',
            True,
        ),
        ("query A { ...F } fragment F on Query { ...F }", True),
        ("{ __typename product }", False),
        ("query A { ...F } fragment F on Query { a: product }", False),
        ("query A { ...G }", False),
        ("mutation { __typename }", False),
        ("subscription { __typename }", False),
    ],
)
def test_operations_on_the_schema_alone_are_recognized(text: str, only: bool) -> None:
    """Fragments are followed."""
    document = parse(text)
    assert operation_asks_schema_only(document, None) is only
    assert operation_asks_schema_only(document, "A") is (only and "query A" in text)
    assert not operation_asks_schema_only(parse("query A { __typename } query B { a }"), None)
    assert operation_asks_schema_only(parse("query A { __typename } query B { a }"), "A")
