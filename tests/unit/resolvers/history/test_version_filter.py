"""VersionWhere filters as queries over records.

tests/integration/test_history.py has their results.
"""

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
def test_an_empty_filter_is_no_condition(where: dict[str, Any] | None) -> None:
    """The result is None."""
    assert parse_version_where(SHAPES, THING, where, OPEN) is None


def test_fields_have_the_names_of_the_record() -> None:
    """Each field of the filter has its name in the archive's records."""
    assert query({"author": {"startsWith": "an"}}) == {"by": {"$regex": "^an"}}
    assert query({"operation": {"in": ["INSERT", "DELETE"]}}) == {
        "op": {"$in": ["INSERT", "DELETE"]}
    }
    assert query({"version": {"gt": 3, "lte": 5}}) == {"v": {"$gt": 3, "$lte": 5}}


def test_an_id_has_the_stored_type_of_its_entity() -> None:
    """The API's ids are texts; the stored type is the model's."""
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
def test_a_time_bounds_the_range_of_tokens(operator: str, bounds: list[Any]) -> None:
    """The range is some seconds wider: the wall clock and the cluster time may differ."""
    assert query({"at": {operator: "2024-05-01T12:00:00.000Z"}}) == {
        "$and": [{"wall": {f"${operator}": NOON}}, *bounds]
    }


@pytest.mark.parametrize("time", ["1969-01-01T00:00:00Z", "+275760-09-13T00:00:00.000Z"])
def test_times_beyond_all_tokens_are_valid(time: str) -> None:
    """Such a filter matches nothing, and does not fail."""
    bounds = query({"at": {"lt": time}})["$and"][1]
    assert bounds["_id"]["$lt"] in ("0" * 16, "F" * 8 + "0" * 8)


def test_other_conditions_on_time_do_not_bound_the_range() -> None:
    """`ne` and comparison with null leave the range open."""
    assert query({"at": {"ne": NOON}}).keys() == {"wall"}
    assert query({"at": {"eq": None}}) == {"wall": {"$eq": None}}


def test_a_changed_field_matches_its_parents_and_children() -> None:
    """An object that was added as a whole is listed by its own path."""
    assert query({"changedField": "size.width"}) == {
        "$or": [{"changed": {"$in": ["size", "size.w"]}}, {"changed": {"$regex": "^size\\.w\\."}}]
    }


def test_conditions_are_combined_with_and() -> None:
    """This is the rule of all filters."""
    parts = query({"author": {"eq": "ann"}, "changedField": "text"})["$and"]
    assert parts[0] == {"by": {"$eq": "ann"}}
    assert parts[1].keys() == {"$or"}


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"changedField": None}, "VersionWhere.changedField: null"),
        (
            {"changedField": "colours"},
            "VersionWhere.changedField: 'colours', expected a field of Thing",
        ),
        ({"documentId": {"eq": "x"}}, "VersionWhere.documentId.eq: 'x', expected an Int"),
        (
            {"operation": {"eq": "UPSERT"}},
            "VersionWhere.operation.eq: 'UPSERT', expected one of BASELINE, INSERT",
        ),
        ({"at": {"gt": "noon"}}, "VersionWhere.at.gt: 'noon', expected a DateTime"),
        ({"comment": {"eq": "x"}}, "VersionWhere: 'comment', expected a field"),
        ({"author": None}, "VersionWhere.author: null"),
    ],
)
def test_an_invalid_filter_is_refused(where: dict[str, Any], message: str) -> None:
    """The error names the field, the operator and the valid values."""
    with pytest.raises(BadUserInput, match=message):
        query(where)
