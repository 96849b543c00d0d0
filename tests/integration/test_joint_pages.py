"""Pages that are asked for together: each is the one that a read of its own would find."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import bson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient, WriteConcern

from model.entities import Entity
from resolvers import joint_pages
from resolvers.current import Current
from resolvers.filters import parse_where
from resolvers.joint_pages import JointPages
from resolvers.pages import PLACED, page_request
from resolvers.queries import to_query
from streams.archive import Archive
from streams.documents import SHOWN
from streams.errors import DatabaseError
from streams.layouts.archived import Archived
from streams.mongo import Mongo
from streams.unions import PageUnion
from tests.integration.conftest import Commands, KeptShop
from tests.support.archives import nothing_written
from tests.support.drawn import batches
from tests.support.shapes import SHAPES, THING
from tests.support.shop import PRODUCT, SHOP, SUPPLIER

Client = MongoClient[dict[str, Any]]
Row = dict[str, Any]

FIELDS = frozenset({"name", "stock"})
WAIT = "function() { const end = Date.now() + 20; while (Date.now() < end) {} return true; }"
SLOW = {"$expr": {"$function": {"body": WAIT, "args": [], "lang": "js"}}}


def current(mongo: Mongo) -> Current:
    return Current(
        mongo, {PRODUCT.collection: Archive(mongo, PRODUCT.collection)}, nothing_written()
    )


async def page(reads: Current, entity: Entity = PRODUCT, **more: Any) -> list[Row]:
    asked = {"where": None, "order": None, "page": page_request(2), "fields": FIELDS, **more}
    found = await reads.read(reads.reading(entity, **asked), shown=True, joint=True)
    return found.items


async def names(reads: Current, below: int, size: int = 3, **more: Any) -> list[Any]:
    """The ids of a page of those that are below it."""
    where = parse_where(SHOP, PRODUCT, {"stock": {"lt": below}})
    found = await page(reads, where=where, page=page_request(size), **more)
    return [each["_id"] for each in found]


def stock(client: Client, mongo: Mongo, count: int = 9) -> None:
    client[mongo.name][PRODUCT.collection].insert_many(
        [{"_id": f"p{n}", "name": f"Product {n}", "stock": n} for n in range(count)]
    )


async def test_those_of_one_turn_are_one_command(
    counted: Mongo, commands: Commands, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as eight; each its own, the empty ones too, in whatever order they were asked for."""
    monkeypatch.setattr(joint_pages, "_MOST_S", 30.0)
    stock(client, counted)
    reads = current(counted)
    bounds = [4, 0, 1, 9, 0, 2, 2]
    with commands.counting() as started:
        found = await asyncio.gather(*(names(reads, each) for each in bounds))
    assert found == [[f"p{n}" for n in range(min(each, 3))] for each in bounds]
    assert list(started) == ["aggregate"]
    assert (reads.joint_pages.pools.asked, reads.joint_pages.pools.reads) == (7, 1)
    with commands.counting() as started:
        found = await asyncio.gather(*(names(reads, 1) for _ in range(17)))
    assert found == [["p0"]] * 17
    assert sorted(started) == ["aggregate", "aggregate", "find"]
    with commands.counting() as started:
        found = await asyncio.gather(*(names(reads, 2, 50) for _ in range(2)))
    assert found == [["p0", "p1"]] * 2
    assert list(started) == ["aggregate"]


async def test_one_by_itself_is_a_find(counted: Mongo, commands: Commands, client: Client) -> None:
    stock(client, counted)
    with commands.counting() as started:
        assert await names(current(counted), 2) == ["p0", "p1"]
    assert list(started) == ["find"]


async def test_what_is_not_alike_is_read_apart(
    counted: Mongo, commands: Commands, client: Client
) -> None:
    """Pages of another size; long ones; with a total or a moment, which are more than one read."""
    stock(client, counted)
    reads = current(counted)
    with commands.counting() as started:
        found = await asyncio.gather(
            *(names(reads, 9, 2), names(reads, 9, 3), names(reads, 9, 51), names(reads, 9, 51)),
            *(names(reads, 9, 2, total=True), names(reads, 9, 2, token=True)),
        )
    all_ = [f"p{n}" for n in range(9)]
    assert found == [all_[:2], all_[:3], all_, all_, all_[:2], all_[:2]]
    assert sorted(started) == ["aggregate", *["find"] * 6, "hello"]


async def test_only_pages_of_one_collection_with_the_same_fields_in_the_same_order_are(
    counted: Mongo, commands: Commands, client: Client
) -> None:
    stock(client, counted)
    client[counted.name][SUPPLIER.collection].insert_one({"_id": "s", "name": "Supplier"})
    reads = current(counted)
    by_name = [("name", "DESC")]
    with commands.counting() as started:
        found = await asyncio.gather(
            page(reads, page=page_request(1), fields=frozenset({"name"})),
            page(reads, SUPPLIER, page=page_request(1), fields=frozenset({"name"})),
            page(reads, page=page_request(1), fields=frozenset({"stock"})),
            page(reads, page=page_request(last=1), fields=frozenset({"name"})),
            page(reads, page=page_request(1), fields=frozenset({"name"}), order=by_name),
            page(reads, page=page_request(1), fields=frozenset({"name"}), order=by_name),
        )
    last = {"_id": "p8", "name": "Product 8"}
    assert [[{**each, PLACED: None} for each in items] for items in found] == [
        [{**each, PLACED: None}]
        for each in (
            {"_id": "p0", "name": "Product 0"},
            {"_id": "s", "name": "Supplier"},
            *({"_id": "p0", "stock": 0}, last, last, last),
        )
    ]
    assert list(started) == ["find"] * 6


async def test_text_is_compared_by_code_point_whatever_the_collection_says(
    mongo: Mongo, client: Client
) -> None:
    """As by a `find`."""
    things = client[mongo.name].create_collection(
        "things", collation={"locale": "en", "strength": 1}
    )
    things.insert_many([{"_id": n, "t": text} for n, text in enumerate("aAàb")])
    queries = [{"t": {"$lte": "a"}}, {"t": "A"}]
    union = PageUnion(queries=queries, projection={"_id": 1}, sort=[("_id", 1)], limit=9)
    found = await mongo.find_each("things", union, most_s=30.0)
    assert found == [[{"_id": 0}, {"_id": 1}], [{"_id": 1}]]


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(batches(), st.integers(1, 4), st.sampled_from([1, -1]))
def test_each_is_what_a_read_of_its_own_finds(
    mongo_uri: str,
    database_name: str,
    client: Client,
    drawn: tuple[list[Row], list[Row]],
    limit: int,
    direction: int,
) -> None:
    """To the byte, whatever is stored and by whatever filter."""
    documents, filters = drawn
    things = client.get_database(database_name, write_concern=WriteConcern(w=1, j=False)).things
    things.delete_many({})
    things.insert_many([{"_id": n, **each} for n, each in enumerate(documents)])
    queries = [to_query(parse_where(SHAPES, THING, each)) for each in filters]
    read: dict[str, Any] = {
        "projection": {"_id": 1, "t": 1, "size.corner.x": 1, "lines.size": 1, "attributes": 1},
        "sort": [("_id", direction)],
        "limit": limit,
    }

    async def compare() -> None:
        async with Mongo.connect(mongo_uri, database_name) as mongo:
            union = PageUnion(queries=queries, **read)
            together = await mongo.find_each("things", union, most_s=30.0)
            apart = [await mongo.find("things", each, naive=True, **read) for each in queries]
            assert together is not None
            assert list(map(encoded, together)) == list(map(encoded, apart))

    asyncio.run(compare())


def encoded(page: Sequence[Row]) -> list[bytes]:
    return [bson.encode(each, codec_options=SHOWN) for each in page]


async def rows(
    pages: JointPages, mongo: Mongo, *queries: Mapping[str, Any], size: int = 1
) -> list[Any]:
    """An id more than `size`, or what was raised, of pages that are asked for together."""
    reading = current(mongo).reading(
        PRODUCT, where=None, order=None, page=page_request(size), fields=FIELDS
    )
    layout = Archived(mongo, PRODUCT.collection)
    found = await asyncio.gather(
        *(pages.rows(replace(reading, windowed=each), layout) for each in queries),
        return_exceptions=True,
    )
    return [
        each if isinstance(each, BaseException) else [document["_id"] for document in each]
        for each in found
    ]


async def test_one_that_is_refused_takes_nothing_from_the_others(
    counted: Mongo, commands: Commands, client: Client
) -> None:
    """It alone is told why, by its own read; and for a while each is read by itself."""
    stock(client, counted)
    pages = JointPages()
    wrong, right = {"stock": {"$nonsense": 1}}, {"stock": {"$gt": 6}}
    first, refused, last = await rows(pages, counted, {}, wrong, right)
    assert (first, last) == (["p0", "p1"], ["p7", "p8"])
    assert isinstance(refused, DatabaseError)
    assert "unknown operator: $nonsense" in str(refused)
    with commands.counting() as started:
        assert await rows(pages, counted, {}, right) == [["p0", "p1"], ["p7", "p8"]]
    assert list(started) == ["find"] * 2


async def test_one_that_cannot_even_be_sent_takes_nothing_from_the_others(
    mongo: Mongo, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a mistake of ours, and is said."""
    stock(client, mongo)
    first, refused = await rows(JointPages(), mongo, {}, {"stock": 2**70})
    assert first == ["p0", "p1"]
    assert isinstance(refused, OverflowError)
    assert "2 pages are read one by one: " in caplog.text


async def test_one_that_takes_its_time_does_not_hold_the_others(
    counted: Mongo, commands: Commands, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ends; each is read by itself, until those have had their rest."""
    stock(client, counted)
    pages = JointPages()
    with commands.counting() as started:
        quick, slow = await rows(pages, counted, {}, SLOW)
        assert (quick, slow) == (["p0", "p1"], ["p0", "p1"])
        assert list(started) == ["aggregate", "find", "find"]
        await rows(pages, counted, {}, {})
        assert list(started)[3:] == ["find", "find"]
        monkeypatch.setattr(joint_pages, "_REST_S", 0.0)
        pages = JointPages()
        await rows(pages, counted, {}, SLOW)
        monkeypatch.setattr(joint_pages, "_MOST_S", 30.0)
        assert await rows(pages, counted, {}, {}) == [["p0", "p1"]] * 2
        assert list(started)[5:] == ["aggregate", "find", "find", "aggregate"]


async def test_kinds_that_have_had_their_rest_are_forgotten(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes up kinds of pages takes no memory by it."""
    monkeypatch.setattr(joint_pages, "_REST_S", 0.0)
    pages = JointPages()
    for size in range(1, 6):
        wrong = {"stock": {"$nonsense": 1}}
        refused = await rows(pages, mongo, wrong, wrong, size=size)
        assert all(isinstance(each, DatabaseError) for each in refused)
    assert len(pages._resting) == 1


@pytest.mark.asyncio(loop_scope="module")
async def test_in_whichever_layout_each_is_its_own(kept: KeptShop) -> None:
    """Also where the collection keeps versions itself, and they are read one by one."""
    gateway = kept.shop.gateway
    entity, program = gateway.model.entity("Product"), kept.program()
    for key in ("a", "b", "c"):
        await asyncio.to_thread(program.write, key, {"name": key})

    async def found(name: str) -> list[Row]:
        where = parse_where(gateway.model, entity, {"name": {"lte": name}})
        return await page(gateway.current, entity, where=where, fields=frozenset({"name"}))

    for _ in range(2):
        pages = await asyncio.gather(*map(found, ("c", "_", "a", "b")))
        assert [[each["_id"] for each in items] for items in pages] == [
            ["a", "b"],
            [],
            ["a"],
            ["a", "b"],
        ]
