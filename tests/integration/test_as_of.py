"""Filtered, sorted and paged as-of reads of a collection, compared with a plain replay of its
writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from bson.int64 import Int64
from bson.objectid import ObjectId
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.model.definition import Entity, Storage
from revstream.resolvers.filters.expression import Condition
from revstream.resolvers.filters.parser import parse_where
from revstream.resolvers.filters.predicate import compile_predicate
from revstream.resolvers.history import collection_as_of
from revstream.resolvers.history.collection_as_of import CollectionAsOf
from revstream.resolvers.pagination.page import Page, PageRequest
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.mongo.database import Mongo
from revstream.streams.versioning.version import Version
from tests.integration.conftest import Commands
from tests.support.archives import Scribe, at
from tests.support.bson_order import sort_key
from tests.support.exhaustive import examples
from tests.support.shop import PRODUCT, SHOP

Client = MongoClient[dict[str, Any]]
State = dict[str, tuple[int, dict[str, Any]]]

KEYS = "abcdefgh"
BODIES = st.none() | st.fixed_dictionaries(
    {"stock": st.integers(0, 3)},
    optional={
        "name": st.sampled_from(["x", "y", None]),
        "size": st.fixed_dictionaries({}, optional={"w": st.integers(0, 2)}) | st.none(),
    },
)
WRITES = st.lists(
    # Pauses from none (one transaction) to ten years, so that versions are current
    # for spans of any length.
    st.tuples(st.sampled_from(KEYS), BODIES, st.sampled_from([0, 0, 1, 2, 7, 60, 5000, 3 * 10**8])),
    max_size=30,
)
# Cluster times end in 2106.
LATEST = 2_500_000_000
WHERES = st.sampled_from(
    [
        None,
        {"stock": {"gte": 2}},
        {"name": {"exists": False}},
        {"id": {"in": ["b", "d", "z"]}, "stock": {"ne": 1}},
        {"version": {"gt": 2}},
        {"or": []},
    ]
)
ORDERS = st.sampled_from(
    [
        (),
        (("id", "DESC"),),
        (("stock", "DESC"),),
        (("name", "ASC"), ("stock", "DESC"), ("id", "ASC")),
        (("version", "ASC"),),
        (("size.w", "DESC"), ("stock", "ASC")),
    ]
)


def replayed(scribe: Scribe, moment: int) -> State:
    """Return number and content of each document after the writes of the first `moment` seconds."""
    state: State = {}
    for record in scribe.records:
        if record["at"] <= at(moment):
            state.pop(record["doc"], None)
            if record["full"] is not None:
                state[record["doc"]] = (record["v"], dict(record["full"]))
    return state


def expected(state: State, said: Any, order: tuple[tuple[str, str], ...]) -> list[str]:
    """Return the ids that match, in order, by the predicate; numbers count where documents have
    them.
    """
    matches = compile_predicate(parse_where(SHOP, PRODUCT, said))
    found = [
        {**full, "version": number}
        for number, full in state.values()
        if matches({**full, "version": number})
    ]
    last = order[-1][1] if order else "ASC"
    names = [*order, ("id", last)] if ("id", "ASC") not in order else list(order)
    for name, direction in reversed(names):
        stored = "_id" if name == "id" else name
        found.sort(
            key=lambda each, s=stored: sort_key(value_at(each, s)), reverse=direction == "DESC"
        )
    return [each["_id"] for each in found]


def value_at(document: Mapping[str, Any] | None, path: str) -> Any:
    """Return the value at a path; None where it is missing."""
    for name in path.split("."):
        document = document.get(name) if isinstance(document, Mapping) else None
    return document


PACKED = replace(PRODUCT, storage=Storage.DELTA)


@pytest.mark.parametrize(
    ("walk_most", "entity"),
    [(0, PRODUCT), (3, PRODUCT), (500, PRODUCT), (3, PACKED)],
    ids=["sweep", "both", "walk", "packed"],
)
@settings(
    deadline=None,
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), writes=WRITES, said=WHERES, order=ORDERS, size=st.integers(1, 5))
async def test_pages_equal_those_of_a_plain_replay(
    mongo: Mongo,
    monkeypatch: pytest.MonkeyPatch,
    walk_most: int,
    entity: Entity,
    data: st.DataObject,
    writes: list[tuple[str, dict[str, Any] | None, int]],
    said: dict[str, Any] | None,
    order: tuple[tuple[str, str], ...],
    size: int,
) -> None:
    """Pages in both directions equal the replay by walk, by sweep, and by a walk that becomes a
    sweep.
    """
    monkeypatch.setattr(collection_as_of, "_WALK_MOST", walk_most)
    monkeypatch.setattr(collection_as_of, "_PORTION", 2)
    monkeypatch.setattr("revstream.streams.versioning.content_encoding._WORTH_IT", 0)
    await mongo.command({"delete": "products.versions", "deletes": [{"q": {}, "limit": 0}]})
    scribe = Scribe(mongo, entity)
    second, near = 0, {0}
    for key, body, pause in writes:
        second = min(second + pause, LATEST)
        near |= {second - 1, second, second + 1}
        if body is not None or key in scribe.present:
            scribe.write(key, body, at(second, 1))
    await scribe.save()
    moment = data.draw(st.sampled_from(sorted(near)), label="moment")
    reading = CollectionAsOf(
        mongo,
        scribe.archive,
        PRODUCT,
        at(moment),
        PageQuery(
            where=None if said is None else parse_where(SHOP, PRODUCT, said),
            order=order,
            page=PageRequest(first=size),
            fields=frozenset({"stock", "name"}),
            total=True,
        ),
    )
    state = replayed(scribe, moment)
    ids = expected(state, said, order)
    for forwards in (True, False):
        versions = await walked(reading, size, forwards=forwards, total=len(ids))
        assert [each.document for each in versions] == ids
        shown = [(each.number, _asked(each.full)) for each in versions]
        assert shown == [(state[each][0], _asked(state[each][1])) for each in ids]


@pytest.mark.parametrize("entity", [PRODUCT, PACKED], ids=["whole", "packed"])
async def test_documents_that_cannot_be_sorted_are_left_out(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch, entity: Entity
) -> None:
    """MongoDB sorts nothing if a document has lists in two fields of the order."""
    monkeypatch.setattr("revstream.streams.versioning.content_encoding._WORTH_IT", 0)
    scribe = Scribe(mongo, entity)
    for second in (1, 2):
        for n, key in enumerate(KEYS[:4]):
            scribe.write(key, {"name": f"n{n}", "stock": second}, at(second))
    scribe.write("b", {"name": ["x", "y"], "stock": [1, 2]}, at(3))
    await scribe.save()
    order = (("name", "DESC"), ("stock", "ASC"))
    query = PageQuery(
        order=order, page=PageRequest(first=3), fields=frozenset({"name"}), total=True
    )
    page = await plain(mongo, scribe.archive, 3, query).page()
    assert [each.document for each in page.items] == ["d", "c", "a"]
    assert (page.total, page.has_next) == (4, False)
    assert page.unordered == ("lists in more than one of name, stock",)


MIXED = [*KEYS[:5], 1, 2.5, 3, Int64(2**40), ObjectId(24 * "5"), None]


@settings(
    deadline=None,
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    data=st.data(),
    keys=st.sampled_from([list(KEYS), [1, 2, 3, 4, Int64(5), Int64(6)], MIXED]),
    entity=st.sampled_from([PRODUCT, PACKED]),
)
async def test_a_page_is_not_affected_by_later_writes(
    mongo: Mongo,
    monkeypatch: pytest.MonkeyPatch,
    data: st.DataObject,
    keys: list[Any],
    entity: Entity,
) -> None:
    """Later documents and purged documents do not matter, for any time point and any ids."""
    monkeypatch.setattr("revstream.streams.versioning.content_encoding._WORTH_IT", 0)
    await mongo.command({"delete": "products.versions", "deletes": [{"q": {}, "limit": 0}]})
    scribe = Scribe(mongo, entity)
    erased: set[Any] = set()
    for second in range(data.draw(st.integers(2, 8), label="steps")):
        match data.draw(st.sampled_from(["write", "write", "delete", "erase"]), label="what"):
            case "write":
                for key in data.draw(st.lists(st.sampled_from(keys), max_size=6, unique=True)):
                    if identity(key) not in erased:
                        scribe.write(key, {"stock": second}, at(second))
            case "delete":
                for name in data.draw(st.sets(st.sampled_from([*scribe.present] or [None]))):
                    if name in scribe.present:
                        scribe.write(scribe.present[name]["_id"], None, at(second))
            case _:
                for name in data.draw(st.sets(st.sampled_from([*scribe.present] or [None]))):
                    if name in scribe.present:
                        await scribe.save()
                        erased.add(name)
                        gone = {"doc": {"$eq": scribe.present.pop(name)["_id"]}}
                        deletion = {"q": gone, "limit": 0}
                        await mongo.command({"delete": "products.versions", "deletes": [deletion]})
        await scribe.save()
        for moment in data.draw(st.lists(st.integers(0, second), max_size=3), label="moments"):
            forwards = data.draw(st.booleans(), label="forwards")
            direction = data.draw(st.sampled_from(["ASC", "DESC"]), label="direction")
            size = data.draw(st.integers(1, 3), label="size")
            query = PageQuery(
                order=(("id", direction),),
                page=PageRequest(first=size),
                fields=frozenset({"stock", "name"}),
                total=True,
            )
            reading = plain(mongo, scribe.archive, moment, query)
            stood = {
                record["doc"]: record["v"]
                for record in scribe.records
                if record["at"] <= at(moment) and identity(record["doc"]) not in erased
            }
            there = {
                (record["doc"], record["v"])
                for record in scribe.records
                if record["full"] is not None
            }
            expected = [each for each in stood.items() if each in there]
            expected.sort(key=lambda each: sort_key(each[0]), reverse=direction == "DESC")
            versions = await walked(reading, size, forwards=forwards, total=len(expected))
            assert [(each.document, each.number) for each in versions] == expected


async def test_a_page_in_id_order_takes_two_reads(counted: Mongo, commands: Commands) -> None:
    """It reads the ids and their versions, however many documents follow."""
    scribe = Scribe(counted, PRODUCT)
    for n in range(200):
        scribe.write(n, {"stock": n}, at(n // 10))
    await scribe.save()
    with commands.counting() as started:
        query = PageQuery(page=PageRequest(first=20), fields=frozenset({"stock"}))
        page = await plain(counted, scribe.archive, 19, query).page()
    assert outline(page) == [f"{n}@1" for n in range(20)]
    assert started == ["find", "aggregate"]


@pytest.mark.parametrize("direction", ["ASC", "DESC"])
async def test_a_page_lies_between_its_two_cursors(mongo: Mongo, direction: str) -> None:
    scribe = Scribe(mongo, PRODUCT)
    for n in range(30):
        scribe.write(n, {"stock": n}, at(0))
    await scribe.save()

    async def read(order: str, **request: Any) -> tuple[list[Any], Sequence[str]]:
        query = PageQuery(order=(("id", order),), page=PageRequest(**request), fields=frozenset())
        page = await plain(mongo, scribe.archive, 1, query).page()
        return [each.document for each in page.items], page.cursors

    everything, cursors = await read(direction, first=30)
    await read("ASC" if direction == "DESC" else "DESC", first=30)
    for way in ("first", "last"):
        for begin, end in [(2, 5), (None, 5), (25, None)]:
            request: dict[str, Any] = {way: 20}
            if begin is not None:
                request["after"] = cursors[begin]
            if end is not None:
                request["before"] = cursors[end]
            expected = everything[0 if begin is None else begin + 1 : end]
            assert (await read(direction, **request))[0] == expected


def _asked(full: dict[str, Any] | None) -> dict[str, Any]:
    """Return the requested fields; a reconstructed content may have more."""
    assert full is not None
    return {name: full[name] for name in ("_id", "stock", "name") if name in full}


async def walked(
    reading: CollectionAsOf, size: int, *, forwards: bool, total: int
) -> list[Version]:
    """Return the items of all pages."""
    request = PageRequest(first=size) if forwards else PageRequest(last=size)
    seen: list[Version] = []
    while True:
        page = await reading.page(request)
        assert page.total == total
        if forwards:
            seen += page.items
            request = PageRequest(first=size, after=page.cursors[-1] if page.cursors else None)
        else:
            seen = page.items + seen
            request = PageRequest(last=size, before=page.cursors[0] if page.cursors else None)
        if not (page.has_next if forwards else page.has_previous):
            return seen


@pytest.mark.parametrize("walk_most", [0, 500], ids=["sweep", "walk"])
async def test_a_content_stored_elsewhere_is_loaded_before_the_row_rule_applies(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch, walk_most: int
) -> None:
    """An initial snapshot may store the first such content between the check and the read.

    A row rule for a missing field would otherwise let the document through.
    """
    monkeypatch.setattr(collection_as_of, "_WALK_MOST", walk_most)
    monkeypatch.setattr("revstream.streams.versioning.content_encoding._WORTH_IT", 0)
    scribe = Scribe(mongo, PACKED)
    scribe.write("a", {"stock": 2}, at(1))
    scribe.write("b", {"stock": 2}, at(1))
    scribe.write("a", {"stock": 1}, at(2))
    await scribe.save()
    where = parse_where(SHOP, PRODUCT, {"stock": {"ne": 1}})
    query = PageQuery(
        where=where, page=PageRequest(first=5), fields=frozenset({"stock"}), total=True
    )
    reading = CollectionAsOf(mongo, scribe.archive, PRODUCT, at(3), query)

    async def none_yet() -> bool:
        return False

    assert await scribe.archive.has_packed()
    monkeypatch.setattr(scribe.archive, "has_packed", none_yet)
    page = await reading.page()
    assert (outline(page), page.total) == (["b@1"], 1)


def plain(
    mongo: Mongo, archive: Archive, second: int, query: PageQuery[Condition]
) -> CollectionAsOf:
    """Return an as-of read without a filter."""
    return CollectionAsOf(mongo, archive, PRODUCT, at(second), query)


def outline(page: Page[Version]) -> list[str]:
    return [f"{each.document}@{each.number}" for each in page.items]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    ("where", "order", "matching"),
    [
        ({}, "stock", 50),
        ({"stock": {"gte": 0}}, "stock", 50),
        ({"id": {"in": ["03", "07"]}}, "stock", 2),
        ({"id": {"ne": "03"}}, "stock", 49),
        ({"stock": {"lt": 0}}, "id", 0),
        ({"id": {"ne": "03"}, "stock": {"lt": 0}}, "id", 0),
    ],
)
async def test_the_current_versions_are_found_without_reading_the_others(
    mongo: Mongo,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    where: dict[str, Any],
    order: str,
    matching: int,
    backwards: bool,
) -> None:
    """A read takes a few index keys per document, however many versions it has; also after a walk
    has become a sweep.
    """
    monkeypatch.setattr(collection_as_of, "_WALK_MOST", 10)
    scribe = Scribe(mongo, PRODUCT)
    for second in range(40):
        for key in range(50):
            scribe.write(f"{key:02}", {"stock": second}, at(100 * second, key + 1))
    await scribe.save()
    profile = client[mongo.name]["system.profile"]
    for second in (50, 2050, 3950):
        reading = CollectionAsOf(
            mongo,
            scribe.archive,
            PRODUCT,
            at(second),
            PageQuery(
                where=parse_where(SHOP, PRODUCT, where),
                order=((order, "DESC" if backwards else "ASC"),),
                page=PageRequest(first=5),
                fields=None,
                total=True,
            ),
        )
        client[mongo.name].command({"profile": 2})
        page = await reading.page()
        client[mongo.name].command({"profile": 0})
        read = list(profile.find({"command.aggregate": "products.versions"}))
        client[mongo.name].drop_collection("system.profile")
        assert page.total == matching
        assert len(page.items) == min(5, matching)
        assert len(read) >= 2
        for each in read:
            assert each["keysExamined"] <= 4 * 50 + 4, each


async def test_a_page_in_id_order_skips_missing_documents(
    counted: Mongo, commands: Commands
) -> None:
    """Later documents cost nothing, deleted ones one lookup each."""
    scribe = Scribe(counted, PRODUCT)
    for key in range(30):
        scribe.write(f"later {key}", {"stock": 1}, at(50))
        scribe.write(f"there {key}", {"stock": 1}, at(1))
    await scribe.save()
    with commands.counting() as started:
        query = PageQuery(page=PageRequest(first=5), fields=None)
        page = await plain(counted, scribe.archive, 10, query).page()
    assert outline(page) == [f"there {key}@1" for key in (0, 1, 10, 11, 12)]
    assert started == ["find", "aggregate"]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("size", [19, 40])
async def test_the_cost_of_a_page_does_not_depend_on_the_number_of_versions(
    mongo: Mongo, client: Client, backwards: bool, size: int
) -> None:
    """One key for each skipped document and two for its version, also at the end of the
    collection.
    """
    scribe = Scribe(mongo, PRODUCT)
    for second in range(40):
        for key in range(30):
            scribe.write(f"{key:02}", {"stock": second}, at(100 * second, key + 1))
    await scribe.save()
    client[mongo.name].command({"profile": 2})
    order = (("id", "DESC"),) if backwards else ()
    keys = [f"{key:02}@21" for key in range(30)]
    query = PageQuery(order=order, page=PageRequest(first=size), fields=None)
    page = await plain(mongo, scribe.archive, 2050, query).page()
    assert outline(page) == (keys[::-1] if backwards else keys)[:size]
    client[mongo.name].command({"profile": 0})
    profiled = list(
        client[mongo.name]["system.profile"].find({"ns": f"{mongo.name}.products.versions"})
    )
    assert len(profiled) == 2
    # One more, for `hasNextPage`.
    passed = min(size + 1, 30)
    assert sum(each["keysExamined"] for each in profiled) <= 3 * passed + 1
    assert sum(each["docsExamined"] for each in profiled) <= 2 * passed
