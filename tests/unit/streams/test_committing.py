"""What is on its way to the archive at once, and in which order, whatever takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from bson import Timestamp

from streams.checkpoints import Checkpoint
from streams.committing import Committing
from streams.documents import Document
from streams.draft import Draft
from streams.errors import LeaseLost, Unavailable
from streams.versions import Last, Until
from tests.support.eventually import eventually
from tests.support.streams import FIRST_DAY, turn


class Slow:
    """An archive and its checkpoints, each of whose writes waits until it is let go."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.refused: set[str] = set()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._held = True

    async def insert(self, records: Sequence[Document]) -> bool:
        name = "insert " + " ".join(each["_id"] for each in records)
        await self._through(name)
        return name not in self.refused

    async def close(self, untils: Sequence[Until]) -> None:
        if untils:
            await self._through("close " + " ".join(token for token, _, _ in untils))

    async def save(self, checkpoint: Checkpoint) -> None:
        await self._through(f"save {checkpoint.token}")
        if f"save {checkpoint.token}" in self.refused:
            raise LeaseLost("refused")

    async def done(self, name: str) -> None:
        self._waiting.pop(name).set_result(None)
        await _turns()

    async def failed(self, name: str, exc: Exception) -> None:
        self._waiting.pop(name).set_exception(exc)
        await _turns()

    def let_go(self) -> None:
        """From now on nothing takes long."""
        self._held = False
        for each in self._waiting.values():
            each.set_result(None)

    async def _through(self, name: str) -> None:
        self.begun.append(name)
        if not self._held:
            return
        self._waiting[name] = asyncio.get_running_loop().create_future()
        await self._waiting[name]

    @property
    def on_their_way(self) -> set[str]:
        return set(self._waiting)


async def _turns() -> None:
    for _ in range(10):
        await turn()


class World:
    def __init__(self) -> None:
        self.slow = Slow()
        self.archived: list[str] = []
        self.inserted: list[str] = []
        archive: Any = self.slow
        self.committing = Committing(
            "recorder:things",
            archive,
            self.slow.save,
            inserted=self.inserted.append,
            archived=self.archived.append,
            idle_save_s=60,
        )

    async def put(self, token: str, replaces: str | None = None, *, more: bool = False) -> None:
        """A batch of one version."""
        draft = Draft()
        last = None if replaces is None else Last(token=replaces, number=1, full=None)
        record = {"_id": token, "v": 2, "at": Timestamp(5, 1), "wall": FIRST_DAY, "full": None}
        draft.add(record, last)
        await self.committing.put(draft, Checkpoint(token, ""), worth_saving=True, more=more)
        await _turns()


async def test_each_of_the_three_writes_goes_beside_those_of_the_next_batch() -> None:
    """One of each at a time, and each batch's in their order."""
    world = World()
    slow = world.slow
    await world.put("B", replaces="A")
    assert slow.on_their_way == {"insert B"}
    await world.put("C", replaces="B")
    await slow.done("insert B")
    assert slow.on_their_way == {"close A", "insert C"}
    assert (world.inserted, world.archived) == (["B"], [])
    await slow.done("close A")
    assert world.archived == ["B"]
    await world.put("D", replaces="C")
    await slow.done("insert C")
    assert slow.on_their_way == {"save B", "close B", "insert D"}
    # No second one of a kind, whoever is first.
    await slow.done("insert D")
    assert slow.on_their_way == {"save B", "close B"}
    await slow.done("close B")
    await slow.done("close C")
    assert slow.on_their_way == {"save B"}
    await slow.done("save B")
    assert slow.on_their_way == {"save D"}
    await slow.done("save D")
    await world.committing.settled()
    assert world.archived == ["B", "C", "D"]


async def test_what_comes_while_versions_are_inserted_goes_together() -> None:
    """A version that is replaced before it is stored is stored closed."""
    world = World()
    await world.put("B", replaces="A")
    await world.put("C", replaces="B")
    await world.put("D", replaces="C")
    await world.slow.done("insert B")
    assert world.slow.on_their_way == {"close A", "insert C D"}
    await world.slow.done("insert C D")
    await world.slow.done("close A")
    assert "close B" in world.slow.on_their_way
    await world.slow.done("close B")
    assert world.archived == ["B", "D"]


@pytest.mark.parametrize("ending", ["the last one", "enough", "settled", "time"])
async def test_where_more_is_about_to_come_it_goes_together(
    monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    """Until that has come, or does not; so fewer are closed in a write of their own."""
    if ending == "enough":
        monkeypatch.setattr("streams.committing._MOST_RECORDS", 3)
    if ending == "time":
        monkeypatch.setattr("streams.committing._GATHERING_S", 0.05)
    world = World()
    await world.put("B", replaces="A", more=True)
    await world.put("C", replaces="B", more=True)
    if ending != "time":
        assert world.slow.begun == []
    settling = None
    match ending:
        case "the last one":
            await world.put("D", replaces="C")
        case "enough":
            await world.put("D", replaces="C", more=True)
        case "settled":
            settling = asyncio.create_task(world.committing.settled())
    last = "B C D" if ending in ("the last one", "enough") else "B C"
    await eventually(lambda: world.slow.on_their_way == {f"insert {last}"})
    await world.slow.done(f"insert {last}")
    assert world.slow.on_their_way == {"close A"}
    world.slow.let_go()
    await (settling or world.committing.settled())
    assert world.archived == [last[-1]]


async def test_what_waits_for_more_is_forgotten_in_the_end() -> None:
    world = World()
    await world.put("B", more=True)
    await world.committing.end()
    assert world.slow.begun == []


async def test_who_puts_more_than_may_wait_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, however far behind MongoDB is."""
    monkeypatch.setattr("streams.committing._MOST_RECORDS", 2)
    world = World()
    for token in "ABC":
        await world.put(token)
    more = asyncio.create_task(world.put("D"))
    await _turns()
    assert not more.done()
    await world.slow.done("insert A")
    await more
    assert world.slow.begun[:2] == ["insert A", "insert B C"]
    await world.committing.end()


@pytest.mark.parametrize(
    ("broken", "refused"),
    [
        ("insert C", False),
        ("insert C", True),
        ("close A", False),
        ("save B", False),
        ("save B", True),
    ],
)
async def test_what_becomes_of_a_write_is_told_to_who_puts_the_next(
    broken: str, refused: bool
) -> None:
    """Whichever of them it was; also to who waits for all of them."""
    world = World()
    await world.put("B", replaces="A")
    await world.put("C", replaces="B")
    await world.slow.done("insert B")
    if broken == "save B":
        await world.slow.done("close A")
    if refused:
        world.slow.refused.add(broken)
        await world.slow.done(broken)
    else:
        await world.slow.failed(broken, Unavailable("gone"))
    raised = LeaseLost if refused else Unavailable
    with pytest.raises(raised):
        await world.put("D")
    world.slow.let_go()
    with pytest.raises(raised):
        await world.committing.settled()
    await world.committing.end()
