"""Ids and type names of source objects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from revstream.gql.engine.definitions.object_type import ObjectTypeInfo, build_object_types
from revstream.gql.engine.request.source import (
    CurrentDocument,
    EmbeddedDocument,
    SnapshotDocument,
    VersionRecord,
)
from revstream.model.definition import Model
from revstream.resolvers.errors import DocumentMisfit
from tests.support.reads import Memory, at


@pytest.fixture
def city(model: Model) -> ObjectTypeInfo:
    return build_object_types(model)["City"]


def test_a_snapshot_has_the_id_of_its_document_and_version(city: ObjectTypeInfo) -> None:
    """Normalized caches must distinguish it from the current document."""
    assert CurrentDocument(city, {"_id": 7}).id_text == "7"
    snapshot = SnapshotDocument(city, {"_id": 7}, 3, at(0))
    assert snapshot.id_text == "7@3"
    assert (snapshot.type_name, snapshot.moment) == ("CitySnapshot", at(0))


def test_a_version_has_its_own_time_or_its_parents(city: ObjectTypeInfo, memory: Memory) -> None:
    """Its document has the same time."""
    version = memory.write("cities", {"_id": 7})
    alone, below = VersionRecord(city, version), VersionRecord(city, version, at(9))
    assert (alone.moment, below.moment) == (version.at, at(9))
    assert below.snapshot is not None
    assert below.snapshot.moment == at(9)
    assert below.snapshot.id_text == below.id_text == "7@1"


def test_a_version_read_without_its_document_still_has_one(
    city: ObjectTypeInfo, memory: Memory
) -> None:
    """Only the id is known; a deletion has none."""
    version = memory.write("cities", {"_id": 7})
    bare = VersionRecord(city, replace(version, full=None)).snapshot
    assert bare is not None
    assert bare.values == {"_id": 7}
    deleted = memory.write("cities", None, id_=7)
    assert VersionRecord(city, deleted).snapshot is None


def test_an_embedded_document_has_the_time_of_its_parent(
    model: Model, city: ObjectTypeInfo
) -> None:
    """Its type is that of the time."""
    unit = build_object_types(model)["Unit"]
    place = CurrentDocument(city, {"_id": 7}).place
    assert EmbeddedDocument(unit, {}, place, None).type_name == "Unit"
    assert EmbeddedDocument(unit, {}, place, at(1)).type_name == "UnitSnapshot"


def test_an_id_that_does_not_fit_is_a_misfit(city: ObjectTypeInfo) -> None:
    """Another program wrote a document with an id of another type."""
    with pytest.raises(DocumentMisfit, match="cities/x: id: "):
        assert CurrentDocument(city, {"_id": "x"}).id_text
