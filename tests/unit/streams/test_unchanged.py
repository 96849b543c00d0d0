"""Pages, and documents that others refer to, that are told without being read, whatever comes in
between: a model of MongoDB that writes, answers and tells its stream whenever the test says
so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import bson
import pytest
from bson import Int64, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from streams import tokens, unchanged
from streams.finder import Finder
from streams.interning import Interned, Interning
from streams.unions import PageUnion

COMMAND = {"find": "things", "filter": {}, "limit": 60}
REFERRING = {"find": "orders", "filter": {}}
REFERRED_TO = {"find": "things", "filter": {"_id": {"$in": [0, 1, 2]}}}
KIND, NAMES = frozenset({"written"}), (0, 1, 2)
STEPS = ("write", "beside", "tell", "ask", "ask", "refer", "refer", "join", "join more")
STEPS += ("look up", "look up")
STEPS += ("serve", "serve", "serve", "deliver", "deliver", "deliver")
RARELY = ("lose", "demote")


class Model:
    """Attributes:
    time: of the last write. written: of the last one that the page shows.
    position: the stream's.
    stopped: when who is asked for the time ceased to be primary; what is read is the next one's.
    lost: as of `WirePool`, which it stands for, too.
    """

    def __init__(self) -> None:
        self.time = self.written = self.told = 1
        self.position = tokens.moment(Timestamp(1, 1))
        self.lost = 0
        self.stopped: int | None = None
        self.reads = self
        self.hellos = 0
        self.finder = Finder(
            cast("Any", self),
            SimpleNamespace(name="shop", read_concern=SimpleNamespace(document={})),
            Interning(2**20),
        )
        self.finder.unchanged.follow(self, ["things"])
        self._unserved: list[tuple[dict[str, Any], asyncio.Future[memoryview | None]]] = []
        self._served: list[tuple[dict[str, Any], asyncio.Future[memoryview | None]]] = []
        self.finds = self.aggregates = 0
        # What each was told, and what it may not miss.
        self._asked: list[tuple[int, asyncio.Task[int]]] = []

    def accompany(self, collection: str, take: Any, interrupted: Any) -> None:
        self._take = take

    async def checkout(self) -> Model:
        return self

    def ask(self, message: bytes) -> asyncio.Future[memoryview | None]:
        command = bson.decode(message)
        reply: asyncio.Future[memoryview | None] = asyncio.get_running_loop().create_future()
        self.hellos += "hello" in command
        self.finds += "find" in command
        self.aggregates += "aggregate" in command
        self._unserved.append((command, reply))
        return reply

    async def do(self, step: str) -> None:
        match step:
            case "write" | "beside":
                self.time += 1
                self.written = self.time if step == "write" else self.written
            case "tell":
                if self.written > self.told:
                    self._take(None)
                self.told = self.time
                self.position = tokens.moment(Timestamp(self.told, 1))
            case "ask":
                self._asked.append((self.written, asyncio.create_task(self._page())))
            case "refer":
                self._asked.append((self.written, asyncio.create_task(self._referred_to())))
            case "look up":
                self._asked.append((self.written, asyncio.create_task(self._looked_up())))
            case "join" | "join more":
                below = [1, 2] if step == "join" else [2, 3, 1]
                self._asked.append((self.written, asyncio.create_task(self._joint(below))))
            case "serve" if self._unserved:
                command, reply = self._unserved.pop(0)
                self._served.append((self._answer(command), reply))
            case "deliver" if self._served:
                said, reply = self._served.pop(0)
                reply.set_result(memoryview(bson.encode(said)))
            case "lose":
                self.lost += 1
            case "demote":
                self.stopped = self.stopped or self.time
        await settled()

    async def answers(self) -> list[tuple[int, int]]:
        """Of all that was asked: what it may not miss, and what it was told."""
        while self._unserved or self._served:
            await self.do("serve")
            await self.do("deliver")
        return [(least, await told) for least, told in self._asked]

    async def _page(self) -> int:
        found = await self.finder.first_batch(COMMAND, naive=True)
        assert found is not None
        return int(found[1]["written"])

    async def _joint(self, below: list[int]) -> int:
        """As `Reads.find_each` reads them."""
        queries = [{"below": each} for each in below]
        union = PageUnion(queries=queries, projection={}, sort=[("_id", 1)], limit=21)
        found = await self.finder.find_each("things", union, {"aggregate": "things"})
        assert found is not None
        assert [len(page) for page in found] == below
        return min(int(document["written"]) for page in found for document in page)

    async def _referred_to(self) -> int:
        """As `resolvers.current` reads them, behind what refers to them."""
        begun, known = time.monotonic(), self.finder.unchanged
        assert await self.finder.first_batch(REFERRING, naive=True)
        return await self._shown(known.by_name("things", KIND, NAMES, begun))

    async def _looked_up(self) -> int:
        """As `resolvers.current` reads those that nothing refers to."""
        return await self._shown(await self.finder.unchanged.again_by_name("things", KIND, NAMES))

    async def _shown(self, told: Sequence[Any] | None) -> int:
        known = self.finder.unchanged
        if told is None:
            pages = known.pages("things")
            found = await self.finder.first_batch(REFERRED_TO, naive=True)
            assert found is not None
            by_name = {each["_id"]: each for each in found}
            if pages is not None:
                known.keep_by_name(pages, KIND, NAMES, by_name)
            told = [by_name.get(each) for each in NAMES]
        assert told[2] is None
        assert told[1] is not None
        return int(told[1]["written"])

    def _answer(self, command: dict[str, Any]) -> dict[str, Any]:
        if "hello" in command:
            return self._said()
        if "find" in command:
            return self._found([{"_id": 0}, {"_id": 1, "written": self.written}])
        first, *stages = command["pipeline"]
        others = [each["$unionWith"]["pipeline"][0] for each in stages if "$unionWith" in each]
        batch: list[dict[str, Any]] = []
        for page in [first, *others]:
            # As many documents as its filter says; none has an `_id` between two pages.
            below = page["$match"]["below"] if "$match" in page else 0
            batch += [{"_id": n, "written": self.written} for n in range(below)] or [{}]
        return self._found(batch)

    def _said(self) -> dict[str, Any]:
        primary = self.stopped is None
        time = Timestamp(self.stopped or self.time, 1)
        return {"ok": 1.0, "isWritablePrimary": primary, "operationTime": time}

    def _found(self, batch: list[dict[str, Any]]) -> dict[str, Any]:
        cursor = {"firstBatch": batch, "id": Int64(0), "ns": "shop.things"}
        return {"cursor": cursor, "ok": 1.0, "operationTime": Timestamp(self.time, 1)}


async def settled() -> None:
    """Whatever can go on without MongoDB has gone on."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "_QUIET_S", -1)


def run(*steps: str) -> tuple[Model, list[tuple[int, int]]]:
    async def go() -> tuple[Model, list[tuple[int, int]]]:
        model = Model()
        for step in steps:
            await model.do(step)
        return model, await model.answers()

    return asyncio.run(go())


READ = ("ask", "serve", "deliver")
REFER = ("refer", "serve", "deliver", "serve", "deliver")
JOIN = ("join", "serve", "deliver")
LOOK_UP = ("look up", "serve", "deliver")


@given(st.lists(st.sampled_from(3 * STEPS + RARELY), max_size=60))
def test_nobody_misses_what_was_written_before_he_asked(drawn: list[str]) -> None:
    # The first time that documents come, they are not known to come again.
    _, answers = run(*READ, *READ, *REFER, *JOIN, *JOIN, *LOOK_UP, *drawn)
    assert all(least <= told for least, told in answers)


def test_the_time_takes_the_place_of_a_read() -> None:
    model, answers = run(*READ, *READ, *READ, "ask", "ask", "ask")
    assert (model.finder.unchanged.told, model.hellos) == (4, 4)
    assert answers == [(1, 1)] * 6


def test_of_pages_asked_for_together_those_are_read_that_are_not_known() -> None:
    """The first time that documents come, they are not known to come again."""
    model, answers = run(*JOIN, *JOIN, *JOIN)
    assert (model.aggregates, model.hellos, model.finder.unchanged.told) == (2, 1, 2)
    model, answers = run(*JOIN, *JOIN, "join more", "serve", "deliver", "serve", "deliver")
    assert (model.aggregates, model.hellos, model.finder.unchanged.told) == (3, 1, 2)
    model, answers = run(*JOIN, *JOIN, "write", "tell", *JOIN, *JOIN)
    assert (model.aggregates, model.hellos) == (4, 0)
    assert answers == [(1, 1), (1, 1), (2, 2), (2, 2)]


def test_what_changes_while_it_is_read_is_not_kept() -> None:
    model, answers = run(*READ, "ask", "serve", "write", "tell", "deliver", *READ)
    assert model.finder.unchanged.told == model.hellos == 0
    assert answers == [(1, 1), (1, 1), (2, 2)]


def test_a_time_that_was_asked_for_before_says_nothing() -> None:
    """Of what was written since."""
    model, answers = run(*READ, *READ, "ask", "serve", "write", "ask")
    assert model.hellos == 2
    assert answers[-2:] == [(1, 1), (2, 2)]


def test_another_connection_may_be_to_another_primary() -> None:
    for moment in range(3):
        steps = list(READ)
        steps.insert(1 + moment, "lose")
        model, _ = run(*READ, *READ, *steps)
        assert model.finder.unchanged.told == (0 if moment < 2 else 1)


def test_who_has_stepped_down_says_nothing() -> None:
    """He may be behind."""
    model, answers = run(*READ, *READ, "demote", "write", "ask")
    assert (model.finder.unchanged.told, model.hellos) == (0, 1)
    assert answers[-1] == (2, 2)


def test_what_is_referred_to_is_known_behind_what_refers_to_it() -> None:
    """Of which MongoDB has said when that was, so that it is asked for nothing more."""
    model, answers = run(*REFER, *REFER, *REFER)
    assert (model.finds, model.hellos, model.finder.unchanged.told_by_name) == (4, 0, 6)
    assert answers == [(1, 1)] * 3


def test_what_is_looked_up_again_is_not_read_again() -> None:
    model, answers = run(*LOOK_UP, *LOOK_UP, *LOOK_UP)
    assert (model.finds, model.hellos, model.finder.unchanged.told_by_name) == (2, 1, 3)
    assert answers == [(1, 1)] * 3
    model, answers = run(*LOOK_UP, *LOOK_UP, "write", *LOOK_UP, "serve", "deliver")
    assert (model.finds, model.hellos, model.finder.unchanged.told_by_name) == (3, 1, 0)
    assert answers == [(1, 1), (1, 1), (2, 2)]


@pytest.mark.parametrize("told", ["a change", "nothing yet", "of another connection"])
def test_what_is_referred_to_is_read_where_it_may_have_changed(told: str) -> None:
    then = {"a change": ("write", "tell"), "nothing yet": ("beside",)}.get(told, ("lose",))
    model, answers = run(*REFER, *REFER, *then, *REFER)
    assert (model.finds, model.finder.unchanged.told_by_name) == (5, 3)
    assert answers[-1][1] == (2 if told == "a change" else 1)


def test_what_was_said_of_an_earlier_read_is_not_enough() -> None:
    """Only of one that was begun behind the asking."""
    model, _ = run(*REFER)
    known, now = model.finder.unchanged, time.monotonic()
    assert known.by_name("things", KIND, NAMES, now) is None
    assert known.by_name("things", KIND, NAMES, 0.0) is not None
    assert known.by_name("things", KIND, (0, 3), 0.0) is None
    assert known.by_name("things", frozenset({"other"}), NAMES, 0.0) is None
    assert known.by_name("orders", KIND, NAMES, 0.0) is None


def test_few_documents_are_known_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """And none that nobody keeps in mind."""
    monkeypatch.setattr(unchanged, "_MOST_DOCUMENTS", 3)
    known = Model().finder.unchanged
    pages = known.pages("things")
    assert pages is not None
    for n in range(7):
        known.keep_by_name(pages, KIND, [n], {n: Interned({"_id": n})})
        known.keep_by_name(pages, KIND, [n], {})
    assert ([*pages.by_name[KIND]], pages.documents) == ([6], 1)
    known.keep_by_name(pages, "other", [1], {1: {"_id": 1}})
    assert "other" not in pages.by_name


def test_few_pages_are_known_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page counts as 52 documents at least."""
    monkeypatch.setattr(unchanged, "_MOST_DOCUMENTS", 100)
    known = Model().finder.unchanged
    pages = known.pages("things")
    assert pages is not None
    for n in range(3):
        known.keep(pages, b"%d" % n, [])
        known.keep(pages, b"%d" % n, [])
    assert ([*pages.found], pages.documents) == ([b"2"], 52)
