"""What has come for one reader: in order, each once, whoever gives up waiting."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gql.inbox import Inbox
from tests.support.streams import turn

pytestmark = pytest.mark.timeout(10)


@given(st.lists(st.sampled_from(["put", "take", "wait", "give up"]), max_size=30))
def test_it_gives_what_a_queue_gives(steps: list[str]) -> None:
    """The model is a plain queue, and a reader that waits at most once at a time."""

    async def run() -> None:
        inbox: Inbox[int] = Inbox()
        model: deque[int] = deque()
        taken: list[int] = []
        expected: list[int] = []
        reader: asyncio.Task[int] | None = None
        for number, step in enumerate(steps):
            if step == "put":
                inbox.put_nowait(number)
                model.append(number)
            elif step == "take" and model and reader is None:
                taken.append(inbox.get_nowait())
                expected.append(model.popleft())
            elif step == "wait" and reader is None:
                reader = asyncio.create_task(inbox.get())
            elif step == "give up" and reader is not None:
                reader.cancel()
            await turn()
            await turn()
            if reader is not None and reader.done():
                if not reader.cancelled():
                    taken.append(reader.result())
                    expected.append(model.popleft())
                reader = None
            assert taken == expected
            assert (inbox.qsize(), inbox.empty()) == (len(model), not model)
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    asyncio.run(run())


async def test_what_comes_while_the_reader_gives_up_stays() -> None:
    inbox: Inbox[str] = Inbox()
    reader = asyncio.create_task(inbox.get())
    await turn()
    inbox.put_nowait("a")
    reader.cancel()
    await asyncio.gather(reader, return_exceptions=True)
    assert await inbox.get() == "a"


async def test_a_second_reader_is_refused() -> None:
    inbox: Inbox[str] = Inbox()
    reader = asyncio.create_task(inbox.get())
    await turn()
    with pytest.raises(RuntimeError, match="one reader"):
        await inbox.get()
    inbox.put_nowait("a")
    assert await reader == "a"
