"""Collections that are replaced by `$out` or a rename: live events equal the archive, in the same
order, from any buffer.
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
from tests.support.editing import Shop, open_shop
from tests.support.eventually import eventually

Client = MongoClient[dict[str, Any]]

MODEL = read_model('type Thing @collection(name: "things", version: null) { id: ID! name: String }')
CHANGES = """
subscription($after: ResumeToken, $id: ID, $where: ThingWhere) {
  thingChanges(after: $after, id: $id, where: $where) {
    kind operation transition documentId version gap thing { name } resumeToken
  }
}
"""
WITHOUT_VERSION = CHANGES.replace(" version gap", "")


@pytest.fixture(params=["ring", "archive"])
async def shop(
    request: pytest.FixtureRequest, mongo_uri: str, client: Client
) -> AsyncIterator[Shop]:
    """Run a gateway with a ring that holds all events of a test, and one with a tiny ring."""
    name = f"replaced_{uuid4().hex[:8]}"
    settings = Settings(ring_events=1000 if request.param == "ring" else 1, backlog_events=1000)
    async with open_shop(client, mongo_uri, name, settings, model=MODEL) as opened:
        opened.database.things.insert_many([{"_id": key, "name": "old"} for key in "ab"])
        await opened.recorded()
        yield opened
    client.drop_database(name)


async def replace(shop: Shop, how: str) -> None:
    """Replace a and b by a and c; then change c."""
    source = shop.database.source
    source.insert_many([{"_id": key, "name": "new"} for key in "ac"])
    if how == "$out":
        await asyncio.to_thread(lambda: list(source.aggregate([{"$out": "things"}])))
    else:
        await asyncio.to_thread(source.rename, "things", dropTarget=True)
    shop.database.things.update_one({"_id": "c"}, {"$set": {"name": "later"}})


async def received(shop: Shop, text: str, last: str = "later", **variables: Any) -> list[Any]:
    """Return the changes up to the last one that is written."""
    found = []
    async with asyncio.timeout(30), shop.changes(text, **variables) as events:
        async for each in events:
            if each["kind"] == "CHANGE":
                found.append(each)
                if (each["thing"] or {}).get("name") == last:
                    return found
    raise AssertionError("the subscription has ended")


def shown(changes: list[Any]) -> list[tuple[Any, ...]]:
    names = ("operation", "documentId", "transition")
    return [tuple(each[name] for name in names) for each in changes]


EXPECTED = [
    ("DELETE", "a", "LEAVE"),
    ("DELETE", "b", "LEAVE"),
    ("BASELINE", "a", "ENTER"),
    ("BASELINE", "c", "ENTER"),
    ("UPDATE", "c", "STAY"),
]


@pytest.mark.parametrize("how", ["$out", "rename"])
@pytest.mark.parametrize("text", [CHANGES, WITHOUT_VERSION], ids=["version", "without"])
async def test_live_events_and_replay_of_a_replacement_agree(
    shop: Shop, how: str, text: str
) -> None:
    """Changes, tokens and order are the same."""
    token = (await shop.ask("{ resumeToken }"))["resumeToken"]
    live = asyncio.ensure_future(received(shop, text, after=token))
    await eventually(lambda: shop.gateway.services.live.following["things"])
    await replace(shop, how)
    found = await live
    assert shown(found) == EXPECTED
    again = await received(shop, text, after=token)
    assert [each["resumeToken"] for each in again] == [each["resumeToken"] for each in found]
    assert shown(again) == EXPECTED
    middle = await received(shop, text, after=found[1]["resumeToken"])
    assert shown(middle) == EXPECTED[2:]
    if text is CHANGES:
        assert [(each["version"], each["gap"]) for each in found] == [
            (2, False), (2, False), (3, False), (1, False), (2, False)
        ]  # fmt: skip


async def test_a_subscription_to_one_document_gets_only_its_events(shop: Shop) -> None:
    """All documents are replaced."""
    token = (await shop.ask("{ resumeToken }"))["resumeToken"]
    await replace(shop, "rename")
    found = await received(shop, CHANGES, last="new", after=token, id="a")
    assert shown(found) == [EXPECTED[0], EXPECTED[2]]


async def test_a_subscription_with_a_filter_gets_transitions_of_a_replacement(shop: Shop) -> None:
    """Documents before and after decide."""
    token = (await shop.ask("{ resumeToken }"))["resumeToken"]
    await replace(shop, "$out")
    where = {"name": {"in": ["new", "later"]}}
    found = await received(shop, CHANGES, after=token, where=where)
    assert shown(found) == EXPECTED[2:]


async def test_a_replaced_collection_has_full_coverage(shop: Shop) -> None:
    """No time window is lost: as-of reads before and directly after succeed."""
    token = (await shop.ask("{ resumeToken }"))["resumeToken"]
    await replace(shop, "$out")
    found = await received(shop, CHANGES, after=token)
    text = """
    query($at: TimePoint!) {
      thingsAsOf(asOf: $at) { gaps { why } nodes { documentId document { name } } }
    }
    """
    for moment, names in (
        (token, {"a": "old", "b": "old"}),
        (found[3]["resumeToken"], {"a": "new", "c": "new"}),
    ):
        seen = (await shop.ask(text, at={"token": moment}))["thingsAsOf"]
        assert {e["documentId"]: e["document"]["name"] for e in seen["nodes"]} == names
        assert seen["gaps"] == []
