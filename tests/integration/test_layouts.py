"""Guarantees of every layout: current documents, history, and writes with an expected version."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from revstream.streams.changefeed.event import identity
from revstream.streams.core.traceparent import TRACEPARENT
from revstream.streams.layouts.core.stored_version import StoredVersion
from tests.integration.conftest import KeptShop
from tests.support.editing import lamp, pick, without

pytestmark = pytest.mark.asyncio(loop_scope="module")

Row = dict[str, Any]

# The document after each write; None deletes it.
STORY: list[Row | None] = [
    {"sku": "s", "name": "Lamp", "stock": 1, "attributes": {"a.b": 1, "$c": [1, {"d": None}]}},
    {"sku": "s", "name": "Lamp", "stock": 2, "attributes": {"a.b": 1.0}, "tags": ["x"]},
    {"sku": "s", "name": "Torch", "stock": 2, "tags": []},
    {"sku": "s", "name": "Torch", "stock": 2, "tags": [], "sold": 7},
    None,
    {"sku": "t", "name": "Candle", "stock": 0, "dimensions": {"width": 1.5, "height": 2.0}},
    {"sku": "t", "name": "Candle", "stock": 5},
]
OPERATIONS = ["INSERT", "UPDATE", "UPDATE", "UPDATE", "DELETE", "INSERT", "UPDATE"]
PAGE = """
query($where: ProductWhere, $order: [ProductOrder!], $first: Int, $after: String) {
  products(where: $where, orderBy: $order, first: $first, after: $after) {
    totalCount nodes { id version name stock } pageInfo { hasNextPage endCursor }
  }
}
"""


def shown(body: Row | None) -> Row | None:
    """Return a body as the API returns it."""
    if body is None:
        return None
    names = ["sku", "name", "price", "stock", "sold", "tags", "dimensions", "attributes"]
    made = {name: body.get(name) for name in names} | {"addedAt": None}
    if made["dimensions"] is not None:
        made["dimensions"] = {"note": None, **made["dimensions"]}
    return made


async def write_lives(kept: KeptShop) -> str:
    """Return the id of a document whose versions another program has written."""
    id_ = kept.shop.fresh_id()
    program = kept.program()
    for body in STORY:
        program.write(id_, body)
    return id_


async def test_the_versions_of_another_program_are_read_exactly(kept: KeptShop) -> None:
    """They have their numbers and contents; each but the first is an update."""
    id_ = await write_lives(kept)
    versions = await kept.shop.history(id_)
    assert pick(versions, "version", "operation") == list(enumerate(OPERATIONS, 1))
    for version, body in zip(versions, STORY, strict=True):
        document = version["document"]
        assert (document and {n: v for n, v in document.items() if n != "id"}) == shown(body)
        assert version["gap"] is False
    assert "stock" in versions[1]["changedFields"]
    assert "stock" not in versions[3]["changedFields"]
    present = await kept.shop.present(id_)
    assert present is not None
    assert (present["version"], present["name"], present["stock"]) == (7, "Candle", 5)


async def test_as_of_reads_are_exact(kept: KeptShop) -> None:
    """One document, and the collection filtered by values at that time."""
    id_ = await write_lives(kept)
    versions = await kept.shop.history(id_)
    text = """
    query($id: ID!, $at: TimePoint!, $where: ProductWhere) {
      one: productVersion(id: $id, asOf: $at) { version document { name stock } }
      many: productsAsOf(asOf: $at, where: $where) { totalCount nodes { version } }
    }
    """
    for version, body in zip(versions, STORY, strict=True):
        at = {"token": version["resumeToken"]}
        for name in ("Lamp", "Torch", "Candle"):
            where = {"id": {"eq": id_}, "name": {"eq": name}}
            found = await kept.shop.ask(text, id=id_, at=at, where=where)
            matches = body is not None and body["name"] == name
            assert found["many"]["totalCount"] == matches
            assert pick(found["many"]["nodes"], "version") == [version["version"]] * matches
        if body is None:
            assert found["one"] is None
        else:
            document = {"name": body["name"], "stock": body["stock"]}
            assert found["one"] == {"version": version["version"], "document": document}


async def test_the_layout_can_be_used_without_a_gateway(kept: KeptShop) -> None:
    """Its methods read one document, many, a version, and all versions."""
    id_ = await write_lives(kept)
    await kept.shop.recorded()
    layout = kept.layout
    (found,) = await layout.find({"_id": id_, "stock": 5})
    assert found == {"_id": id_, "v": 7, "sku": "t", "name": "Candle", "stock": 5}
    assert await layout.find({"_id": id_, "stock": 2}) == []
    assert await layout.count({"_id": id_}) == 1
    history = await layout.history(id_)
    assert [body(each) for each in history] == STORY
    wanted = [(id_, 2), (id_, 7), (id_, 99), ("nobody", 1)]
    versions = await layout.versions(wanted)
    assert {number for _, number in versions} == {2, 7}
    assert body(versions[identity(id_), 2]) == STORY[1]
    assert await layout.recover(settle_s=0) == 0


def body(kept: StoredVersion) -> Row | None:
    """Return the body that a program has written."""
    if kept.content is None:
        return None
    made = {name: plain(value) for name, value in kept.content.items()}
    return {name: value for name, value in made.items() if name not in ("_id", "v", "_change")}


def plain(value: Any) -> Any:
    if hasattr(value, "items"):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


async def test_a_state_that_is_no_longer_current_matches_nothing(kept: KeptShop) -> None:
    """Lists, counts, orders and pages filter current documents only."""
    shop, program = kept.shop, kept.program()
    supplier = shop.fresh_id()
    shop.database.suppliers.insert_one({"_id": supplier, "name": "S"})
    base = {"sku": supplier, "supplierId": supplier}
    ids = [f"{supplier}-{n}" for n in range(6)]
    for n, id_ in enumerate(ids):
        program.write(id_, {**base, "name": "old", "stock": 100 - n})
    for n, id_ in enumerate(ids[:4]):
        program.write(id_, {**base, "name": "new", "stock": n})
    program.write(ids[4], None)
    program.write(ids[5], {**base, "name": "new", "stock": 9, "supplierId": "another"})

    async def page(order: list[Row], first: int = 10, **where: Any) -> Row:
        where = {"sku": {"eq": supplier}, **where}
        asked = await shop.ask(PAGE, where=where, order=order, first=first)
        return dict(asked["products"])

    by_stock = [{"stock": "DESC"}]
    assert (await page(by_stock, name={"eq": "old"}))["totalCount"] == 0
    found = await page(by_stock, name={"eq": "new"})
    assert (found["totalCount"], pick(found["nodes"], "stock")) == (5, [9, 3, 2, 1, 0])
    assert pick(found["nodes"], "version") == [2] * 5
    # An earlier high value does not affect the position.
    assert pick((await page(by_stock, first=2))["nodes"], "stock") == [9, 3]
    either = [{"stock": {"gte": 90}}, {"name": {"eq": "old"}}]
    assert (await page([], **{"or": either}))["nodes"] == []
    assert pick((await page([], id={"in": ids}))["nodes"], "id") == [*ids[:4], ids[5]]
    assert pick((await page([], **{"not": {"stock": {"lt": 3}}}))["nodes"], "stock") == [3, 9]
    text = """
    query($id: ID!) { supplier(id: $id) { products(first: 3, orderBy: [{stock: DESC}]) {
      totalCount nodes { id stock version } } } }
    """
    products = (await shop.ask(text, id=supplier))["supplier"]["products"]
    assert (products["totalCount"], pick(products["nodes"], "stock")) == (4, [3, 2, 1])


async def test_pages_join_without_gap_or_repeat(kept: KeptShop) -> None:
    """The order is by a field, or by ids."""
    shop, program = kept.shop, kept.program()
    mark = shop.fresh_id()
    for n in range(11):
        for stock in (99, n % 4):
            program.write(f"{mark}-{n:02}", {"sku": mark, "name": "x", "stock": stock})
    for order in ([], [{"stock": "ASC"}], [{"stock": "DESC"}, {"id": "DESC"}]):
        found: list[Row] = []
        after = None
        while True:
            asked: Row = {"where": {"sku": {"eq": mark}}, "order": order, "first": 3}
            page = (await shop.ask(PAGE, **asked, after=after))["products"]
            found += page["nodes"]
            after = page["pageInfo"]["endCursor"]
            if not page["pageInfo"]["hasNextPage"]:
                break
        assert len({each["id"] for each in found}) == len(found) == 11
        ids, stocks = pick(found, "id"), pick(found, "stock")
        if not order:
            assert ids == sorted(ids)
        else:
            assert stocks == sorted(stocks, reverse=order[0]["stock"] == "DESC")


async def test_mutations_create_versions(kept: KeptShop) -> None:
    """Creation, update, increment, replacement, deletion and restoration are exact and
    attributed.
    """
    shop = kept.shop
    id_ = await shop.create()
    result = await shop.mutate(
        "updateProduct",
        id=id_,
        expectedVersion=1,
        patch={"name": "Torch", "attributes": {"box": {"x": 9}}, "tags": None},
        increment={"stock": -2},
        comment="sold",
    )
    assert result["__typename"] == "ProductWritten", result
    assert result["version"] == 2
    assert result["product"]["stock"] == 3
    assert result["product"]["attributes"] == {"volt": 230, "box": {"x": 9, "y": 2}}
    assert result["product"]["tags"] is None
    TRACEPARENT.set(trace := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    plain_document = {**lamp(id_), "name": "Plain"}
    await shop.mutate("replaceProduct", id=id_, document=plain_document, author="bob")
    deleted = await shop.mutate("deleteProduct", id=id_, comment="gone", author="eve")
    assert deleted["__typename"] == "ProductWritten", deleted
    TRACEPARENT.set(None)
    assert await shop.present(id_) is None
    again = await shop.mutate("deleteProduct", id=id_)
    assert again["__typename"] == "DocumentNotFound"
    brought = await shop.mutate("restoreProduct", id=id_, version=2)
    assert brought["__typename"] == "ProductWritten", brought
    await shop.mutate("restoreProduct", id=id_, version=1)
    versions = await shop.history(id_)
    assert pick(versions, "version", "operation", "author", "comment", "restoredFrom") == [
        (1, "INSERT", "ann", None, None),
        (2, "UPDATE", "ann", "sold", None),
        (3, "REPLACE", "bob", None, None),
        (4, "DELETE", "eve", "gone", None),
        (5, "INSERT", "ann", None, 2),
        (6, "REPLACE", "ann", None, 1),
    ]
    assert pick(versions, "traceparent") == [None, None, trace, trace, None, None]
    documents = pick(versions, "document")
    names = [document and document["name"] for document in documents]
    assert names == ["Lamp", "Torch", "Plain", None, "Torch", "Lamp"]
    present = await shop.present(id_)
    assert present is not None
    assert without(present, "id", "version") == without(documents[0], "id")
    assert without(documents[4], "id") == without(documents[1], "id")


async def test_a_deleted_document_can_be_created_again(kept: KeptShop) -> None:
    """Its version numbers continue; an existing document cannot be created."""
    shop = kept.shop
    id_ = await shop.create()
    there = await shop.mutate("createProduct", id=id_, document=lamp(id_))
    assert (there["__typename"], there["path"]) == ("AlreadyExists", "id")
    await shop.mutate("deleteProduct", id=id_)
    again = await shop.mutate("createProduct", id=id_, document={**lamp(id_), "name": "New"})
    assert (again["__typename"], again["version"]) == ("ProductWritten", 3)
    versions = await shop.history(id_)
    assert pick(versions, "version", "operation") == [(1, "INSERT"), (2, "DELETE"), (3, "INSERT")]
    updated = await shop.mutate("updateProduct", id=id_, expectedVersion=3, patch={"stock": 1})
    assert updated["version"] == 4


async def test_a_write_after_another_write_is_a_conflict(kept: KeptShop) -> None:
    """The result has the current document, and nothing is written."""
    shop, program = kept.shop, kept.program()
    id_ = shop.fresh_id()
    program.write(id_, {"sku": id_, "name": "Lamp", "stock": 1})
    program.write(id_, {"sku": id_, "name": "Lamp", "stock": 2})
    for name, more in (
        ("updateProduct", {"patch": {"stock": 9}}),
        ("deleteProduct", {}),
        ("replaceProduct", {"document": lamp(id_)}),
        ("restoreProduct", {"version": 1}),
    ):
        result = await shop.mutate(name, id=id_, expectedVersion=1, **more)
        assert result["__typename"] == "VersionConflict", name
        assert (result["actualVersion"], result["current"]["stock"]) == (2, 2)
    wrong = await shop.mutate("updateProduct", id=id_, patch={}, increment={"stock": 2**31 - 2})
    assert wrong["__typename"] == "InvalidDocument"
    good = await shop.mutate("updateProduct", id=id_, expectedVersion=2, patch={"stock": 3})
    assert good["version"] == 3
    program.bodies[id_] = {"sku": id_, "name": "Lamp", "stock": 3}
    assert len(await shop.history(id_)) == 3


async def test_concurrent_writers_write_each_version_once(kept: KeptShop) -> None:
    """Increments without a read, and updates with an expected version."""
    shop = kept.shop
    id_ = await shop.create(stock=0)

    async def add() -> None:
        for _ in range(5):
            result = await shop.mutate("updateProduct", id=id_, increment={"stock": 1})
            assert result["__typename"] == "ProductWritten", result

    async def change() -> None:
        made = 0
        while made < 3:
            found = await shop.present(id_)
            assert found is not None
            result = await shop.mutate(
                "updateProduct",
                id=id_,
                expectedVersion=found["version"],
                patch={"stock": found["stock"] + 1},
            )
            made += result["__typename"] == "ProductWritten"

    await asyncio.gather(*(add() for _ in range(4)), *(change() for _ in range(2)))
    versions = await shop.history(id_)
    assert pick(versions, "version") == list(range(1, 28))
    assert [each["document"]["stock"] for each in versions] == list(range(27))


async def test_drafts_and_idempotency_keys_work_in_a_layout(kept: KeptShop) -> None:
    """Both write several documents in one transaction."""
    shop = kept.shop
    id_ = await shop.create()
    draft = await shop.mutate("proposeProduct", id=id_, patch={"name": "Torch"})
    number = draft["draft"]["number"]
    published = await shop.mutate("publishProduct", id=id_, draft=number, author="bob")
    assert (published["__typename"], published["version"]) == ("ProductWritten", 2)
    first = await shop.mutate("updateProduct", id=id_, key="k" + id_, increment={"stock": 1})
    again = await shop.mutate("updateProduct", id=id_, key="k" + id_, increment={"stock": 1})
    assert first["version"] == again["version"] == 3
    assert first["product"]["stock"] == again["product"]["stock"] == 6
    deleted = await shop.mutate("deleteProduct", id=id_, key="d" + id_, author="eve")
    assert deleted == await shop.mutate("deleteProduct", id=id_, key="d" + id_, author="eve")
    versions = await shop.history(id_)
    assert pick(versions, "operation", "fromDraft") == [
        ("INSERT", None),
        ("UPDATE", number),
        ("UPDATE", None),
        ("DELETE", None),
    ]
    assert versions[-1]["author"] == "eve"
