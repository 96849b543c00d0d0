"""gql.sharing: an audience is told everything behind each one's token, once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import strawberry
from graphql import parse

from gql.executor import Executor
from gql.plans import Plans
from gql.sharing import Audience, Audiences, Told, shared_key
from streams.errors import SlowConsumer, Unavailable
from tests.support.reads import Memory
from tests.support.streams import turn


class Chair:
    """A seat; `most` is what it takes."""

    def __init__(self, most: int = 1000) -> None:
        self.token = ""
        self.heard: list[bytes] = []
        self.most = most

    def write(self, told: Told) -> bool:
        if len(self.heard) >= self.most:
            return False
        self.heard.append(told.payload)
        return True


class Stage:
    """What leaders tell; `led` are the tokens that they began behind."""

    def __init__(self) -> None:
        self.told = 0
        self.led: list[str] = []
        self.left = 0
        self.events: asyncio.Queue[Told | Exception] = asyncio.Queue()
        self.audience = Audience(self.count)
        self.audience.held = 10

    def count(self, members: int) -> None:
        self.told += members

    async def lead(self, position: str) -> AsyncGenerator[Told]:
        self.led.append(position)
        try:
            while True:
                each = await self.events.get()
                if isinstance(each, Exception):
                    raise each
                yield each
        finally:
            self.left += 1

    def say(self, *tokens: str) -> None:
        for each in tokens:
            self.events.put_nowait(Told(each, each.encode(), shown=f"{each}.x", counts=True))

    async def sit(self, chair: Chair, position: str) -> asyncio.Task[str]:
        task = asyncio.create_task(self.audience.join(chair, position, self.lead))
        await settled()
        return task


async def settled() -> None:
    for _ in range(10):
        await turn()


@pytest.fixture
async def stage() -> Stage:
    return Stage()


async def test_each_is_told_what_comes_behind_his_token(stage: Stage) -> None:
    """Whoever joins later is told at once what he lacks, and nothing twice."""
    first, second, third = Chair(), Chair(), Chair()
    sitting = [await stage.sit(first, "b")]
    stage.say("a", "b", "c", "d")
    await settled()
    sitting += [await stage.sit(second, "c"), await stage.sit(third, "d")]
    stage.say("e")
    await settled()
    assert (first.heard, second.heard, third.heard) == (
        [b"c", b"d", b"e"],
        [b"d", b"e"],
        [b"e"],
    )
    assert stage.led == ["b"]
    assert stage.told == 5
    for each in sitting:
        each.cancel()
    await settled()
    assert stage.left == 1


async def test_whoever_is_behind_what_is_kept_goes_on_alone(stage: Stage) -> None:
    """And so does the only one."""
    sitting = await stage.sit(Chair(), "m")
    assert await (await stage.sit(Chair(), "a")) == "a"
    stage.audience.held = 1
    assert await (await stage.sit(Chair(), "z")) == "z"
    sitting.cancel()


async def test_who_takes_nothing_goes_on_alone_behind_what_he_was_told(stage: Stage) -> None:
    full, other = Chair(most=2), Chair()
    leaving, staying = await stage.sit(full, "a"), await stage.sit(other, "a")
    stage.say("b", "c", "d", "e")
    assert await leaving == "c"
    await settled()
    assert other.heard == [b"b", b"c", b"d", b"e"]
    staying.cancel()


async def test_where_the_stream_breaks_each_is_told_his_own_token(stage: Stage) -> None:
    """Where the leader is too slow, all go on alone. Another one leads those who come then."""
    chairs = [Chair(), Chair(most=0)]
    first, second = await stage.sit(chairs[0], "a"), await stage.sit(chairs[1], "b")
    stage.say("b")
    stage.events.put_nowait(Unavailable("gone"))
    failed = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(each) for each in failed] == [Unavailable, Unavailable]
    assert failed[0] is not failed[1]
    assert [each.token for each in chairs] == ["b", "b"]
    third = await stage.sit(Chair(), "c")
    stage.say("d")
    stage.events.put_nowait(SlowConsumer("too slow"))
    assert await third == "d"
    fourth = await stage.sit(Chair(), "d")
    stage.events.put_nowait(ZeroDivisionError())
    with pytest.raises(Unavailable):
        await fourth
    assert stage.led == ["a", "c", "d"]


async def test_audiences_are_forgotten_with_the_last_who_holds_them() -> None:
    audiences = Audiences()
    with audiences.held("a", int) as first, audiences.held("a", int) as second:
        assert first is second
        assert first.held == 2
        with audiences.held("b", int) as other:
            assert other is not first
    with audiences.held("a", int) as again:
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
def test_where_a_subscription_begins_makes_no_difference_and_all_else_does(
    schema: strawberry.Schema, one: dict[str, Any], other: dict[str, Any], same: bool
) -> None:
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
        return shared_key(executor.build_resolve_info(definition, [node], root, None))

    assert (key(one) == key(other)) is same
