"""The Copier step by step: each order of the writes on both sides, and delayed processes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import permutations
from typing import Any

import pytest

from revstream.streams.listeners.copies.propagation_job import COLLECTION
from revstream.streams.listeners.copies.update_pipeline import copy_pipeline
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.versioning.copied_field import SourceState, copied_fields
from tests.support.copying import BASKETS, SHOP, Side, World

pytestmark = pytest.mark.parametrize("mongo", ["motor"], indirect=True)

Write = Callable[[World], Awaitable[None]]
BOTH: tuple[Side, Side] = ("sources", "targets")


@pytest.fixture
async def world(mongo: Mongo) -> AsyncIterator[World]:
    """Return an empty world with one process at work on both sides."""
    opened = await World(mongo).begin()
    yield opened
    await opened.end()


async def shop(world: World) -> None:
    """Write a supplier and its product, and copy."""
    await world.supplier("ann", "Ann")
    await world.supplier("bob", "Bob")
    await world.product("p", "ann")
    await world.settle()
    assert world.copy_of("p") == "Ann"


async def recorded(world: World) -> None:
    for name in world.names:
        await world.record(name)


# -- sequential


async def test_a_target_after_its_source(world: World) -> None:
    """The normal case: one more write, with the source and its version stored beside the copy."""
    await shop(world)
    assert world.entries("p") == [("ann", 1)]
    assert world.number("p") == 1
    await world.settle()
    assert world.number("p") == 1


async def test_a_target_before_its_source(world: World) -> None:
    """The copy is written when the source exists."""
    await world.product("p", "ann")
    await world.settle()
    assert (world.copy_of("p"), world.entries("p")) == (None, [("ann", 0)])
    await world.supplier("ann", "Ann")
    await world.settle()
    assert (world.copy_of("p"), world.entries("p")) == ("Ann", [("ann", 1)])


async def test_a_source_renamed_deleted_and_reinserted(world: World) -> None:
    """Version numbers continue over all of it."""
    await shop(world)
    await world.supplier("ann", "Anna")
    await world.settle()
    assert (world.copy_of("p"), world.entries("p")) == ("Anna", [("ann", 2)])
    await world.put("suppliers", "ann", None)
    await world.settle()
    assert (world.copy_of("p"), world.entries("p")) == (None, [("ann", 3)])
    await world.supplier("ann", "Annie")
    await world.settle()
    assert (world.copy_of("p"), world.entries("p")) == ("Annie", [("ann", 4)])


async def test_a_reference_that_changes_and_is_removed(world: World) -> None:
    """Without a reference there is neither a copy nor an entry beside it."""
    await shop(world)
    await world.change("products", "p", {"$set": {"supplierId": "bob"}})
    await world.settle()
    assert (world.copy_of("p"), world.entries("p")) == ("Bob", [("bob", 1)])
    await world.change("products", "p", {"$unset": {"supplierId": ""}})
    await world.settle()
    assert (world.copy_of("p"), world.entries("p")) == ("-", [])
    assert "_copies" not in world._seen["products"]["p"]
    await world.change("products", "p", {"$set": {"supplierId": None, "supplierName": "x"}})
    await world.settle()
    assert world.copy_of("p") == "-"


async def test_a_reference_away_and_back(world: World) -> None:
    """The copy is right even if the source was renamed meanwhile, and however late this is seen."""
    await shop(world)
    await world.change("products", "p", {"$set": {"supplierId": "bob"}})
    await world.supplier("ann", "Anna")
    await world.record("suppliers")
    await world.handled("sources")
    assert world.copy_of("p") == "Ann"
    await world.change("products", "p", {"$set": {"supplierId": "ann"}})
    await world.settle()
    assert (world.copy_of("p"), world.entries("p")) == ("Anna", [("ann", 2)])


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(
            lambda w: w.change("products", "p", {"$set": {"supplierName": "wrong"}}),
            id="the copy is overwritten",
        ),
        pytest.param(
            lambda w: w.change("products", "p", {"$unset": {"supplierName": ""}}),
            id="the copy is unset",
        ),
        pytest.param(lambda w: w.product("p", "ann"), id="all of it is replaced"),
        pytest.param(
            lambda w: w.product("p", "ann", supplierName="wrong", version=1),
            id="all of it is replaced, with a copy",
        ),
        pytest.param(
            lambda w: w.product("p", "ann", supplierName="Ann", version=7),
            id="what stands beside it is lost",
        ),
        pytest.param(
            lambda w: w.change("products", "p", {"$unset": {"_copies": ""}}),
            id="nothing else is lost",
        ),
        pytest.param(
            lambda w: w.change("products", "p", {"$set": {"_copies": "nonsense"}}),
            id="what stands beside it is nonsense",
        ),
        pytest.param(
            lambda w: w.change(
                "products",
                "p",
                {"$set": {"_copies.supplierName": ["nonsense", {"of": "ann", "v": "7"}]}},
            ),
            id="and so is its entry",
        ),
        pytest.param(
            lambda w: w.change("products", "p", {"$set": {"version": "seven"}}),
            id="the count of writes is no number",
        ),
    ],
)
async def test_changes_of_a_copy_by_another_program_are_reverted(
    world: World, write: Write
) -> None:
    """The copy and its guard are restored."""
    await shop(world)
    await write(world)
    await world.settle()
    assert world.copy_of("p") == "Ann"
    if world.number("p") != "seven":
        assert ("ann", 1) in world.entries("p")
    await world.supplier("ann", "Anna")
    await world.settle()
    assert world.copy_of("p") == "Anna"


async def test_the_sources_are_dropped(world: World) -> None:
    """A dropped collection deletes each source."""
    await shop(world)
    await world.product("q", "bob")
    await world.settle()
    await world.write("suppliers", {"delete": "suppliers", "deletes": [{"q": {}, "limit": 0}]})
    await world.settle()
    assert (world.copy_of("p"), world.copy_of("q")) == (None, None)


async def test_a_source_without_the_value_gives_null(world: World) -> None:
    """A missing field and a null field are copied as null."""
    await world.put("suppliers", "ann", {})
    await world.supplier("bob", None)
    await world.product("p", "ann")
    await world.product("q", "bob")
    await world.settle()
    assert (world.copy_of("p"), world.copy_of("q")) == (None, None)


async def test_changes_of_other_fields_cause_no_writes(world: World) -> None:
    """Neither another change of the source nor a write of the product writes the copy."""
    await shop(world)
    for rank in range(5):
        await world.change("suppliers", "ann", {"$set": {"rank": rank}})
        await world.change("products", "p", {"$set": {"rank": rank}})
        await world.settle()
    assert (world.number("p"), world.entries("p")) == (1, [("ann", 1)])


async def test_only_the_last_name_of_a_long_history_is_copied(world: World) -> None:
    """Earlier names are skipped."""
    await world.product("p", "ann")
    for n in range(9):
        await world.supplier("ann", f"Ann {n}")
    await world.settle()
    assert (world.copy_of("p"), world.number("p")) == ("Ann 8", 1)


# -- interleaved


async def renamed(world: World) -> None:
    await world.supplier("ann", "Anna")


async def moved(world: World) -> None:
    await world.change("products", "p", {"$set": {"supplierId": "ann"}})


async def sources_seen(world: World) -> None:
    await world.record("suppliers")
    await world.handled("sources")


async def targets_seen(world: World) -> None:
    await world.record("products")
    await world.handled("targets")


@pytest.mark.parametrize(
    "order",
    [
        order
        for order in permutations([renamed, moved, sources_seen, targets_seen])
        if order.index(renamed) < order.index(sources_seen)
        or order.index(moved) < order.index(targets_seen)
    ],
    ids=lambda order: " ".join(each.__name__ for each in order),
)
async def test_every_order_of_two_writes_and_two_sides(
    world: World, order: tuple[Write, ...]
) -> None:
    """A supplier is renamed while a product is assigned to it."""
    await world.supplier("ann", "Ann")
    await world.product("p", "bob")
    await world.settle()
    for step in order:
        await step(world)
    await world.settle()
    assert world.copy_of("p") == "Anna"


@pytest.mark.parametrize("side", BOTH)
@pytest.mark.parametrize("held", range(1, 7))
async def test_a_deposed_side_that_resumes_at_any_step_undoes_nothing(
    world: World, side: Side, held: int
) -> None:
    """It has read one name and is suspended; another process copies the next name; then it
    resumes.
    """
    await shop(world)
    await world.supplier("ann", "Anna")
    await world.change("products", "p", {"$set": {"rank": 1}})
    await recorded(world)
    await world.step(world.live[side], held)
    zombie = await world.depose(side)
    await world.supplier("ann", "Annie")
    await world.change("products", "p", {"$set": {"rank": 2}})
    await world.settle()
    assert world.copy_of("p") == "Annie"
    number = world.number("p")
    await world.late()
    assert zombie.ended
    assert (world.copy_of("p"), world.number("p")) == ("Annie", number)
    await world.settle()
    assert world.copy_of("p") == "Annie"


@pytest.mark.parametrize("held", range(1, 7))
async def test_a_deposed_side_meets_a_copy_whose_guard_is_lost(world: World, held: int) -> None:
    """Its wrong copy is corrected, since the loss of the guard has made a version."""
    await shop(world)
    await world.supplier("ann", "Anna")
    await recorded(world)
    await world.step(world.live["sources"], held)
    await world.depose("sources")
    await world.supplier("ann", "Annie")
    await world.settle()
    await world.product("p", "ann", supplierName="Annie", version=9)
    await world.late()
    await world.settle()
    assert world.copy_of("p") == "Annie"


# -- many


async def products(world: World, count: int, supplier: str) -> None:
    documents = [{"_id": f"{supplier}-{n:02}", "supplierId": supplier} for n in range(count)]
    await world.write("products", {"insert": "products", "documents": documents})


def copies(world: World, supplier: str) -> set[Any]:
    found = world._seen["products"]
    return {world.copy_of(key) for key in found if key.startswith(f"{supplier}-")}


async def jobs(world: World) -> list[tuple[str, int, int, int]]:
    found = await world.mongo.find(COLLECTION, {}, FindOptions(sort=[("_id", 1)]))
    return [(each["_id"]["source"], each["v"], each["done"], each["total"]) for each in found]


async def many(world: World) -> None:
    await world.supplier("ann", "Ann")
    await world.supplier("bob", "Bob")
    await products(world, 9, "ann")
    await products(world, 5, "bob")
    await world.settle()
    assert (copies(world, "ann"), copies(world, "bob")) == ({"Ann"}, {"Bob"})
    assert await jobs(world) == []


async def until_jobs(world: World, wanted: list[tuple[str, int, int, int]]) -> None:
    for _ in range(100):
        if await jobs(world) == wanted:
            return
        await world.step(world.live["sources"])
    raise AssertionError(f"{await jobs(world)}, and {wanted} was to come")


async def test_many_copies_are_written_in_chunks_and_in_turn(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Two suppliers' products are updated chunk by chunk in turn, and the log reports it."""
    await many(world)
    caplog.set_level(logging.INFO, logger="revstream.streams.listeners.copies.propagation_job")
    caplog.clear()
    await world.supplier("ann", "Anna")
    await world.supplier("bob", "Bobby")
    await world.record("suppliers")
    await until_jobs(world, [("ann", 2, 2, 9), ("bob", 2, 2, 5)])
    # The supplier of the last turn is the last one.
    await until_jobs(world, [("ann", 2, 2, 9), ("bob", 2, 4, 5)])
    await until_jobs(world, [("ann", 2, 4, 9), ("bob", 2, 4, 5)])
    await until_jobs(world, [("ann", 2, 4, 9)])
    await until_jobs(world, [("ann", 2, 6, 9)])
    await world.settle()
    assert (copies(world, "ann"), copies(world, "bob")) == ({"Anna"}, {"Bobby"})
    said = [(each.source, each.done) for each in caplog.records if each.message == "copied"]  # type: ignore[attr-defined]
    assert said == [("bob", 5), ("ann", 9)]


async def test_many_copies_do_not_keep_other_changes_waiting(world: World) -> None:
    """Another supplier that is renamed meanwhile is copied before the many are done."""
    await many(world)
    await world.supplier("carl", "Carl")
    await world.product("p", "carl")
    await world.settle()
    await world.supplier("ann", "Anna")
    await world.record("suppliers")
    await until_jobs(world, [("ann", 2, 2, 9)])
    await world.supplier("carl", "Carla")
    await world.record("suppliers")
    for _ in range(100):
        if world.copy_of("p") == "Carla":
            break
        await world.step(world.live["sources"])
    [(source, _, done, total)] = await jobs(world)
    assert (source, total) == ("ann", 9)
    assert done <= 4


@pytest.mark.parametrize("steps", range(0, 12, 2))
async def test_many_copies_continue_after_another_process(world: World, steps: int) -> None:
    """A process is killed at any step; one that was only suspended does no harm when it resumes."""
    await many(world)
    await world.supplier("ann", "Anna")
    await world.record("suppliers")
    await until_jobs(world, [("ann", 2, 2, 9)])
    await world.step(world.live["sources"], steps)
    zombie = await world.depose("sources")
    number = world.number("ann-00")
    await world.handled("sources")
    assert copies(world, "ann") == {"Anna"}
    assert world.number("ann-00") == number
    await world.supplier("ann", "Annie")
    await world.record("suppliers")
    await until_jobs(world, [("ann", 3, 2, 9)])
    await world.step(zombie, 4)
    await world.settle()
    await world.late()
    await world.settle()
    assert copies(world, "ann") == {"Annie"}


async def test_a_later_name_replaces_one_that_is_being_copied(world: World) -> None:
    """The work starts again, and no copy keeps the earlier name."""
    await many(world)
    await world.supplier("ann", "Anna")
    await world.record("suppliers")
    await until_jobs(world, [("ann", 2, 6, 9)])
    await world.supplier("ann", "Annie")
    await world.record("suppliers")
    await until_jobs(world, [("ann", 3, 2, 9)])
    await world.settle()
    assert copies(world, "ann") == {"Annie"}
    assert await jobs(world) == []


async def test_a_deposed_side_does_not_replace_the_job_of_a_later_name(world: World) -> None:
    """Otherwise the rest of the later name's copies would be lost."""
    await many(world)
    await world.supplier("ann", "Anna")
    await world.record("suppliers")
    for _ in range(20):
        if world.live["sources"].steps.next == "find_one_and_update":
            break
        await world.step(world.live["sources"])
    zombie = await world.depose("sources")
    assert zombie.steps.next == "find_one_and_update"
    await world.supplier("ann", "Annie")
    await world.record("suppliers")
    await until_jobs(world, [("ann", 3, 2, 9)])
    await world.step(zombie)
    assert await jobs(world) == [("ann", 3, 2, 9)]
    await world.handled("sources")
    assert copies(world, "ann") == {"Annie"}


async def test_targets_with_ids_of_all_types_are_found(world: World) -> None:
    """A chunk ends with an id of one type, and the next begins with one of another type."""
    await world.supplier("ann", "Ann")
    ids: list[Any] = [1, 2, 3, "a", "b", {"x": 1}, True]
    await world.mongo.insert_in_order(
        "products", [{"_id": each, "supplierId": "ann"} for each in ids]
    )
    await world.record("suppliers")
    for _ in range(40):
        await world.live["sources"].steps.advance()
    found = await world.mongo.find("products", {})
    assert {each.get("supplierName") for each in found} == {"Ann"}, found


# -- refused


VALIDATOR = {
    "collMod": "products",
    "validator": {"$or": [{"_id": {"$ne": "ann-03"}}, {"supplierName": {"$ne": "Anna"}}]},
}
GEO_INDEX = {
    "createIndexes": "products",
    "indexes": [
        {
            "name": "places",
            "key": {"supplierName": "2dsphere"},
            "partialFilterExpression": {"_id": "ann-03", "supplierName": "Anna"},
        }
    ],
}


@pytest.mark.parametrize("side", BOTH)
@pytest.mark.parametrize(
    ("refusing", "reason"), [(VALIDATOR, "validation"), (GEO_INDEX, "geo keys")]
)
async def test_a_refused_copy_does_not_block_others(
    world: World,
    side: Side,
    refusing: dict[str, Any],
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged and counted, and tried again with the next state."""
    await world.mongo.command({"create": "products"})
    await many(world)
    await world.mongo.command(refusing)
    await world.supplier("ann", "Anna")
    await recorded(world)
    if side == "targets":
        for n in range(9):
            await world.change("products", f"ann-{n:02}", {"$set": {"rank": n}})
        await recorded(world)
        await world.handled("targets")
    else:
        await world.handled("sources")
    found = {key: world.copy_of(key) for key in world._seen["products"] if key[:3] == "ann"}
    assert {key for key, name in found.items() if name != "Anna"} == {"ann-03"}
    assert world.live[side].handler.setter.refused == 1
    [line] = [each for each in caplog.records if each.message == "copy refused"]
    assert line.document == "ann-03"  # type: ignore[attr-defined]
    assert reason in line.reason  # type: ignore[attr-defined]
    await world.supplier("ann", "Annie")
    await world.settle()
    assert copies(world, "ann") == {"Annie"}


async def test_a_late_source_writes_nothing_to_a_former_target(world: World) -> None:
    """Removing the earlier source's entry alone would be a version without a visible change."""
    await shop(world)
    await world.change("products", "p", {"$set": {"supplierId": "bob"}})
    [copy] = copied_fields(SHOP)
    late = copy_pipeline(
        copy, [SourceState(source="ann", number=2, value="Anna", since=2)], "secret"
    )
    made = await world.mongo.command({"update": "products", "updates": [{"q": {}, "u": late}]})
    assert (made["n"], made["nModified"]) == (1, 0)
    await world.settle()
    assert (world.copy_of("p"), world.entries("p")) == ("Bob", [("bob", 1)])


# -- in lists


async def test_copies_in_a_list_of_embedded_documents(mongo: Mongo) -> None:
    """Each item is copied by its own reference, with a guard per source; items are added and
    removed.
    """
    world = await World(mongo, BASKETS).begin()
    try:
        lines: list[dict[str, Any]] = [
            {"supplierId": "ann"},
            {"supplierId": "bob", "n": 2},
            {"supplierId": "ann"},
            {"n": 4},
        ]
        await world.put("products", "p", {"lines": lines})
        await world.put("products", "q", {"lines": "none"})
        await world.supplier("ann", "Ann")
        await world.supplier("bob", "Bob")
        await world.settle()
        assert world._seen["products"]["p"]["lines"] == [
            {"supplierId": "ann", "supplierName": "Ann"},
            {"supplierId": "bob", "n": 2, "supplierName": "Bob"},
            {"supplierId": "ann", "supplierName": "Ann"},
            {"n": 4},
        ]
        assert sorted(world.entries("p")) == [("ann", 1), ("bob", 1)]
        number = world.number("p")
        await world.supplier("bob", "Bobby")
        await world.settle()
        assert world._seen["products"]["p"]["lines"][1]["supplierName"] == "Bobby"
        assert world.number("p") == number + 1
        await world.change("products", "p", {"$pull": {"lines": {"supplierId": "ann"}}})
        await world.change("products", "p", {"$push": {"lines": {"supplierId": "nobody"}}})
        await world.settle()
        assert sorted(world.entries("p")) == [("bob", 2), ("nobody", 0)]
        assert world._seen["products"]["q"] == {"_id": "q", "lines": "none"}
    finally:
        await world.end()
