"""Reads and subscriptions after one's own writes: a mutation's resume token is directly after the
write, and its result agrees with archive and stream.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.editing import Row, Shop, lamp, pick

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHANGES = """
  subscription($id: ID, $after: ResumeToken) {
    productChanges(id: $id, after: $after) {
      kind operation version author comment documentId replayed product { name stock }
    }
  }
"""


async def changed(events: Any, count: int) -> list[Row]:
    """Return the next changes, without checkpoint events."""
    found: list[Row] = []
    while len(found) < count:
        event = await anext(events)
        if event["kind"] == "CHANGE":
            found.append(event)
    return found


async def test_stream_and_archive_agree_on_every_mutation(shop: Shop) -> None:
    """Operation, author and comment are equal in live events and in replay."""
    id_ = shop.fresh_id()
    before = (await shop.ask("{ resumeToken }"))["resumeToken"]
    async with shop.changes(CHANGES, id=id_, after=before) as live:
        given: dict[str, Any] = {"id": id_}
        await shop.mutate("createProduct", **given, document=lamp(id_), comment="c")
        await shop.mutate("updateProduct", author="bob", **given, patch={"name": "x"}, comment="u")
        await shop.mutate("updateProduct", **given, increment={"stock": 1})
        await shop.mutate("replaceProduct", author=None, **given, document=lamp(id_), comment="r")
        await shop.mutate("proposeProduct", **given, patch={"stock": 9})
        await shop.mutate("publishProduct", author="eve", **given, draft=1, comment="p")
        await shop.mutate("restoreProduct", **given, version=2, comment="b")
        await shop.mutate("deleteProduct", author="cy", **given, comment="d")
        await shop.mutate("restoreProduct", author="dee", **given, version=1)
        await shop.mutate("deleteProduct", author=None, **given)
        seen = await changed(live, 9)
    told = pick(await shop.history(id_), "version", "operation", "author", "comment")
    assert told == [
        (1, "INSERT", "ann", "c"),
        (2, "UPDATE", "bob", "u"),
        (3, "UPDATE", "ann", None),
        (4, "REPLACE", None, "r"),
        (5, "UPDATE", "eve", "p"),
        (6, "REPLACE", "ann", "b"),
        (7, "DELETE", "cy", "d"),
        (8, "INSERT", "dee", None),
        (9, "DELETE", None, None),
    ]
    assert pick(seen, "version", "operation", "author", "comment") == told
    async with shop.changes(CHANGES, id=id_, after=before) as later:
        again = await changed(later, 9)
    assert pick(again, "version", "operation", "author", "comment") == told


async def test_an_as_of_read_at_a_writes_token_has_its_result(shop: Shop) -> None:
    """It contains neither an earlier nor a later state, however fast the writes are."""
    id_ = await shop.create()
    results = [await shop.mutate("updateProduct", id=id_, increment={"stock": 1}) for _ in range(5)]
    results.append(await shop.mutate("deleteProduct", id=id_))
    text = """
      query($id: ID!, $token: ResumeToken!) {
        productVersion(id: $id, asOf: {token: $token}) { version document { stock } }
        productsAsOf(asOf: {token: $token}, where: {id: {eq: $id}}) { nodes { version } }
      }
    """
    for number, result in enumerate(results[:5], 2):
        found = await shop.ask(text, id=id_, token=result["resumeToken"])
        assert found["productVersion"] == {"version": number, "document": {"stock": number + 4}}
        assert found["productsAsOf"]["nodes"] == [{"version": number}]
    found = await shop.ask(text, id=id_, token=results[5]["resumeToken"])
    assert found == {"productVersion": None, "productsAsOf": {"nodes": []}}


@pytest.mark.parametrize("way", ["update", "compared", "keyed", "publish", "delete"])
async def test_subscribing_after_a_write_repeats_nothing_and_misses_nothing(
    shop: Shop, way: str
) -> None:
    """This holds for every kind of write, during other writes to the collection."""
    ids = [await shop.create() for _ in range(3)]
    for id_ in ids:
        await shop.mutate("proposeProduct", id=id_, patch={"name": "mine"})
    done = asyncio.Event()

    async def others(id_: str) -> list[int]:
        numbers = []
        while not done.is_set() or len(numbers) < 3:
            result = await shop.mutate("updateProduct", id=id_, increment={"stock": 1})
            numbers.append(result["version"])
        return numbers

    writing = [asyncio.create_task(others(id_)) for id_ in ids[1:]]
    name, given = {
        "update": ("updateProduct", {"patch": {"name": "mine"}}),
        "compared": ("updateProduct", {"patch": {"name": "mine"}, "expectedVersion": 1}),
        "keyed": ("updateProduct", {"patch": {"name": "mine"}, "key": ids[0]}),
        "publish": ("publishProduct", {"draft": 1}),
        "delete": ("deleteProduct", {"comment": "mine"}),
    }[way]
    mine = await shop.mutate(name, id=ids[0], **given)
    done.set()
    written = await asyncio.gather(*writing)
    await shop.recorded()
    text = "query($t: ResumeToken!) { productsAsOf(asOf: {token: $t}) { nodes { %s } } }"
    then = await shop.ask(text % "version documentId", t=mine["resumeToken"])
    stood = {e["documentId"]: e["version"] for e in then["productsAsOf"]["nodes"]}
    missed = {
        (id_, number)
        for id_, numbers in zip(ids[1:], written, strict=True)
        for number in numbers
        if number > stood[id_]
    }
    last = await shop.create()
    async with shop.changes(CHANGES, after=mine["resumeToken"]) as events:
        seen: list[tuple[str, int]] = []
        while not seen or seen[-1][0] != last:
            (event,) = await changed(events, 1)
            seen.append((event["documentId"], event["version"]))
    assert sorted(seen) == sorted([*missed, (last, 1)])


async def test_a_mutation_result_contains_its_version_in_history(shop: Shop) -> None:
    """The result waits for the recorder, and contains earlier versions, too."""
    id_ = await shop.create()
    text = """
      mutation($id: ID!) {
        updateProduct(id: $id, patch: {name: "x"}, comment: "why") {
          ... on ProductWritten { product {
            version
            history(first: 5) { nodes { version comment document { name } } }
            blame { path version { version } }
            diff(from: 1) { path }
          } }
        }
      }
    """
    product = (await shop.ask(text, id=id_))["updateProduct"]["product"]
    assert product["history"]["nodes"] == [
        {"version": 2, "comment": "why", "document": {"name": "x"}},
        {"version": 1, "comment": None, "document": {"name": "Lamp"}},
    ]
    assert {"path": "name", "version": {"version": 2}} in product["blame"]
    assert product["diff"] == [{"path": "name"}]


async def test_each_mutation_of_a_request_returns_the_state_after_it(shop: Shop) -> None:
    """Each result is read after its own write."""
    id_ = await shop.create()
    one = """updateProduct(id: $id, increment: {stock: 1}) { ... on ProductWritten {
      product { stock history(first: 1) { nodes { version document { stock } } } } } }"""
    found = await shop.ask(f"mutation($id: ID!) {{ a: {one} b: {one} }}", id=id_)
    for name, stock, version in (("a", 6, 2), ("b", 7, 3)):
        node = {"version": version, "document": {"stock": stock}}
        assert found[name]["product"] == {"stock": stock, "history": {"nodes": [node]}}
