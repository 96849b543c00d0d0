"""Filters of points: the server and the predicate find the same documents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.model.compiler.loader import read_model
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.mongo_query import to_query
from revstream.resolvers.filters.parser import parse_where
from revstream.resolvers.filters.predicate import compile_predicate
from revstream.streams.mongo.driver.codecs import DECODED
from tests.support.exhaustive import examples

MODEL = read_model(
    'type Stop @collection(name: "stops") { id: Int! at: Point ways: [Way!] } '
    "type Way { at: Point }"
)
STOP = MODEL.entity("Stop")

# Metres: nearer to an edge, the two may differ.
TOLERANCE = (0.02, 0.3, 2)
EARTH = 6_378_100
Place = tuple[float, float]

NOTABLE = [0.0, 0.5, -0.5, 10.0, 45.0, 89.9, 90.0, -90.0, 179.9, 180.0, -180.0]
PLACES = st.tuples(
    st.sampled_from(NOTABLE) | st.floats(-180, 180),
    st.sampled_from([each for each in NOTABLE if abs(each) <= 90]) | st.floats(-90, 90),
)
# Of a metre to the whole earth.
DISTANCES = st.floats(0, math.log(2e7)).map(math.exp)


def point(place: Sequence[float]) -> dict[str, float]:
    return {"longitude": place[0], "latitude": place[1]}


def geojson(place: Sequence[Any]) -> dict[str, Any]:
    return {"type": "Point", "coordinates": list(place)}


def moved(place: Place, bearing: float, distance: float) -> Place:
    """Return the place at a distance, by the formulas of spherical trigonometry."""
    longitude, latitude, along = *map(math.radians, place), distance / EARTH
    up = math.asin(
        max(
            -1.0,
            min(
                1.0,
                math.sin(latitude) * math.cos(along)
                + math.cos(latitude) * math.sin(along) * math.cos(bearing),
            ),
        )
    )
    right = longitude + math.atan2(
        math.sin(bearing) * math.sin(along) * math.cos(latitude),
        math.cos(along) - math.sin(latitude) * math.sin(up),
    )
    degrees = (math.degrees(right) + 540) % 360 - 180
    return degrees, math.degrees(up)


def distance_to_edges(place: Place, corners: Sequence[Place]) -> float:
    """Return the metres to the nearest edge; a polygon may be too narrow to look around."""
    here, *ring = map(vector, [place, *corners])
    found = []
    for start, end in zip(ring, ring[1:] + ring[:1], strict=True):
        found += [math.dist(here, start), math.dist(here, end)]
        across = cross(start, end)
        if dot(cross(across, start), here) > 0 > dot(cross(across, end), here):
            found.append(abs(dot(across, here)) / math.hypot(*across))
    return EARTH * min(found)


def vector(place: Place) -> list[float]:
    longitude, latitude = map(math.radians, place)
    flat = math.cos(latitude)
    return [flat * math.cos(longitude), flat * math.sin(longitude), math.sin(latitude)]


def cross(one: Sequence[float], other: Sequence[float]) -> list[float]:
    pairs = ((1, 2), (2, 0), (0, 1))
    return [one[a] * other[b] - one[b] * other[a] for a, b in pairs]


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


@st.composite
def polygons(draw: st.DrawFn) -> list[dict[str, float]]:
    """Draw corners around a middle, or anywhere: the edges of these often meet."""
    if draw(st.integers(0, 4)) == 0:
        return [point(each) for each in draw(st.lists(PLACES, min_size=3, max_size=6))]
    middle, size = draw(PLACES), draw(st.floats(0, math.log(9e6)).map(math.exp))
    bearings = sorted(draw(st.sets(st.integers(0, 71), min_size=3, max_size=9)))
    places = [
        moved(middle, math.radians(5 * each), size * draw(st.floats(0.2, 1))) for each in bearings
    ]
    if draw(st.booleans()):
        places.reverse()
    return [point(each) for each in places]


FILTERS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.builds(
        lambda center, radius: {"within": {"circle": {"center": point(center), "radius": radius}}},
        PLACES,
        DISTANCES,
    ),
    st.builds(
        lambda place, most, part: {
            "near": {"point": point(place), "maxDistance": most, "minDistance": most * part}
        },
        PLACES,
        DISTANCES,
        st.floats(0.01, 0.99),
    ),
    st.builds(
        lambda one, other: {
            "within": {
                "box": {
                    "southWest": point((one[0], min(one[1], other[1]))),
                    "northEast": point((other[0], max(one[1], other[1]))),
                }
            }
        },
        PLACES,
        PLACES,
    ),
    polygons().map(lambda corners: {"within": {"polygon": corners}}),
)


def near_to(where: Mapping[str, Any]) -> list[Place]:
    """Return places of a filter, so that some documents lie beside its edges."""
    (operand,) = where.values()
    found = []
    waiting = [operand]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping) and "longitude" in each:
            found.append((each["longitude"], each["latitude"]))
        elif isinstance(each, Mapping | list):
            waiting += each.values() if isinstance(each, Mapping) else each
    return found


@pytest.mark.parametrize("indexed", [False, True])
@settings(
    max_examples=examples(20),
    deadline=None,
    # The failure names the place and the filter; shrinking would take minutes.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_the_server_and_the_predicate_find_the_same_points(
    client: MongoClient[dict[str, Any]], database_name: str, indexed: bool, data: st.DataObject
) -> None:
    """They differ at most for points within two metres of an edge."""
    where = data.draw(FILTERS)
    try:
        condition = parse_where(MODEL, STOP, {"at": where})
    except BadUserInput:
        # Edges that meet; other operands are right.
        assert "polygon" in where.get("within", {})
        return
    bearings, spread = st.floats(0, math.tau), st.floats(0, 7).map(lambda each: 10**each)
    corners = near_to(where)
    middle = tuple(math.fsum(each) / len(corners) for each in zip(*corners, strict=True))
    places = data.draw(st.lists(PLACES, min_size=5, max_size=30))
    for corner in [*corners[:8], middle]:
        places += [moved(corner, data.draw(bearings), data.draw(spread)) for _ in range(3)]
    stops = client[database_name].get_collection("stops", codec_options=DECODED)
    stops.delete_many({})
    stops.insert_many([{"_id": n, "at": geojson(each)} for n, each in enumerate(places)])
    if indexed:
        stops.create_index([("at", "2dsphere")])
    found = {each["_id"] for each in stops.find(to_query(condition))}
    predicate = compile_predicate(condition)
    for number, place in enumerate(places):
        expected = predicate({"at": geojson(place)})
        around = [moved(place, turn * math.pi / 4, each) for turn in range(8) for each in TOLERANCE]
        if "polygon" in where.get("within", {}):
            beside = distance_to_edges(place, corners) < TOLERANCE[-1]
        else:
            beside = any(predicate({"at": geojson(each)}) != expected for each in around)
        if not beside:
            assert (number in found) == expected, (place, condition)
    stops.insert_many(
        [{"_id": f"{n}@1", "full": {"at": geojson(each)}} for n, each in enumerate(places)]
    )
    archived = {each["_id"] for each in stops.find(to_query(condition, prefix="full."))}
    assert archived == {f"{number}@1" for number in found}
    stops.delete_many({"full": {"$exists": True}})
    nothing = {each["_id"] for each in stops.find({"$nor": [to_query(condition)]})}
    assert nothing == set(range(len(places))) - found


HERE = [10.0, 50.0]
ODD: list[Any] = [
    geojson(HERE),
    geojson([10, Int64(50)]),
    geojson([Decimal128("10"), Decimal128("50")]),
    geojson([*HERE, 500.0]),
    geojson([*HERE, "high"]),
    geojson([10.0]),
    geojson([]),
    geojson(["10", "50"]),
    geojson([True, 50.0]),
    geojson([400.0, 50.0]),
    geojson([10.0, 91.0]),
    geojson([math.nan, 50.0]),
    geojson([math.inf, 50.0]),
    geojson([HERE]),
    {"coordinates": HERE, "type": "Point"},
    {**geojson(HERE), "name": "more"},
    {**geojson(HERE), "crs": None},
    {**geojson(HERE), "crs": {"type": "name", "properties": {"name": "EPSG:4326"}}},
    {"type": "point", "coordinates": HERE},
    {"coordinates": HERE},
    {"type": "LineString", "coordinates": [HERE, [11.0, 50.0]]},
    {"type": "MultiPoint", "coordinates": [HERE]},
    {"lng": 10.0, "lat": 50.0},
    HERE,
    [geojson(HERE)],
    [],
    "here",
    None,
    7,
]
REGIONS: list[dict[str, Any]] = [
    {"within": {"circle": {"center": point(HERE), "radius": 1000}}},
    {"within": {"circle": {"center": point(HERE), "radius": 20_000_000}}},
    {"near": {"point": point((10, 51)), "maxDistance": 200_000, "minDistance": 1000}},
    {"within": {"box": {"southWest": point((-179, -89)), "northEast": point((179, 89))}}},
    {"within": {"box": {"southWest": point((9, 49)), "northEast": point((11, 51))}}},
    {"within": {"box": {"southWest": point((5, -90)), "northEast": point((-5, 90))}}},
    {"within": {"polygon": [point((5, 45)), point((15, 45)), point((10, 60))]}},
    {"exists": True},
]


def test_both_sides_agree_on_odd_values(
    client: MongoClient[dict[str, Any]], database_name: str
) -> None:
    """Other geometries, older forms of points, and values that are none, in a list too."""
    stops = client[database_name].get_collection("stops", codec_options=DECODED)
    documents: list[dict[str, Any]] = [{"_id": n, "at": each} for n, each in enumerate(ODD)]
    documents += [
        {"_id": len(ODD) + n, "ways": [{"at": each}, {}, {"at": geojson((100, 0))}]}
        for n, each in enumerate(ODD)
    ]
    stops.insert_many([*documents, {"_id": -1}])
    for region in REGIONS:
        for where in (
            {"at": region},
            {"not": {"at": region}},
            {"ways": {"some": {"at": region}}},
            {"ways": {"every": {"at": region}}},
        ):
            condition = parse_where(MODEL, STOP, where)
            found = {each["_id"] for each in stops.find(to_query(condition))}
            predicate = compile_predicate(condition)
            expected = {each["_id"] for each in stops.find() if predicate(each)}
            differing = [each for each in documents if each["_id"] in found ^ expected]
            assert not differing, where
