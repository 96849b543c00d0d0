"""Broadcast group: each target gets all events after its token, once and in order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest
import strawberry
from graphql import parse
from hypothesis import given
from hypothesis import strategies as st

from revstream.gql.engine.execution.executor import Executor
from revstream.gql.engine.request.plan import Plans
from revstream.gql.schema.roots.subscription_key import group_key
from revstream.gql.subscriptions.broadcast_group import (
    BroadcastGroup,
    BroadcastGroups,
    clear_recent_events,
)
from revstream.gql.subscriptions.broadcast_message import BroadcastMessage
from revstream.streams.core.errors import SlowConsumer, Unavailable
from tests.support.reads import Memory
from tests.support.streams import turn


class Target:
    """A target; `most` is the number of events that it accepts."""

    own = b"id "

    def __init__(self, most: int = 1000, kind: str = "socket") -> None:
        self.kind = kind
        self.hearing: Callable[[], object] = lambda: None
        self.token = ""
        self.heard: list[bytes] = []
        self.writes = 0
        self.most = most
        self.writer = self

    def around(self, payload: bytes, shown: str) -> tuple[bytes, bytes]:
        return self.kind.encode() + b": ", payload + b"\n"

    def write(self, frame: bytes) -> bool:
        if len(self.heard) >= self.most:
            return False
        self.hearing()
        self.writes += 1
        begins = self.kind.encode() + b": " + self.own
        for line in frame.splitlines():
            assert line.startswith(begins)
            self.heard.append(line.removeprefix(begins))
        return True


class Stage:
    """Events of the group's leaders; `led` has the tokens after which they began."""

    def __init__(self) -> None:
        self.delivered = 0
        self.led: list[str] = []
        self.left = 0
        self.events: asyncio.Queue[list[BroadcastMessage] | Exception] = asyncio.Queue()
        self.group = BroadcastGroup(self.count)
        self.group.held = 10

    def count(self, members: int) -> None:
        self.delivered += members

    async def checkpoint(self, token: str) -> BroadcastMessage:
        return BroadcastMessage(token, b"!" + token.encode(), shown=token, counts=False)

    async def events_after(self, position: str) -> AsyncGenerator[Sequence[BroadcastMessage]]:
        self.led.append(position)
        try:
            yield [await self.checkpoint(position)]
            while True:
                each = await self.events.get()
                if isinstance(each, Exception):
                    raise each
                yield each
        finally:
            self.left += 1

    def send(self, *tokens: str) -> None:
        """Send one event after the other."""
        for each in tokens:
            self.send_together(each)

    def send_together(self, *tokens: str, size: int = 1) -> None:
        self.events.put_nowait(
            [BroadcastMessage(t, t.encode() * size, shown=f"{t}.x", counts=True) for t in tokens]
        )

    async def join(self, target: Target, position: str) -> asyncio.Task[str | None]:
        """Join with a target that has caught up by itself."""
        join = self.group.join(target, position, self, caught_up=True)
        task = asyncio.create_task(join)
        await settled()
        return task


async def settled() -> None:
    for _ in range(10):
        await turn()


@pytest.fixture
async def stage() -> Stage:
    return Stage()


async def test_targets_of_several_kinds_get_messages_of_their_kind(stage: Stage) -> None:
    """Each gets all events in order."""
    targets = [Target(kind=kind) for kind in ("socket", "stream", "socket", "socket", "stream")]
    joined = [await stage.join(each, "b") for each in targets]
    stage.send("c", "d")
    await settled()
    assert [each.heard for each in targets] == [[b"c", b"d"]] * 5
    for each in joined:
        each.cancel()


async def test_concurrent_events_are_one_write_per_target(stage: Stage) -> None:
    """A target after some of them gets the rest; no write is large."""
    targets = [Target(kind=kind) for kind in ("socket", "stream", "socket")]
    joined = [await stage.join(each, "b") for each in targets]
    stage.send("c")
    await settled()
    joined.append(await stage.join(late := Target(), "c"))
    targets[1].hearing = lambda: setattr(late, "token", "d")
    stage.send_together("d", "e", "f")
    await settled()
    assert [each.heard for each in targets] == [[b"c", b"d", b"e", b"f"]] * 3
    assert [each.writes for each in targets] == [2] * 3
    assert (late.heard, late.writes) == ([b"e", b"f"], 1)
    assert {each.token for each in (*targets, late)} == {"f"}
    assert stage.delivered == 3 + 11
    stage.send_together("g", "h", "i", size=10_000)
    await settled()
    assert [each.writes for each in targets] == [4] * 3
    assert targets[0].heard[4:] == [b"g" * 10_000, b"h" * 10_000, b"i" * 10_000]
    for each in joined:
        each.cancel()


async def test_a_target_that_refuses_concurrent_events_leaves_before_them(stage: Stage) -> None:
    """This includes a target that is after some of them already."""
    full, other, later = Target(most=1), Target(), Target(most=1)
    joined = [await stage.join(each, "a") for each in (full, other, later)]
    stage.send("b")
    await settled()
    later.token = "c"
    stage.send_together("c", "d")
    await settled()
    assert await joined[0] == "b"
    assert await joined[2] == "c"
    assert other.heard == [b"b", b"c", b"d"]
    joined[1].cancel()


async def test_a_target_that_leaves_during_a_broadcast_gets_no_more(stage: Stage) -> None:
    """Hundreds of targets take more than one loop iteration."""
    targets = [Target() for _ in range(500)]
    joined = [
        asyncio.create_task(stage.group.join(each, "b", stage, caught_up=True)) for each in targets
    ]
    await settled()
    targets[0].hearing = joined[300].cancel
    stage.send("c")
    await settled()
    assert [n for n, each in enumerate(targets) if each.heard != [b"c"]] == [300]
    assert stage.delivered == 499
    for each in joined:
        each.cancel()


async def test_each_target_gets_the_events_after_its_token(stage: Stage) -> None:
    """A later one gets its missing events at once, and none twice."""
    first, second, third = Target(), Target(), Target()
    joined = [await stage.join(first, "b")]
    stage.send("a", "b", "c", "d")
    await settled()
    joined += [await stage.join(second, "c"), await stage.join(third, "d")]
    stage.send("e")
    await settled()
    assert (first.heard, second.heard, third.heard) == (
        [b"c", b"d", b"e"],
        [b"d", b"e"],
        [b"e"],
    )
    assert stage.led == ["b"]
    assert stage.delivered == 6
    for each in joined:
        each.cancel()
    await settled()
    assert stage.left == 1


async def test_a_target_older_than_the_recent_events_is_refused(stage: Stage) -> None:
    """A single target is refused as well."""
    joined = await stage.join(Target(), "m")
    assert await (await stage.join(Target(), "a")) is None
    stage.group.held = 1
    assert await (await stage.join(Target(), "z")) is None
    joined.cancel()


async def test_recent_events_can_be_evicted(stage: Stage) -> None:
    """An older target is refused then; present ones get the next events."""
    first, last = Target(), Target()
    joined = [await stage.join(first, "b")]
    stage.send("c", "d")
    await settled()
    clear_recent_events()
    assert await (await stage.join(Target(), "c")) is None
    joined.append(await stage.join(last, "d"))
    stage.send("e")
    await settled()
    assert (first.heard, last.heard) == ([b"c", b"d", b"e"], [b"e"])
    for each in joined:
        each.cancel()


async def test_a_full_target_leaves_with_its_last_token(stage: Stage) -> None:
    """The others are not affected."""
    full, other = Target(most=2), Target()
    leaving, staying = await stage.join(full, "a"), await stage.join(other, "a")
    stage.send("b", "c", "d", "e")
    assert await leaving == "c"
    await settled()
    assert other.heard == [b"b", b"c", b"d", b"e"]
    staying.cancel()


async def test_a_broken_stream_gives_each_target_its_own_token(stage: Stage) -> None:
    """If the leader is too slow, all targets leave. Another one leads later targets."""
    targets = [Target(), Target(most=0)]
    first, second = await stage.join(targets[0], "a"), await stage.join(targets[1], "b")
    stage.send("b")
    stage.events.put_nowait(Unavailable("gone"))
    failed = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(each) for each in failed] == [Unavailable, Unavailable]
    assert failed[0] is not failed[1]
    assert [each.token for each in targets] == ["b", "b"]
    third = await stage.join(Target(), "c")
    stage.send("d")
    stage.events.put_nowait(SlowConsumer("too slow"))
    assert await third == "d"
    fourth = await stage.join(Target(), "d")
    stage.events.put_nowait(ZeroDivisionError())
    with pytest.raises(Unavailable):
        await fourth
    assert stage.led == ["a", "c", "d"]


class Stream:
    """A finite stream, and the events that a late leader reads from it."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.moved = asyncio.Event()
        self.made: Counter[str] = Counter()

    def publish(self) -> None:
        self.tokens.append(f"{len(self.tokens):03}")
        self.moved.set()
        self.moved = asyncio.Event()

    async def checkpoint(self, token: str) -> BroadcastMessage:
        return BroadcastMessage(token, b"!", shown=token, counts=False)

    async def events_after(self, position: str) -> AsyncGenerator[Sequence[BroadcastMessage]]:
        caught_up = False
        while True:
            later = [each for each in self.tokens if each > position]
            if later:
                self.made.update(later)
                yield [
                    BroadcastMessage(each, each.encode(), shown=each, counts=True) for each in later
                ]
                position = later[-1]
            if not later and not caught_up:
                caught_up = True
                yield [await self.checkpoint(position)]
            elif not later:
                await self.moved.wait()


STEPS = st.lists(
    st.one_of(
        st.just(("publish",)),
        st.tuples(st.just("join"), st.integers(0, 12)),
        st.tuples(st.just("slow"), st.integers(0, 12)),
        st.tuples(st.just("leave"), st.integers(0, 20)),
        st.tuples(st.just("turn"), st.integers(1, 30)),
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_a_target_with_any_token_gets_all_later_events_in_order(
    steps: list[Any],
) -> None:
    """Each is sent once, however many targets join and leave.

    The target is marked as caught up once.
    """
    asyncio.run(check_deliveries(steps))


async def check_deliveries(steps: list[Any]) -> None:
    stream, group = Stream(), BroadcastGroup(lambda _: None)
    group.held = 2
    joined: list[tuple[Target, str, asyncio.Task[str | None]]] = []
    for _ in range(10):
        stream.publish()
    for kind, *given_ in steps:
        if kind == "publish":
            stream.publish()
        elif kind in ("join", "slow"):
            target = Target(1000 if kind == "join" else 3)
            position = stream.tokens[-1 - min(given_[0], len(stream.tokens) - 1)]
            join = group.join(target, position, stream, caught_up=False)
            joined.append((target, position, asyncio.create_task(join)))
        elif kind == "leave" and joined:
            joined[given_[0] % len(joined)][2].cancel()
        elif kind == "turn":
            for _ in range(given_[0]):
                await turn()
    for _ in range(500):
        await turn()
    for target, position, task in joined:
        texts = [each.decode() for each in target.heard if each != b"!"]
        missed = [each for each in stream.tokens if each > position]
        if task.cancelled():
            assert texts == missed[: len(texts)]
        elif task.done():
            # It had stopped: it leaves with its last token.
            assert len(target.heard) >= target.most
            assert await task == ([position, *texts][-1])
            assert texts == missed[: len(texts)]
        else:
            assert texts == missed
            assert target.heard.count(b"!") == 1
        task.cancel()
    await asyncio.gather(*(task for _, _, task in joined), return_exceptions=True)
    assert group._task is None


async def test_a_thousand_targets_share_the_execution_of_old_events() -> None:
    """A reconnect storm is like this: the target with the oldest token executes for the others."""
    stream, group = Stream(), BroadcastGroup(lambda _: None)
    group.held = 1000
    for _ in range(200):
        stream.publish()
    targets = [Target() for _ in range(1000)]
    order = [(number * 7919) % 200 for number in range(1000)]
    joins = [
        asyncio.create_task(group.join(target, f"{place:03}", stream, caught_up=False))
        for target, place in zip(targets, order, strict=True)
    ]
    for _ in range(3000):
        await turn()
    for target, place in zip(targets, order, strict=True):
        assert target.heard == [f"{each:03}".encode() for each in range(place + 1, 200)] + [b"!"]
    # There is one execution each time that a target is older than all before.
    assert max(stream.made.values()) <= 12
    for each in joins:
        each.cancel()
    await asyncio.gather(*joins, return_exceptions=True)


async def test_groups_are_dropped_with_their_last_user() -> None:
    """The same key has a new group then."""
    groups = BroadcastGroups()
    with groups.group("a", int) as first, groups.group("a", int) as second:
        assert first is second
        assert first.held == 2
        with groups.group("b", int) as other:
            assert other is not first
    with groups.group("a", int) as again:
        assert again is not first


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"after": "x.t"}, {"after": "y.t"}, True),
        ({"name": "a"}, {"name": "b"}, False),
        ({"name": "a", "after": "x.t"}, {"name": "a"}, True),
        ({"short": True}, {"short": False}, False),
    ],
)
def test_all_variables_but_the_starting_point_are_in_the_group_key(
    schema: strawberry.Schema, one: dict[str, Any], other: dict[str, Any], same: bool
) -> None:
    """Subscriptions with different tokens share a group."""
    text = """
      subscription($after: ResumeToken, $name: String, $short: Boolean = false) {
        productChanges(after: $after, where: {name: {eq: $name}}) { kind at @skip(if: $short) }
      }
    """
    document = parse(text)
    plans = Plans(document)

    def key(variables: dict[str, Any]) -> object:
        context = Memory().context()
        context.plans = plans
        executor: Any = Executor.build(schema._schema, document, None, context, variables)
        field: Any = document.definitions[0]
        root = schema._schema.subscription_type
        assert root is not None
        node = field.selection_set.selections[0]
        definition = root.fields["productChanges"]
        return group_key(executor.build_resolve_info(definition, [node], root, None))

    assert (key(one) == key(other)) is same
