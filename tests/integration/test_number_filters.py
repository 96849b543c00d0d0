"""Filters and orders by the version number use the number in the response, also where programs do
not count versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from revstream.gql.runtime.configuration.settings import Settings
from revstream.model.compiler.loader import read_model
from tests.support.editing import Failed, Shop, open_shop

Client = MongoClient[dict[str, Any]]

MODEL = read_model("""
type Item @collection(name: "items") { id: ID! name: String makerId: ID }
type Maker @collection(name: "makers") {
  id: ID! name: String
  items: [Item!]! @referencedBy(field: "makerId")
}
""")
LIST = """
query($where: ItemWhere, $orderBy: [ItemOrder!], $first: Int, $after: String) {
  items(where: $where, orderBy: $orderBy, first: $first, after: $after) {
    totalCount nodes { id version } pageInfo { endCursor }
  }
}
"""
# The number of each document in the API, sorted: documents of a program that does not count, of
# one that counts, of one that is ahead of the archive, and one with a copied number.
SHOWN = {"a": 1, "e": 1, "b": 3, "c": 4, "d": 7}


@pytest.fixture
async def shop(mongo_uri: str, client: Client) -> AsyncIterator[Shop]:
    """Run a gateway over documents some of which have no number, or one that is too low."""
    name = f"numbers_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=MODEL) as opened:
        items = opened.database.items
        items.insert_one({"_id": "a", "makerId": "m", "version": 1})
        items.insert_one({"_id": "b", "makerId": "m"})
        items.insert_one({"_id": "c", "makerId": "m", "version": "no number"})
        items.insert_one({"_id": "d", "makerId": "m", "version": 1})
        items.update_one({"_id": "d"}, {"$set": {"version": 7.0}})
        items.insert_one({"_id": "e", "makerId": "m", "version": 54})
        opened.database.makers.insert_one({"_id": "m"})
        for key, count in (("b", 2), ("c", 3)):
            for n in range(count):
                items.update_one({"_id": key}, {"$set": {"name": f"n{n}"}})
        await opened.recorded()
        yield opened
    client.drop_database(name)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"version": {"eq": 4}}, "c"),
        ({"version": {"gt": 3}}, "cd"),
        ({"version": {"in": [1, 7]}}, "ade"),
        ({"not": {"version": {"lte": 3}}}, "cd"),
        ({"or": [{"version": {"eq": 3}}, {"id": {"eq": "a"}}]}, "ab"),
        ({"name": {"eq": "n1"}, "version": {"eq": 3}}, "b"),
        ({"version": {"eq": 2}}, ""),
        ({"version": {"eq": 54}}, ""),
    ],
)
async def test_a_filter_by_the_number_agrees_with_the_response(
    shop: Shop, where: dict[str, Any], expected: str
) -> None:
    """The total agrees, too, and so does a page with a token."""
    found = (await shop.ask(LIST, where=where))["items"]
    assert found["nodes"] == [{"id": key, "version": SHOWN[key]} for key in expected]
    assert found["totalCount"] == len(expected)
    text = LIST.replace("totalCount", "resumeToken totalCount")
    assert (await shop.ask(text, where=where))["items"]["nodes"] == found["nodes"]


@pytest.mark.parametrize("direction", ["ASC", "DESC"])
async def test_an_order_by_the_number_agrees_with_the_response(shop: Shop, direction: str) -> None:
    """This holds page by page."""
    found, after = [], None
    for _ in SHOWN:
        page = await shop.ask(LIST, orderBy=[{"version": direction}], first=1, after=after)
        found += page["items"]["nodes"]
        after = page["items"]["pageInfo"]["endCursor"]
    expected = [{"id": key, "version": number} for key, number in SHOWN.items()]
    assert found == (expected if direction == "ASC" else expected[::-1])


async def test_back_references_are_filtered_and_sorted_by_the_number(shop: Shop) -> None:
    """The list is below another document."""
    text = """
    { maker(id: "m") { items(where: {version: {gt: 1}}, orderBy: [{version: DESC}]) {
      totalCount nodes { id version }
    } } }
    """
    found = (await shop.ask(text))["maker"]["items"]
    assert found == {
        "totalCount": 3,
        "nodes": [{"id": key, "version": SHOWN[key]} for key in "dcb"],
    }


async def test_a_subscription_filters_by_the_number(shop: Shop) -> None:
    """Live events, replay and snapshot agree, even if the number is not selected."""
    text = """
    subscription($after: ResumeToken, $snapshot: Boolean) {
      itemChanges(after: $after, snapshot: $snapshot, where: {version: {gte: 4}}) {
        kind documentId transition
      }
    }
    """
    token = (await shop.ask("{ resumeToken }"))["resumeToken"]
    found = []
    async with shop.changes(text, snapshot=True) as events:
        async for each in events:
            if each["kind"] == "CHECKPOINT":
                break
            found.append(each["documentId"])
    assert found == ["c", "d"]
    for n in range(3):
        shop.database.items.update_one({"_id": "b"}, {"$set": {"name": f"later{n}"}})
    await shop.recorded()
    async with asyncio.timeout(30), shop.changes(text, after=token) as events:
        changes = []
        while len(changes) < 3:
            event = await anext(events)
            if event["kind"] == "CHANGE":
                changes.append((event["documentId"], event["transition"]))
                if len(changes) == 2:
                    shop.database.items.update_one({"_id": "b"}, {"$set": {"name": "live"}})
    # Its versions 4, 5 and 6; it enters the result with number 4.
    assert changes == [("b", "ENTER"), ("b", "STAY"), ("b", "STAY")]


@pytest.mark.parametrize(
    "text",
    [
        "{ items(where: { version: { gte: 1 } }) { totalCount } }",
        "{ items(orderBy: [{ version: DESC }]) { nodes { id } } }",
        '{ maker(id: "m") { items(where: { version: { gte: 1 } }) { totalCount } } }',
    ],
    ids=["filter", "order", "references"],
)
async def test_filters_by_unrecorded_numbers_are_refused_after_a_wait(
    mongo_uri: str, client: Client, text: str
) -> None:
    """A document without a number would match no filter, and the page would be empty."""
    name = f"numbers_{uuid4().hex[:8]}"
    client[name]["makers"].insert_one({"_id": "m"})
    client[name]["items"].insert_one({"_id": "a", "makerId": "m"})
    settings = Settings(record=False)
    opened = open_shop(
        client, mongo_uri, name, settings, model=MODEL, begun=True, archive_wait_s=0.1
    )
    async with opened as shop:
        with pytest.raises(Failed) as failed:
            await shop.ask(text)
        assert failed.value.args[0].extensions["code"] == "ARCHIVE_BEHIND"
    client.drop_database(name)
