"""A VersionWhere as a query over records. What it finds: tests/integration/test_history.py."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from bson.objectid import ObjectId

from revstream.model.definition import Entity, Field, Model, Scalar
from revstream.resolvers.access.permissions import OPEN
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.history.version_filter import parse_version_where
from tests.support.shapes import SHAPES, THING

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
NOON_S = int(NOON.timestamp())


def query(where: dict[str, Any], entity: Entity = THING, model: Model = SHAPES) -> Any:
    parsed = parse_version_where(model, entity, where, OPEN)
    assert parsed is not None
    return parsed.query


@pytest.mark.parametrize("where", [None, {}])
def test_nothing_said_is_no_filter(where: dict[str, Any] | None) -> None:
    """So nothing is looked for."""
    assert parse_version_where(SHAPES, THING, where, OPEN) is None


def test_fields_are_those_of_the_record() -> None:
    """Each under its name there."""
    assert query({"author": {"startsWith": "an"}}) == {"by": {"$regex": "^an"}}
    assert query({"operation": {"in": ["INSERT", "DELETE"]}}) == {
        "op": {"$in": ["INSERT", "DELETE"]}
    }
    assert query({"version": {"gt": 3, "lte": 5}}) == {"v": {"$gt": 3, "$lte": 5}}


def test_an_id_is_stored_as_the_entitys_is() -> None:
    """Text in the API, and whatever the model says inside."""
    assert query({"documentId": {"eq": "7"}}) == {"doc": {"$eq": 7}}
    owner = Entity(
        name="Owner",
        collection="owners",
        singular="owner",
        plural="owners",
        fields=(Field(name="id", stored="_id", type=Scalar.ID, stored_scalar=Scalar.OBJECTID),),
    )
    wanted = {"documentId": {"eq": "5" * 24}}
    assert query(wanted, owner, Model(entities=(owner,))) == {"doc": {"$eq": ObjectId("5" * 24)}}


@pytest.mark.parametrize(
    ("operator", "bounds"),
    [
        ("gte", [{"_id": {"$gte": f"{NOON_S - 10:08X}00000000"}}]),
        ("gt", [{"_id": {"$gte": f"{NOON_S - 10:08X}00000000"}}]),
        ("lt", [{"_id": {"$lt": f"{NOON_S + 11:08X}00000000"}}]),
        ("lte", [{"_id": {"$lt": f"{NOON_S + 11:08X}00000000"}}]),
        (
            "eq",
            [
                {"_id": {"$gte": f"{NOON_S - 10:08X}00000000"}},
                {"_id": {"$lt": f"{NOON_S + 11:08X}00000000"}},
            ],
        ),
    ],
)
def test_a_time_bounds_the_part_of_the_stream_that_is_looked_through(
    operator: str, bounds: list[Any]
) -> None:
    """With some seconds to spare: the clock and the cluster's time need not agree."""
    assert query({"at": {operator: "2024-05-01T12:00:00.000Z"}}) == {
        "$and": [{"wall": {f"${operator}": NOON}}, *bounds]
    }


@pytest.mark.parametrize("time", ["1969-01-01T00:00:00Z", "+275760-09-13T00:00:00.000Z"])
def test_times_beyond_all_tokens_are_times_all_the_same(time: str) -> None:
    """Nothing is written then, and nothing fails."""
    bounds = query({"at": {"lt": time}})["$and"][1]
    assert bounds["_id"]["$lt"] in ("0" * 16, "F" * 8 + "0" * 8)


def test_other_questions_about_time_bound_nothing() -> None:
    """Not to be at a time, and to have none."""
    assert query({"at": {"ne": NOON}}).keys() == {"wall"}
    assert query({"at": {"eq": None}}) == {"wall": {"$eq": None}}


def test_a_changed_field_is_it_or_around_it_or_inside_of_it() -> None:
    """An object that appears as a whole is listed by itself."""
    assert query({"changedField": "size.width"}) == {
        "$or": [{"changed": {"$in": ["size", "size.w"]}}, {"changed": {"$regex": "^size\\.w\\."}}]
    }


def test_all_that_is_said_holds_together() -> None:
    """As in every filter."""
    parts = query({"author": {"eq": "ann"}, "changedField": "text"})["$and"]
    assert parts[0] == {"by": {"$eq": "ann"}}
    assert parts[1].keys() == {"$or"}


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"changedField": None}, "VersionWhere.changedField: null"),
        ({"changedField": "colours"}, "VersionWhere.changedField: Thing has no field 'colours'"),
        ({"documentId": {"eq": "x"}}, "VersionWhere.documentId eq is an Int"),
        ({"operation": {"eq": "UPSERT"}}, "VersionWhere.operation eq is one of BASELINE, INSERT"),
        ({"at": {"gt": "noon"}}, "VersionWhere.at gt is a DateTime"),
        ({"comment": {"eq": "x"}}, "VersionWhere has no field 'comment'"),
        ({"author": None}, "VersionWhere.author: null"),
    ],
)
def test_what_cannot_be_asked_is_refused(where: dict[str, Any], message: str) -> None:
    """The error names the field, the operator and what would do."""
    with pytest.raises(BadUserInput, match=message):
        query(where)
