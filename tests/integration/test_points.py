"""Points through the API: written, shown, compared, filtered and subscribed to; their index."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import context_of
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import Principal
from tests.support.editing import Failed, Row, Shop, open_shop
from tests.support.eventually import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = read_model(
    """
    type Shop @collection(name: "shops") @index(fields: ["place"]) @index(fields: ["at.gate", "name"]) {
      id: ID! name: String place: Point at: Address stops: [Address!]
      stalls: [Stall!]! @referencedBy(field: "shopId")
    }
    type Stall @collection(name: "stalls") {
      id: ID! at: Address shopId: ID shop: Shop @reference(by: "shopId")
    }
    type Address { gate: Point! town: String }
    type Site @collection(name: "sites")
      @access(rows: "{ place: { within: { box: { southWest: { longitude: $west, latitude: -90 }, northEast: { longitude: 180, latitude: 90 } } } } }") {
      id: ID! place: Point! secret: Point @access(read: ["staff"])
    }
    """  # noqa: E501
)
BERLIN, PARIS, SUVA = (13.4, 52.5), (2.35, 48.86), (178.44, -18.14)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(mongo_uri: str, client: MongoClient[Row]) -> AsyncIterator[Shop]:
    """Run a gateway over empty collections."""
    name = f"points_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=MODEL) as shop:
        yield shop
    client.drop_database(name)


def point(place: tuple[float, float]) -> Row:
    return {"longitude": place[0], "latitude": place[1]}


async def write(shop: Shop, mutation: str, **given: Any) -> Row:
    """Execute a mutation; return the name of the result's type, and the message of a refusal."""
    kinds = {"id": "ID!", "document": "ShopInput!", "patch": "ShopPatch"}
    declared = ", ".join(f"${each}: {kinds[each]}" for each in given)
    passed = ", ".join(f"{each}: ${each}" for each in given)
    text = f"""mutation({declared}) {{
      {mutation}({passed}) {{ __typename ... on WriteError {{ message }} }}
    }}"""
    result: Row = (await shop.ask(text, **given))[mutation]
    return result


def geojson(place: tuple[float, float], **more: Any) -> Row:
    return {"type": "Point", "coordinates": list(place), **more}


async def test_a_point_has_one_form_everywhere(shop: Shop) -> None:
    """It is an object with two numbers in the API, and GeoJSON in MongoDB."""
    address = {"gate": point(PARIS), "town": "Paris"}
    document = {"place": point(BERLIN), "at": address, "stops": [address, address]}
    await write(shop, "createShop", id="one", document=document)
    stored = shop.database["shops"].find_one({"_id": "one"}) or {}
    assert stored["place"] == geojson(BERLIN)
    assert [each["gate"] for each in (stored["at"], *stored["stops"])] == [geojson(PARIS)] * 3
    fields = "id place { __typename east: longitude latitude }"
    inner = "{ gate { longitude latitude } town }"
    shown = {"__typename": "Point", "east": 13.4, "latitude": 52.5}
    where = '(where: {id: {eq: "one"}})'
    # Documents with embedded ones are not compiled; the second execution of others is.
    for _ in range(3):
        found = await shop.ask(f"{{ shops{where} {{ nodes {{ {fields} }} }} }}")
        assert found["shops"]["nodes"] == [{"id": "one", "place": shown}]
        found = await shop.ask(f'{{ shop(id: "one") {{ {fields} at {inner} stops {inner} }} }}')
        assert found["shop"] == {"id": "one", "place": shown, "at": address, "stops": [address] * 2}

    await write(shop, "updateShop", id="one", patch={"place": point(SUVA)})
    gate = point((2.36, 48.86))
    await write(shop, "updateShop", id="one", patch={"at": {"gate": gate}})
    other = {"$set": {"place.coordinates.0": 179.0, "stops.0.gate.coordinates.1": 49.0}}
    shop.database["shops"].update_one({"_id": "one"}, other)
    await write(shop, "updateShop", id="one", patch={"place": None})
    await shop.recorded()
    text = """{ shop(id: "one") {
      place { latitude } all: diff(from: 2) { path before after }
      history(first: 4) { nodes { changedFields diff { path kind before after }
        document { place { longitude } at { gate { longitude } } } } }
      blame { path }
    } }"""
    found = (await shop.ask(text))["shop"]
    assert found["place"] is None
    found["history"]["nodes"].reverse()
    moved = [address | {"gate": point((2.35, 49.0))}, address]
    assert [each["changedFields"] for each in found["history"]["nodes"]] == [
        ["place"],
        ["at.gate"],
        ["place", "stops"],
        ["place"],
    ]
    assert [each["diff"] for each in found["history"]["nodes"]] == [
        [
            {
                "path": "place",
                "kind": "CHANGED",
                "before": point(BERLIN),
                "after": point(SUVA),
            }
        ],
        [{"path": "at.gate", "kind": "CHANGED", "before": point(PARIS), "after": gate}],
        [
            {
                "path": "place",
                "kind": "CHANGED",
                "before": point(SUVA),
                "after": point((179.0, SUVA[1])),
            },
            {"path": "stops", "kind": "CHANGED", "before": [address] * 2, "after": moved},
        ],
        [
            {
                "path": "place",
                "kind": "REMOVED",
                "before": point((179.0, SUVA[1])),
                "after": None,
            }
        ],
    ]
    assert [each["document"] for each in found["history"]["nodes"]][1:3] == [
        {"place": {"longitude": SUVA[0]}, "at": {"gate": {"longitude": 2.36}}},
        {"place": {"longitude": 179.0}, "at": {"gate": {"longitude": 2.36}}},
    ]
    assert found["all"] == [
        {"path": "place", "before": point(SUVA), "after": None},
        {"path": "at.gate", "before": point(PARIS), "after": gate},
        {"path": "stops", "before": [address] * 2, "after": moved},
    ]
    assert {each["path"] for each in found["blame"]} == {"at.gate", "at.town", "stops"}


@pytest.mark.parametrize(
    "stored",
    [
        geojson((1.0, 91.0)),
        {"type": "Point", "coordinates": [1.0, 2.0, 3.0]},
        {"type": "LineString", "coordinates": [[1.0, 2.0], [3.0, 4.0]]},
        [1.0, 2.0],
        "1 2",
    ],
)
async def test_another_value_is_a_misfit(shop: Shop, stored: Any) -> None:
    """Beside an altitude, which would be lost, these are values of other types."""
    # The index of `place` would refuse some.
    shop.database["shops"].replace_one(
        {"_id": "odd"}, {"stops": [{"gate": stored}], "version": 1}, upsert=True
    )
    with pytest.raises(Failed) as failed:
        await shop.ask('{ shop(id: "odd") { stops { gate { latitude } } } }')
    assert failed.value.code == "DOCUMENT_MISFIT"


async def test_filters_mean_the_same_now_then_and_in_a_subscription(shop: Shop) -> None:
    """A document that moves into a circle enters the result."""
    places = {"berlin": BERLIN, "paris": PARIS, "suva": SUVA}
    for name, place in places.items():
        await write(
            shop, "createShop", id=name, document={"name": "filtered", "place": point(place)}
        )
    await shop.recorded()
    token = (await shop.ask("{ resumeToken }"))["resumeToken"]
    text = """query($where: ShopWhere!, $token: ResumeToken!) {
      now: shops(where: $where) { nodes { id } }
      then: shopsAsOf(asOf: {token: $token}, where: $where) { nodes { documentId } }
      count: shopsAggregate(where: $where) { count }
    }"""

    async def found(where: Row) -> set[str]:
        named = {"name": {"eq": "filtered"}, **where}
        answer = await shop.ask(text, where=named, token=token)
        ids = {each["id"] for each in answer["now"]["nodes"]}
        assert {each["documentId"] for each in answer["then"]["nodes"]} == ids
        assert answer["count"]["count"] == len(ids)
        return ids

    europe = {"southWest": point((-10, 35)), "northEast": point((40, 70))}
    pacific = {"southWest": point((170, -50)), "northEast": point((-120, 0))}
    triangle = [point((0, 45)), point((20, 45)), point((10, 60))]
    for _ in range(2):
        assert await found({"place": {"within": {"box": europe}}}) == {"berlin", "paris"}
        assert await found({"place": {"within": {"box": pacific}}}) == {"suva"}
        assert await found({"place": {"within": {"polygon": triangle}}}) == {"berlin", "paris"}
        near = {"point": point(BERLIN), "maxDistance": 900_000}
        assert await found({"place": {"near": near}}) == {"berlin", "paris"}
        assert await found({"place": {"near": {**near, "minDistance": 1000}}}) == {"paris"}
        assert await found({"not": {"place": {"near": near}}}) == {"suva"}

    circle = {"center": point(PARIS), "radius": 50_000.0}
    where = {"place": {"within": {"circle": circle}}}
    subscription = """subscription($where: ShopWhere, $after: ResumeToken) {
      shopChanges(where: $where, after: $after) { kind transition documentId }
    }"""
    changes: list[Row] = []
    stream: Any = await shop.schema.subscribe(
        subscription, {"where": where, "after": token}, shop.context()
    )
    for place in ((2.4, 48.9), (2.5, 48.8), BERLIN):
        await write(shop, "updateShop", id="suva", patch={"place": point(place)})
    async for result in stream:
        assert result.errors is None
        change = result.data["shopChanges"]
        if change["kind"] == "CHANGE":
            changes.append(change)
        if len(changes) == 3:
            break
    await stream.aclose()
    assert [(each["documentId"], each["transition"]) for each in changes] == [
        ("suva", "ENTER"),
        ("suva", "STAY"),
        ("suva", "LEAVE"),
    ]


async def test_a_row_rule_may_be_a_region(shop: Shop) -> None:
    """It is applied now, and as of a moment; a field that a caller may not read is no filter."""
    shop.database["sites"].insert_many(
        {"_id": name, "place": geojson(place), "version": 1}
        for name, place in {"berlin": BERLIN, "paris": PARIS, "suva": SUVA}.items()
    )
    await shop.recorded()
    token = (await shop.ask("{ resumeToken }"))["resumeToken"]
    text = """query($token: ResumeToken!) {
      sites { nodes { id } }
      sitesAsOf(asOf: {token: $token}) { nodes { documentId } }
    }"""
    for west, shown in ((10, ["berlin", "suva"]), (100, ["suva"]), (None, [])):
        claims = {} if west is None else {"west": west}
        context = context_of(shop.gateway, caller=Principal(name="ann", claims=claims))
        result = await shop.schema.execute(text, {"token": token}, context)
        assert result.errors is None
        assert result.data is not None
        assert [each["id"] for each in result.data["sites"]["nodes"]] == shown
        assert [each["documentId"] for each in result.data["sitesAsOf"]["nodes"]] == shown
    context = context_of(shop.gateway, caller=Principal(name="ann", claims={"west": 0}))
    result = await shop.schema.execute(
        "{ sites(where: {secret: {exists: true}}) { nodes { id } } }", {}, context
    )
    assert [each.extensions["code"] for each in result.errors or () if each.extensions] == [
        "FORBIDDEN"
    ]


async def test_the_declared_index_is_of_kind_2dsphere_and_used(shop: Shop) -> None:
    """It is created at start; a box is found through a circle around it."""
    shops = shop.database["shops"]
    # A missing collection gets its indexes soon after its first document.
    id_ = uuid4().hex
    shops.insert_one({"_id": id_})
    await eventually(lambda: len(shops.index_information()) > 2)
    shops.delete_one({"_id": id_})
    indexes = shops.index_information()
    assert {each["key"][0] for each in map(dict, indexes.values())} >= {
        ("place", "2dsphere"),
        ("at.gate", "2dsphere"),
    }
    assert [*indexes["at.gate_2dsphere_name_1"]["key"]] == [("at.gate", "2dsphere"), ("name", 1)]


async def test_an_order_by_distance_is_that_of_plain_python(shop: Shop) -> None:
    """Pages of both directions, now and as of a moment, with other fields and other documents."""
    for name in ("shops", "stalls"):
        shop.database[name].delete_many({})
    places: dict[str, Any] = {
        f"p{n}": ((n * 37) % 360 - 180.0, (n * 53) % 180 - 90.0) for n in range(12)
    }
    places |= {"same": places["p3"], "none": None, "odd": "here"}
    shop.database["stalls"].insert_many(
        {
            "_id": id_,
            "shopId": "s1" if n % 2 else "s2",
            "version": 1,
            **(
                {"at": {"gate": place if isinstance(place, str) else geojson(place)}}
                if place
                else {}
            ),
        }
        for n, (id_, place) in enumerate(places.items())
    )
    shop.database["shops"].insert_many([{"_id": each, "version": 1} for each in ("s1", "s2")])
    await shop.recorded()
    token = (await shop.ask("{ resumeToken }"))["resumeToken"]

    def key(id_: str) -> tuple[float, str]:
        place = places[id_]
        if not isinstance(place, tuple):
            return -1, id_
        (a, b), (c, d) = (map(math.radians, each) for each in (place, BERLIN))
        cosine = math.sin(b) * math.sin(d) + math.cos(b) * math.cos(d) * math.cos(a - c)
        return round(math.acos(max(-1, min(1, cosine))), 9), id_

    nearest = sorted(places, key=key)
    order = {"at": {"gate": {"distanceTo": point(BERLIN)}}}
    farthest = {"at": {"gate": {"distanceTo": point(BERLIN), "direction": "DESC"}}}
    text = """query($order: [StallOrder!], $first: Int, $after: String, $token: ResumeToken!) {
      stalls(orderBy: $order, first: $first, after: $after) {
        nodes { id } pageInfo { endCursor hasNextPage } totalCount
      }
      stallsAsOf(asOf: {token: $token}, orderBy: $order, first: 99) { nodes { documentId } }
    }"""
    for orders, expected in (([order], nearest), ([farthest], nearest[::-1])):
        found: list[str] = []
        after, more = None, True
        while more:
            answer = await shop.ask(text, order=orders, first=4, after=after, token=token)
            page = answer["stalls"]
            found += [each["id"] for each in page["nodes"]]
            after, more = page["pageInfo"]["endCursor"], page["pageInfo"]["hasNextPage"]
            past = [each["documentId"] for each in answer["stallsAsOf"]["nodes"]]
            assert (past, page["totalCount"]) == (expected, len(places))
        assert found == expected
    text = """query($order: [StallOrder!]) {
      shops { nodes { id stalls(orderBy: $order, first: 3) { nodes { id } } } }
    }"""
    answer = (await shop.ask(text, order=[{"id": "ASC"}]))["shops"]["nodes"]
    assert [each["id"] for each in answer] == ["s1", "s2"]
    answer = (await shop.ask(text, order=[order]))["shops"]["nodes"]
    for each in answer:
        ids = list(places)[1 if each["id"] == "s1" else 0 :: 2]
        shown = [stall["id"] for stall in each["stalls"]["nodes"]]
        assert shown == [id_ for id_ in nearest if id_ in ids][:3]


async def test_an_order_by_distance_is_refused_with_words(shop: Shop) -> None:
    """A cursor of another point, a point that is none, and a point of another document."""
    shop.database["stalls"].insert_one(
        {"_id": uuid4().hex, "at": {"gate": geojson((1.0, 2.0))}, "version": 1}
    )
    text = """query($order: [StallOrder!], $after: String) {
      stalls(orderBy: $order, first: 1, after: $after) { pageInfo { endCursor } }
    }"""

    async def ask(place: Row, after: str | None = None, **other: Any) -> Any:
        order = other or {"at": {"gate": {"distanceTo": place}}}
        return (await shop.ask(text, order=[order], after=after))["stalls"]["pageInfo"]

    cursor = (await ask(point(BERLIN)))["endCursor"]
    await ask(point(BERLIN), cursor)
    for given, message in (
        ((point(PARIS), cursor), "expected a cursor of this list in this order"),
        (({"longitude": 0, "latitude": 91},), "a latitude from -90 to 90"),
    ):
        with pytest.raises(Failed) as failed:
            await ask(*given)
        assert failed.value.code == "BAD_USER_INPUT"
        assert message in failed.value.args[0].message
    with pytest.raises(Failed) as failed:
        await ask({}, shop={"at": {"gate": {"distanceTo": point(PARIS)}}})
    assert "expected a point of the documents that are ordered" in failed.value.args[0].message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "near: {point: {longitude: 181, latitude: 0}, maxDistance: 1}",
            "Shop.place.near.point: {'longitude': 181.0, 'latitude': 0.0}, expected a Point: a "
            "longitude from -180 to 180 and a latitude from -90 to 90",
        ),
        (
            "near: {point: {longitude: 1, latitude: 0}, maxDistance: 0}",
            "Shop.place.near.maxDistance: 0, expected metres above 0, at most 20,037,392",
        ),
        (
            "near: {point: {longitude: 1, latitude: 0}, maxDistance: 5, minDistance: 5}",
            "Shop.place.near.minDistance: 5, expected less than maxDistance, 5",
        ),
        (
            "within: {box: {southWest: {longitude: 0, latitude: 9}, "
            "northEast: {longitude: 1, latitude: 8}}}",
            "Shop.place.within.box: 9 and 8, expected the latitude of southWest below that of "
            "northEast; swap them",
        ),
        (
            "within: {polygon: [{longitude: 0, latitude: 0}, {longitude: 1, latitude: 1}]}",
            "Shop.place.within.polygon: 2 corners, expected 3 to 200",
        ),
        (
            "within: {polygon: [{longitude: 0, latitude: 0}, {longitude: 9, latitude: 9}, "
            "{longitude: 9, latitude: 0}, {longitude: 0, latitude: 9}]}",
            "Shop.place.within.polygon: edges that meet, from 0 0 and from 9 0, expected the "
            "corners in their order around it",
        ),
        (
            "within: {polygon: [{longitude: 0, latitude: 0}, {longitude: 120, latitude: 0}, "
            "{longitude: -120, latitude: 0}]}",
            "Shop.place.within.polygon: more than half of the earth, expected a smaller one; use "
            "a box, or several polygons",
        ),
        (
            "within: {polygon: [{longitude: 0, latitude: 0}, {longitude: 5, latitude: 0}, "
            "{longitude: 9, latitude: 0}]}",
            "Shop.place.within.polygon: points on one line, expected an area",
        ),
        (
            "within: {polygon: [{longitude: 0, latitude: 0}, {longitude: 5, latitude: 0}, "
            "{longitude: 5, latitude: 5}, {longitude: 5, latitude: 0}]}",
            "Shop.place.within.polygon: the point 5 0 twice, expected each corner once",
        ),
    ],
)
async def test_a_wrong_region_is_refused(shop: Shop, given: str, message: str) -> None:
    """The error has the value, and the expected one."""
    with pytest.raises(Failed) as failed:
        await shop.ask(f"{{ shops(where: {{place: {{{given}}}}}) {{ nodes {{ id }} }} }}")
    assert failed.value.code == "BAD_USER_INPUT"
    assert failed.value.args[0].message == message


async def test_a_wrong_point_is_refused(shop: Shop) -> None:
    """A write names the field."""
    document = {"at": {"gate": {"longitude": 0, "latitude": 95}}}
    result = await write(shop, "createShop", id="bad", document=document)
    assert "latitude from -90 to 90" in result["message"]
