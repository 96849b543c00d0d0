"""Crashes between the writes of one update: every reader sees exactly one current state, and the
partial update is repaired.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest

from revstream.streams.layouts.self_versioned.separate import SeparateLayout
from revstream.streams.mongo.transactions import WriteSession
from tests.integration.conftest import KeptShop
from tests.support.editing import Failed, lamp, pick
from tests.support.exhaustive import representatives

pytestmark = pytest.mark.asyncio(loop_scope="module")

Row = dict[str, Any]
WRITES = ("insert", "change", "change_all", "update_each", "remove")
# The most writes of one update, and one more, after which no update crashes.
POINTS = range(4)


class Crashed(Exception):
    """The process has crashed."""


@contextmanager
def crashing(after: int) -> Iterator[list[str]]:
    """Let the process crash after this number of writes; yields the writes so far."""
    made: list[str] = []

    def fatal(name: str) -> Any:
        write = getattr(WriteSession, name)

        async def attempt(self: WriteSession, collection: str, *args: Any, **more: Any) -> Any:
            if collection.startswith("revstream."):
                return await write(self, collection, *args, **more)
            if len(made) == after:
                raise Crashed
            result = await write(self, collection, *args, **more)
            made.append(f"{name} {collection}")
            return result

        return attempt

    with pytest.MonkeyPatch.context() as patch:
        for name in WRITES:
            patch.setattr(WriteSession, name, fatal(name))
        yield made


async def dies(mutation: Awaitable[Any]) -> bool:
    """Return whether the mutation crashes; layouts with one write per update may not."""
    try:
        await mutation
    except Failed as exc:
        if exc.code != "INTERNAL":
            raise
        return True
    return False


async def states(kept: KeptShop, id_: str) -> list[str]:
    """Return the names in the current document, by every way to read it."""
    shop = kept.shop
    text = """
    query($id: ID!, $where: ProductWhere, $named: ProductWhere) {
      one: product(id: $id) { name }
      listed: products(where: $where) { totalCount nodes { name } }
      named: products(where: $named) { totalCount nodes { name } }
    }
    """
    found: list[str] = []
    for name in ("Lamp", "Torch"):
        where = {"sku": {"eq": id_}}
        named = {**where, "name": {"eq": name}}
        asked = await shop.ask(text, id=id_, where=where, named=named)
        one = [] if asked["one"] is None else [asked["one"]["name"]]
        listed = pick(asked["listed"]["nodes"], "name")
        assert one == listed
        assert asked["listed"]["totalCount"] == len(listed) <= 1
        assert asked["named"]["totalCount"] == len(asked["named"]["nodes"])
        found += pick(asked["named"]["nodes"], "name")
    assert found == one
    return found


def raw_state(kept: KeptShop, id_: str) -> None:
    """Check the stored documents against the rules of the layout."""
    database = kept.shop.database
    products = list(database.products.find({"$or": [{"_id": id_}, {"docId": id_}]}))
    if kept.history == "CURRENT_FLAG" and products:
        flagged = [each["v"] for each in products if each.get("current")]
        assert flagged == [max(each["v"] for each in products)]
    if kept.history == "SEPARATE":
        previous = [e["v"] for e in database["products.previous"].find({"docId": id_})]
        assert max(Counter(previous).values(), default=1) == 1
        if products:
            assert all(number < products[0]["v"] for number in previous)


UPDATES: dict[str, tuple[str, Row, list[str]]] = {
    "create": ("createProduct", {"document": {}}, ["Torch"]),
    "update": ("updateProduct", {"patch": {"name": "Torch"}}, ["Torch"]),
    "replace": ("replaceProduct", {"document": {}}, ["Torch"]),
    "delete": ("deleteProduct", {}, []),
}


@pytest.mark.parametrize(
    ("what", "author"),
    representatives(product(UPDATES, (None, "ann")), ("update", "ann"), ("delete", None)),
)
async def test_a_crash_at_any_point_leaves_one_state_and_is_repaired(
    kept: KeptShop, what: str, author: str | None
) -> None:
    """The state is the one before or the one after, and the next write continues from it."""
    name, given, after = UPDATES[what]
    reached = 0
    for point in POINTS:
        shop = kept.shop
        id_ = shop.fresh_id() if what == "create" else await shop.create()
        before = [] if what == "create" else ["Lamp"]
        if "document" in given:
            given = {"document": {**lamp(id_), "name": "Torch"}}
        with crashing(point) as made:
            died = await dies(shop.mutate(name, id=id_, author=author, **given))
            assert len(made) == point if died else len(made) <= point
        now = await states(kept, id_)
        assert now in (before, after), (point, made)
        reached = max(reached, len(made))
        # Before the repair, history is exact as well.
        versions = await shop.history(id_)
        assert pick(versions, "version") == list(range(1, len(versions) + 1))
        numbers = [each.number for each in await kept.layout.history(id_) if each.content]
        assert sorted(set(numbers), key=lambda each: each or 0) == numbers
        await kept.layout.recover(settle_s=0)
        assert await states(kept, id_) == now
        raw_state(kept, id_)
        if now:
            result = await shop.mutate("updateProduct", id=id_, patch={"name": "Torch"})
        else:
            document = {**lamp(id_), "name": "Torch"}
            result = await shop.mutate("createProduct", id=id_, document=document)
        assert result["__typename"] == "ProductWritten", result
        assert await states(kept, id_) == ["Torch"]
        raw_state(kept, id_)
        versions = await shop.history(id_)
        assert pick(versions, "version") == list(range(1, len(versions) + 1))
        if len(made) < point:
            break
    several = {"CURRENT_FLAG": 2, "SEPARATE": 1 if what == "create" else 2}
    assert reached >= several.get(kept.history, 1) - (what == "create")


async def test_the_next_write_succeeds_without_a_repair(kept: KeptShop) -> None:
    """It finds the partial update, and its own version is the next one."""
    shop = kept.shop
    id_ = await shop.create()
    with crashing(1) as made:
        await dies(shop.mutate("updateProduct", id=id_, author=None, patch={"name": "Torch"}))
    assert len(made) <= 1
    for _ in range(2):
        await shop.mutate("updateProduct", id=id_, increment={"stock": 1})
    raw_state(kept, id_)
    versions = await shop.history(id_)
    assert pick(versions, "version") == list(range(1, len(versions) + 1))
    present = await shop.present(id_)
    assert present is not None
    assert present["stock"] == 7


async def test_an_update_of_another_program_has_one_state_at_each_step(kept: KeptShop) -> None:
    """This holds for all writes of an update, in the order of the layout."""
    shop, program = kept.shop, kept.program()
    id_ = shop.fresh_id()
    for name in ("Lamp", "Torch", "Lamp"):
        for step in program.steps(id_, {"sku": id_, "name": name, "stock": 1}):
            step()
            assert len(await states(kept, id_)) == 1
        assert await states(kept, id_) == [name]
    versions = await shop.history(id_)
    assert pick(versions, "operation") == ["INSERT", "UPDATE", "UPDATE"]


async def test_an_update_in_progress_is_not_repaired(kept: KeptShop) -> None:
    """Repairs run meanwhile, and no version is lost."""
    shop, program, layout = kept.shop, kept.program(), kept.layout
    id_ = shop.fresh_id()
    program.write(id_, {"sku": id_, "name": "Lamp", "stock": 1})
    first, *rest = program.steps(id_, {"sku": id_, "name": "Torch", "stock": 1})
    first()
    looked = asyncio.Event()
    if isinstance(layout, SeparateLayout):
        look = layout._find_unfinished

        async def noted() -> Any:
            found = await look()
            looked.set()
            return found

        layout._find_unfinished = noted  # type: ignore[method-assign]
        mending = asyncio.create_task(layout.recover(settle_s=0.3))
        await looked.wait()
    else:
        mending = asyncio.create_task(layout.recover(settle_s=0.3))
        await mending
    for step in rest:
        step()
    await mending
    assert await states(kept, id_) == ["Torch"]
    raw_state(kept, id_)
    # ARCHIVE has the version once it is recorded.
    await shop.history(id_)
    found = [each.content["name"] for each in await layout.history(id_) if each.content]
    assert found == ["Lamp", "Torch"]
