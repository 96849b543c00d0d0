"""Reads of current documents: in the requested order, with a constant number of commands."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId
from bson.timestamp import Timestamp
from pymongo import MongoClient

from revstream.resolvers.current.documents import Current
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.parser import Condition, parse_where
from revstream.resolvers.pagination.page import SORT_KEY, page_request
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.streams.archive.store import Archive
from revstream.streams.core import resume_tokens
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from tests.integration.conftest import Commands
from tests.support.archives import Scribe, at, nothing_written
from tests.support.shop import PRODUCT, SHOP

Client = MongoClient[dict[str, Any]]


NAME = frozenset({"name"})
# The documents of these tests do not change during reads.
NOW = resume_tokens.time_prefix(Timestamp(2**32 - 1, 0))


def where(said: Mapping[str, Any]) -> Condition:
    return parse_where(SHOP, PRODUCT, said)


def current(mongo: Mongo) -> Current:
    archives = {PRODUCT.collection: Archive(mongo, PRODUCT.collection)}
    return Current(mongo, archives, nothing_written())


def product(number: int, **fields: Any) -> dict[str, Any]:
    return {"_id": f"p{number:03}", "name": f"Product {number}", **fields}


def names(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    return [each["_id"] for each in documents]


async def test_concurrent_pages_are_separate_reads(
    counted: Mongo, commands: Commands, client: Client
) -> None:
    """Rows of different callers cannot be mixed up by the order of one result."""
    stored = client[counted.name][PRODUCT.collection]
    stored.insert_many([product(number, stock=number) for number in range(9)])
    reads = current(counted)

    async def page(below: int) -> list[str]:
        query = PageQuery(
            where=where({"stock": {"lt": below}}),
            page=page_request(3),
            fields=NAME,
            for_output=True,
        )
        return names((await reads.read(reads.prepare_read(PRODUCT, query))).items)

    bounds = [4, 0, 1, 9, 0, 2, 2]
    with commands.counting() as started:
        found = await asyncio.gather(*map(page, bounds))
    assert found == [[f"p{n:03}" for n in range(min(each, 3))] for each in bounds]
    assert list(started) == ["find"] * len(bounds)


async def test_documents_are_returned_in_the_order_of_the_ids(mongo: Mongo, client: Client) -> None:
    """A repeated id gives its document twice, a missing one None; only the requested fields are
    read.
    """
    stored = client[mongo.name][PRODUCT.collection]
    stored.insert_many(
        [product(number, price=number, size={"w": 1, "h": 2}) for number in range(5)]
    )
    found = await current(mongo).by_ids(
        PRODUCT, ["p003", "p999", "p001", "p003"], frozenset({"name", "size.w"})
    )
    three = {"_id": "p003", "name": "Product 3", "size": {"w": 1}}
    one = {"_id": "p001", "name": "Product 1", "size": {"w": 1}}
    assert found == [three, None, one, three]
    assert await current(mongo).by_ids(PRODUCT, [], NAME) == []


async def test_a_single_document_is_read_by_an_id_lookup(mongo: Mongo, client: Client) -> None:
    """An id that looks like a condition is a value, too."""
    database = client[mongo.name]
    ids: list[Any] = ["p1", 7, ObjectId(), {"a": 1}, Decimal128("1.5")]
    database[PRODUCT.collection].insert_many([{"_id": each, "name": "x"} for each in ids])
    database.command({"profile": 2})
    for each in ids:
        [found] = await current(mongo).by_ids(PRODUCT, [each], NAME)
        assert found == {"_id": each, "name": "x"}
    database.command({"profile": 0})
    plans = [each["planSummary"] for each in database["system.profile"].find({"op": "query"})]
    assert plans == ["IDHACK"] * 3 + ["IXSCAN { _id: 1 }"] * 2


async def test_a_page_is_filtered_sorted_counted_and_projected(
    mongo: Mongo, client: Client
) -> None:
    """MongoDB does all of it, and the total is that of all pages."""
    stored = client[mongo.name][PRODUCT.collection]
    stored.insert_many([product(n, price=Decimal128(f"{n % 3}.50"), unasked=1) for n in range(10)])
    said = where({"price": {"gt": "0.50"}})
    reading = current(mongo)
    page = await reading.page(
        PRODUCT,
        PageQuery(
            where=said,
            order=[("price", "DESC"), ("id", "ASC")],
            page=page_request(first=4),
            fields=NAME,
            total=True,
        ),
    )
    assert names(page.items) == ["p002", "p005", "p008", "p001"]
    assert all(each.keys() == {"_id", "name", "price", SORT_KEY} for each in page.items)
    assert (page.total, page.has_next, page.token) == (6, True, None)
    page = await reading.page(
        PRODUCT,
        PageQuery(
            where=said,
            order=[("price", "DESC"), ("id", "ASC")],
            page=page_request(first=4, after=page.cursors[-1]),
            fields=frozenset(),
        ),
    )
    assert names(page.items) == ["p004", "p007"]
    assert (page.total, page.has_next) == (None, False)


async def test_a_page_with_a_token_is_read_at_its_cluster_time(
    mongo: Mongo, client: Client
) -> None:
    """Page, total and token agree under concurrent writes."""
    stored = client[mongo.name][PRODUCT.collection]
    stored.insert_one(product(0))
    writing = asyncio.create_task(asyncio.to_thread(_insert_one_by_one, stored, 150))
    reading = current(mongo)
    for _ in range(15):
        page = await reading.page(
            PRODUCT,
            PageQuery(
                where=None,
                order=[("id", "DESC")],
                page=page_request(first=1000),
                fields=frozenset(),
                total=True,
                token=True,
            ),
        )
        assert page.token is not None
        assert page.total == len(page.items)
        again = await mongo.find(
            PRODUCT.collection,
            {},
            FindOptions(sort=[("_id", -1)], at=resume_tokens.cluster_time(page.token)),
        )
        assert names(again) == names(page.items)
    await writing


def _insert_one_by_one(stored: Any, count: int) -> None:
    for number in range(1, count):
        stored.insert_one(product(number))


async def test_a_collection_just_created_can_be_read_with_a_token(
    mongo: Mongo, client: Client
) -> None:
    """The server refuses reads at a time before an index was created; a later time is used."""
    reading = current(mongo)

    async def page() -> int:
        found = await reading.page(
            PRODUCT, PageQuery(where=None, order=None, page=page_request(), fields=NAME, token=True)
        )
        return len(found.items)

    assert await page() == 0
    stored = client[mongo.name][PRODUCT.collection]
    for name in ("name", "price", "supplier"):
        stored.insert_one({name: 1})
        making = asyncio.create_task(asyncio.to_thread(stored.create_index, name))
        while not making.done():
            await page()
    assert await page() == 3


async def test_pages_by_parent_equal_single_pages(mongo: Mongo, client: Client) -> None:
    """Pages are in the order of the parents, which may be empty, missing or repeated."""
    stored = client[mongo.name][PRODUCT.collection]
    suppliers = [ObjectId() for _ in range(4)]
    stored.insert_many(
        [product(n, supplier=suppliers[n % 3], price=-n) for n in range(20)]
        + [product(100), product(101, supplier=None)]
    )
    parents = [suppliers[2], suppliers[3], suppliers[0], suppliers[2], ObjectId(), None]
    said = where({"id": {"ne": "p002"}})
    arguments: dict[str, Any] = {
        "where": said,
        "order": [("price", "ASC")],
        "page": page_request(first=3),
        "fields": frozenset(),
    }
    reading = current(mongo)
    pages = await reading.pages_by_parent(
        PRODUCT, "supplier", parents, PageQuery(total=True, **arguments)
    )
    of_two = (["p017", "p014", "p011"], 5, True)
    assert [(names(each.items), each.total, each.has_next) for each in pages] == [
        of_two,
        ([], 0, False),
        (["p018", "p015", "p012"], 7, True),
        of_two,
        ([], 0, False),
        ([], 0, False),
    ]
    without = await reading.pages_by_parent(PRODUCT, "supplier", parents, PageQuery(**arguments))
    assert [each.items for each in without] == [each.items for each in pages]
    assert [each.total for each in without] == [None] * 6
    arguments["page"] = page_request(first=3, after=pages[0].cursors[-1])
    (rest,) = await reading.pages_by_parent(
        PRODUCT, "supplier", [suppliers[2]], PageQuery(**arguments)
    )
    assert (names(rest.items), rest.has_next) == (["p008", "p005"], False)


async def test_ids_that_look_like_expressions_are_values(mongo: Mongo, client: Client) -> None:
    """`$name` is an id like any other."""
    stored = client[mongo.name][PRODUCT.collection]
    stored.insert_many([{"_id": "a", "supplier": "$n"}, {"_id": "b", "supplier": "$$ROOT"}])
    pages = await current(mongo).pages_by_parent(
        PRODUCT,
        "supplier",
        ["$n", "$$ROOT"],
        PageQuery(where=None, order=None, page=page_request(), fields=NAME),
    )
    assert [names(each.items) for each in pages] == [["a"], ["b"]]


async def test_pages_by_parent_with_a_token_have_one_cluster_time(
    mongo: Mongo, client: Client
) -> None:
    """The token is the same for all of them, and later writes come after it."""
    stored = client[mongo.name][PRODUCT.collection]
    supplier = ObjectId()
    stored.insert_one(product(1, supplier=supplier))
    arguments: dict[str, Any] = {"where": None, "order": None, "page": page_request()}
    pages = await current(mongo).pages_by_parent(
        PRODUCT,
        "supplier",
        [supplier, None],
        PageQuery(fields=NAME, token=True, total=True, **arguments),
    )
    (token,) = {each.token for each in pages}
    assert token is not None
    assert resume_tokens.cluster_time(token) <= await mongo.operation_time()
    assert [each.total for each in pages] == [1, 0]


async def test_version_numbers_are_the_higher_of_document_and_archive(
    mongo: Mongo,
) -> None:
    """The document is ahead of a slow recorder, the archive of writers that do not count."""
    scribe = Scribe(mongo, PRODUCT)
    for second in range(3):
        scribe.write("p001", product(1), at(second))
    scribe.write("p002", product(2, version=7), at(4))
    await scribe.save()
    documents: list[dict[str, Any]] = [
        product(1),
        product(2, version=9),
        product(2, version=3),
        product(1, version="3"),
        product(1, version=4.0),
        product(1, version=True),
        product(1, version=2**40),
    ]
    numbers = await current(mongo).numbers(PRODUCT, documents, NOW)
    assert numbers == [3, 9, 7, 3, 4, 3, 3]
    assert await current(mongo).numbers(PRODUCT, [], NOW) == []
    documents = [product(3), product(1)]
    assert await current(mongo).numbers(PRODUCT, documents, NOW) == [None, 3]


async def test_a_cursor_of_another_list_is_refused(mongo: Mongo) -> None:
    """The order may be the same, but the cursor belongs to other documents."""
    reading = current(mongo)
    arguments: dict[str, Any] = {"where": None, "order": None, "fields": NAME}
    scribe = Scribe(mongo, PRODUCT)
    scribe.write("p001", product(1, supplier="s"), at(1))
    await scribe.save()
    (page,) = await reading.pages_by_parent(
        PRODUCT, "supplier", ["s"], PageQuery(page=page_request(), **arguments)
    )
    foreign = page_request(after=page.cursors[0])
    with pytest.raises(BadUserInput, match=r"after: '.*', expected a cursor"):
        await reading.page(PRODUCT, PageQuery(page=foreign, **arguments))


async def test_the_number_of_commands_does_not_depend_on_the_number_of_documents(
    counted: Mongo, commands: Commands, client: Client
) -> None:
    """There is one command for documents, one for pages, and one for numbers."""
    stored = client[counted.name][PRODUCT.collection]
    stored.insert_many([product(n, supplier=f"s{n % 50}") for n in range(90)])
    scribe = Scribe(counted, PRODUCT)
    for n in range(90):
        scribe.write(f"p{n:03}", product(n), at(n))
    await scribe.save()
    reading = current(counted)
    ids = [f"p{n:03}" for n in range(90)]
    sent = []
    for some in (ids[:1], ids):
        with commands.counting() as started:
            documents = await reading.by_ids(PRODUCT, some, NAME)
            await reading.numbers(PRODUCT, [each for each in documents if each], NOW)
            await reading.pages_by_parent(
                PRODUCT,
                "supplier",
                [f"s{n}" for n, _ in enumerate(some)],
                PageQuery(
                    where=None, order=None, page=page_request(first=1), fields=NAME, total=True
                ),
            )
        sent.append(list(started))
    # The last version of a single document is a find.
    assert sent == [["find", "find", "aggregate"], ["find", "aggregate", "aggregate"]]
