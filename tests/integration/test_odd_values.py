"""A document with an unusual value in any field does not affect others: lists, pages, filters,
references, history, mutations, drafts and subscriptions of the valid ones are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from bson import (
    Binary,
    Code,
    DatetimeMS,
    DBRef,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
)
from pymongo import MongoClient
from pymongo.errors import WriteError

from tests.support.exhaustive import representatives
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.sockets import Socket, open_socket

Client = MongoClient[dict[str, Any]]
Row = dict[str, Any]

MODEL = """
enum Mood { GLAD SAD }
type Item @collection(name: "items") @index(fields: ["name", "rank"]) {
  id: ID!
  name: String
  rank: Int
  serial: Long
  weight: Float
  price: Decimal
  good: Boolean
  at: DateTime
  mood: Mood
  tags: [String!]
  moods: [Mood]
  size: Part
  parts: [Part!]
  data: JSON
  code: String @unique
  ownerId: ID
  owner: Owner @reference(by: "ownerId")
  ownerName: String @copy(of: "owner.name")
  guestId: ObjectID
  guest: Guest @reference(by: "guestId")
  extra: String
}
type Part { label: String rank: Int }
type Owner @collection(name: "owners") {
  id: ID!
  name: String
  items: [Item!]! @referencedBy(field: "ownerId")
}
type Guest @collection(name: "guests") {
  id: ObjectID!
  name: String
  items: [Item!]! @referencedBy(field: "guestId")
}
type Event @collection(name: "events") { id: ID! sequence: Long! @fence name: String }
"""


DEEP: Any = 1
for _ in range(90):
    DEEP = {"a": DEEP}

VALUES: Mapping[str, Any] = {
    "null": None,
    "true": True,
    "false": False,
    "zero": 0,
    "minus zero": -0.0,
    "one": 1,
    "one and a half": 1.5,
    "most of int": 2**31 - 1,
    "most of long": Int64(2**63 - 1),
    "least of long": Int64(-(2**63)),
    "not a number": float("nan"),
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "a tiny double": 5e-324,
    "a decimal": Decimal128("1.0"),
    "a huge decimal": Decimal128("9E+6144"),
    "a decimal that is none": Decimal128("NaN"),
    "a signaling decimal": Decimal128("sNaN"),
    "an infinite decimal": Decimal128("-Infinity"),
    "empty text": "",
    "a null character": "a\0b",
    "text": "odd",
    "a name of an operator": "$name",
    "much text": "x" * 100_000,
    "a date": datetime(2024, 1, 1, tzinfo=UTC),
    "a date before all": DatetimeMS(-(2**63)),
    "a date after all": DatetimeMS(2**63 - 1),
    "an empty list": [],
    "a list of null": [None],
    "a list of lists": [[], [[1]]],
    "a mixed list": [1, "a", None, {"label": 5}, float("nan"), []],
    "an empty document": {},
    "a document": {"label": [1], "rank": "x"},
    "an operator": {"$gt": 1},
    "a reference": DBRef("owners", "o1", "elsewhere"),
    "odd names": {"": 1, "a.b": 2, "$set": {"0": 1}, "0": [3]},
    "many levels": DEEP,
    "a regular expression": Regex("^a", "i"),
    "code": Code("f()"),
    "code with a scope": Code("f()", {"a": [1]}),
    "binary data": b"\x00\xff",
    "a short UUID": Binary(b"ab", 4),
    "a UUID of another kind": Binary(b"0123456789abcdef", 3),
    "data of a kind of the user's": Binary(b"a", 128),
    "an objectId": ObjectId("0123456789abcdef01234567"),
    "a timestamp": Timestamp(1, 2),
    "a timestamp of zero": Timestamp(0, 0),
    "the least": MinKey(),
    "the most": MaxKey(),
}

PLACES = (
    "_id", "name", "rank", "serial", "weight", "price", "good", "at", "mood", "tags", "moods",
    "size", "parts", "size.label", "parts.0.rank", "data", "data.x", "code", "ownerId", "ownerName",
    "guestId", "version", "_change", "_change.id", "_change.by", "_change.why",
    "_change.restoredFrom", "_change.draft", "_copies", "unknown",
)  # fmt: skip

HEALTHY = tuple(f"h{n}" for n in range(4))
GUEST = ObjectId("f" * 24)
FIELDS = """id name rank serial weight price good at mood tags moods size { label rank }
  parts { label rank } data code ownerId ownerName guestId
  owner { id name } guest { id name }"""


def healthy(number: int) -> Row:
    """Return a valid document, which has another sort position in each field."""
    return {
        "_id": HEALTHY[number],
        "name": f"n{number}",
        "rank": number,
        "serial": Int64(number),
        "weight": number + 0.5,
        "price": Decimal128(f"{number}.5"),
        "good": bool(number % 2),
        "at": datetime(2024, 1, 1 + number, tzinfo=UTC),
        "mood": "GLAD",
        "tags": [f"t{number}"],
        "moods": ["SAD"],
        "size": {"label": f"l{number}", "rank": number},
        "parts": [{"label": f"l{number}", "rank": number}],
        "data": {"n": number},
        "code": f"c{number}",
        "ownerId": "o1",
        "ownerName": "Owner",
        "guestId": GUEST,
    }


def odd(place: str, case: str, value: Any) -> Row:
    """Return a document that is valid except for one field."""
    document: Row = healthy(0) | {"_id": f"odd {case}", "code": uuid4().hex}
    if place.startswith("_change."):
        document["_change"] = {"id": uuid4().hex, "by": "program", "why": "because"}
    match place.split("."):
        case [name]:
            document[name] = value
        case [name, inner]:
            document[name] = {**document[name], inner: value}
        case [name, _, inner]:
            document[name] = [{**document[name][0], inner: value}]
    return document


@pytest.fixture(scope="module")
def database(client: Client) -> Iterator[str]:
    name = f"odd_{uuid4().hex[:8]}"
    yield name
    client.drop_database(name)


@pytest.fixture(scope="module")
def gateway(
    mongo_uri: str, client: Client, database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """Run a gateway over valid documents; it has no internal errors, whatever the tests insert."""
    model = tmp_path_factory.mktemp("model") / "schema.graphql"
    model.write_text(MODEL)
    with running_gateway(mongo_uri, database, model, "--archive-wait-s", "60") as running:
        client[database]["owners"].insert_one({"_id": "o1", "name": "Owner"})
        client[database]["guests"].insert_one({"_id": GUEST, "name": "Guest"})
        client[database]["items"].insert_many([healthy(n) for n in range(len(HEALTHY))])
        yield running
        assert running.stop() == 0
    assert not [line for line in running.lines if "INTERNAL" in line or "Traceback" in line]


ORDERS = (
    "name", "rank", "serial", "weight", "price", "good", "at", "mood", "code", "ownerId", "guestId",
    "ownerName", "id", "version",
)  # fmt: skip
TIED = {"good", "mood", "ownerId", "ownerName", "guestId", "version"}
"""Fields in which some of the valid documents are equal."""
READS = f"""query($now: TimePoint!, $order: [ItemOrder!]) {{
  items(first: 200, orderBy: $order) {{ nodes {{ {FIELDS} }} totalCount }}
  one: item(id: "h1") {{ {FIELDS} history(first: 2) {{ nodes {{ number: id diff {{ path }} }} }}
    blame {{ path }} }}
  owner(id: "o1") {{ name items(first: 200, orderBy: $order) {{ nodes {{ id }} totalCount }} }}
  guest(id: "{GUEST}") {{ items(first: 200) {{ nodes {{ id }} }} }}
  itemsAsOf(first: 200, asOf: $now, orderBy: $order) {{
    nodes {{ documentId version author comment document {{
      name rank parts {{ rank }} owner {{ name }} guest {{ name }} }} }}
    totalCount }}
  trail: itemVersions(first: 200) {{ nodes {{ documentId version author comment
    restoredFrom changedFields diff {{ path before after }} }} }}
  mine: itemVersions(first: 200, where: {{ documentId: {{ in: ["h0", "h1", "h2"] }} }}) {{
    nodes {{ documentId version author }} }}
}}"""
CHOSEN = {
    "name": '{ name: { in: ["n1", "n2"] } }',
    "rank": "{ rank: { gte: 1, lt: 3 } }",
    "serial": "{ serial: { in: [1, 2] } }",
    "weight": "{ weight: { gt: 1, lt: 3 } }",
    "price": '{ price: { in: ["1.5", "2.5"] } }',
    "at": '{ at: { gt: "2024-01-01T12:00:00Z", lt: "2024-01-03T12:00:00Z" } }',
    "tags": '{ tags: { hasSome: ["t1", "t2"] } }',
    "size": "{ size: { rank: { in: [1, 2] } } }",
    "parts": "{ parts: { some: { rank: { in: [1, 2] } } } }",
    "code": '{ code: { in: ["c1", "c2"] } }',
    "id": '{ id: { in: ["h1", "h2"] } }',
}
"""Filters that match h1 and h2 only."""
PAGE = """query($order: [ItemOrder!], $after: String, $now: TimePoint!, $then: String) {
  items(first: 25, orderBy: $order, after: $after) {
    nodes { id } pageInfo { hasNextPage endCursor } }
  itemsAsOf(first: 25, orderBy: $order, after: $then, asOf: $now) {
    nodes { documentId } pageInfo { hasNextPage endCursor } }
}"""
EVENT = """kind operation transition documentId version item { id name rank owner { name } }
  before { rank name } diff { path before after } author comment changedFields"""


def harmless(answer: Row) -> Row:
    """Return the data; every error must be about an invalid value of an invalid document."""
    for error in answer.get("errors", []):
        assert error["extensions"]["code"] == "DOCUMENT_MISFIT", error
        assert error["extensions"].get("documentId") not in HEALTHY, error
    data: Row = answer["data"]
    assert data is not None, answer
    return data


def ids(page: Row, name: str = "id") -> list[str]:
    return [each[name] for each in page["nodes"]]


def well(found: list[str]) -> list[str]:
    return [each for each in found if each in HEALTHY]


def in_order(found: list[str], place: str) -> list[str]:
    return sorted(well(found)) if place in TIED else well(found)


def check_reads(gateway: RunningGateway, place: str, expected: Row, count: int) -> None:
    """Check lists, lookups, references, back references, history, audit trail, as-of reads,
    filters.
    """
    order = [{place: "ASC"}] if place in ORDERS else None
    now = {"token": gateway.query("{ resumeToken }")["resumeToken"]}
    for _ in range(2):
        # The second time as a compiled query.
        data = harmless(gateway.post(READS, now=now, order=order))
        nodes = {each["id"]: each for each in data["items"]["nodes"]}
        assert {each: nodes.get(each) for each in HEALTHY} == expected
        assert in_order(ids(data["items"]), place) == list(HEALTHY)
        assert data["items"]["totalCount"] == data["itemsAsOf"]["totalCount"] == count
        assert in_order(ids(data["itemsAsOf"], "documentId"), place) == list(HEALTHY)
        assert in_order(ids(data["owner"]["items"]), place) == list(HEALTHY)
        assert {*HEALTHY} <= {*ids(data["guest"]["items"])}
        assert {key: data["one"][key] for key in expected["h1"]} == expected["h1"]
        assert data["one"]["history"]["nodes"]
        assert {*ids(data["mine"], "documentId")} == {"h0", "h1", "h2"}
    selected = " ".join(
        f"{name}: items(first: 100, where: {where}) {{ nodes {{ id }} totalCount }}"
        for name, where in CHOSEN.items()
    )
    for name, page in harmless(gateway.post(f"{{ {selected} }}")).items():
        assert well(ids(page)) == ["h1", "h2"], name


def check_pages(gateway: RunningGateway, place: str, count: int) -> None:
    """Read both lists page by page, in both directions."""
    now = {"token": gateway.query("{ resumeToken }")["resumeToken"]}
    for direction in ("ASC", "DESC"):
        order = [{place: direction}] if place in ORDERS else None
        seen: list[str] = []
        then: list[str] = []
        after = later = None
        for _ in range(count):
            data = harmless(gateway.post(PAGE, order=order, after=after, now=now, then=later))
            seen += ids(data["items"])
            then += ids(data["itemsAsOf"], "documentId")
            after = data["items"]["pageInfo"]["endCursor"]
            later = data["itemsAsOf"]["pageInfo"]["endCursor"]
            if not data["items"]["pageInfo"]["hasNextPage"]:
                break
        assert len({*seen}) == len(seen)
        assert len({*then}) == len(then)
        expected = [*reversed(HEALTHY)] if order and direction == "DESC" else [*HEALTHY]
        if place in TIED:
            expected = [*HEALTHY]
        assert in_order(seen, place) == expected
        assert in_order(then, place) == expected


def check_writes(gateway: RunningGateway, place: str) -> None:
    """Check that an unusual document can be written, discussed and deleted, or has a result."""
    odd_ids = [each for each in ids(gateway.query(LIST)["items"]) if each not in HEALTHY]
    for number, id_ in enumerate(odd_ids[:: 1 if place == "_id" else 6]):
        if place == "_id" and gateway.query(ONE, id=id_)["item"] is None:
            # An id of a type whose text is not an id: see docs/reference/model.md.
            continue
        data = harmless(gateway.post(WRITES, id=id_))
        for name, outcome in data.items():
            if outcome is not None:
                assert outcome["__typename"] in (
                    "ItemWritten", "ItemDrafted", "InvalidDocument", "AlreadyExists", "Comment",
                ), (id_, name, outcome)  # fmt: skip
        if number % 2:
            gone = harmless(gateway.post(DELETE, id=id_))
            assert gone["deleteItem"] == {"__typename": "ItemWritten"}, (id_, gone)


ONE = "query($id: ID!) { item(id: $id) { id } }"
LIST = "{ items(first: 200) { nodes { id } } }"
WRITES = """mutation($id: ID!) {
  blind: updateItem(id: $id, patch: { rank: 50 }) { ...W }
  draft: proposeItem(id: $id, patch: { weight: 9 }) { __typename }
  comment: commentOnItem(id: $id, version: 1, text: "odd") { __typename }
} fragment W on ItemWrite { __typename ... on ItemWritten { version item { id rank } } }"""
DELETE = "mutation($id: ID!) { deleteItem(id: $id) { __typename } }"


@pytest.mark.parametrize(
    "place", representatives(PLACES, "_id", "weight", "at", "parts.0.rank", "ownerId", "_change.by")
)
async def test_unusual_values_do_not_affect_valid_documents(
    gateway: RunningGateway, client: Client, database: str, place: str
) -> None:
    """Every value is inserted in that field, read, written and deleted, with subscribers
    connected.
    """
    items = client[database]["items"]
    top = {"_id": "id"}.get(place, place.partition(".")[0])
    nodes = gateway.query(f"{{ items(first: 100) {{ nodes {{ {FIELDS} }} }} }}")["items"]["nodes"]
    expected = {each["id"]: each for each in nodes}
    assert {*expected} == {*HEALTHY}
    chosen = CHOSEN.get(top, CHOSEN["id"])
    async with open_socket(gateway.address) as socket:
        await socket.start("all", f"subscription {{ itemChanges {{ {EVENT} }} }}")
        await socket.start("some", f"subscription {{ itemChanges(where: {chosen}) {{ {EVENT} }} }}")
        marker = uuid4().hex
        following = asyncio.create_task(follow(socket, marker))
        try:
            count = plant(items, place)
            await asyncio.to_thread(check_reads, gateway, top, expected, count)
            await asyncio.to_thread(check_pages, gateway, top, count)
            await check_snapshot(gateway, chosen)
            await asyncio.to_thread(check_writes, gateway, place)
            items.update_one({"_id": "h1"}, {"$set": {"extra": marker}})
            await asyncio.wait_for(following, 30)
        finally:
            following.cancel()
            items.delete_many({"_id": {"$nin": list(HEALTHY)}})


def plant(items: Any, place: str) -> int:
    """Insert and change a document for each value; returns the number of documents."""
    for case, value in VALUES.items():
        if place == "_id" and value == Timestamp(0, 0):
            # MongoDB itself changes these ids in records that contain them.
            continue
        # MongoDB refuses some of them as ids, and others as equal to existing ones.
        with suppress(WriteError):
            items.insert_one(odd(place, case, value))
    items.update_many({"_id": {"$nin": list(HEALTHY)}}, {"$set": {"beside": 1}})
    count: int = items.count_documents({})
    assert count > len(VALUES) // 2
    return count


async def check_snapshot(gateway: RunningGateway, chosen: str) -> None:
    async with open_socket(gateway.address) as socket:
        query = f"subscription {{ itemChanges(snapshot: true, where: {chosen}) {{ {EVENT} }} }}"
        await socket.start("snapshot", query)
        seen = []
        while True:
            change = await next_change(socket)
            if change["kind"] == "CHECKPOINT":
                break
            seen.append(change["documentId"])
    assert well(seen) == ["h1", "h2"]


async def follow(socket: Socket, marker: str) -> None:
    """Return once both subscriptions have received the change of h1 that sets the marker."""
    waiting = {"all", "some"}
    while waiting:
        change = await next_change(socket)
        if change["documentId"] == "h1" and change["operation"] == "UPDATE":
            item = {"id": "h1", "name": "n1", "rank": 1, "owner": {"name": "Owner"}}
            assert change["item"] == item
            assert change["before"] == {"rank": 1, "name": "n1"}
            if [each["after"] for each in change["diff"]] == [marker]:
                waiting.discard(change["subscription"])


async def next_change(socket: Socket) -> Row:
    message = await socket.receive()
    assert message["type"] == "next", message
    change = harmless({"data": {}, **message["payload"]}).get("itemChanges")
    assert change is not None, message
    return {**change, "subscription": message["id"]}
