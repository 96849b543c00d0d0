"""Update pipelines of writes: content, version number and attribution in one update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from bson import Int64, ObjectId

from revstream.model.compiler.loader import read_model
from revstream.resolvers.mutations.document_input import parse_change, parse_document
from revstream.resolvers.mutations.merge_patch import Merge
from revstream.resolvers.mutations.result import Author
from revstream.resolvers.mutations.update_pipeline import (
    DocumentUpdate,
    attribution,
    fenced_pipeline,
)
from tests.support.streams import raw

MODEL = read_model(
    """
    type Product @collection(name: "products") { id: ID! name: String stock: Int size: Size }
    type Size { width: Float! height: Float! }
    type City @collection(name: "cities", version: null) { id: ID! name: String }
    type Reading @collection(name: "readings", version: "n") {
      id: ID! sequence: Long! @fence @stored(as: "s") value: Float
    }
    """
)
PRODUCT, CITY, READING = (MODEL.entity(name) for name in ("Product", "City", "Reading"))
CHANGE = {"id": "c1", "by": "ann"}
MERGED = Merge({"name": "Lamp"})


def computed(pipeline: Any) -> dict[str, Any]:
    """Return the computed fields of a pipeline's outermost merge, by name."""
    [stage] = pipeline
    parts = stage["$replaceWith"]["$let"]["in"]["$mergeObjects"]
    [pairs] = parts[-1]["$arrayToObject"]
    return {each["k"]["$literal"]: each["v"] for each in pairs}


def test_an_attribution_has_an_id_of_its_own_and_the_known_facts() -> None:
    """The id distinguishes two writes by the same author for the same reason."""
    one, other = (
        attribution(Author(by="ann"), PRODUCT, "p", draft=3, restoredFrom=None) for _ in range(2)
    )
    assert ObjectId.is_valid(one["id"])
    assert one["id"] != other["id"]
    assert one == {
        "id": one["id"],
        "in": PRODUCT.collection,
        "doc": "p",
        "by": "ann",
        "draft": 3,
    }
    assert set(attribution(Author(why="because"), PRODUCT, "p")) == {"id", "in", "doc", "why"}


@pytest.mark.parametrize(
    ("alteration", "operation", "restored_from", "draft"),
    [
        (DocumentUpdate.update(parse_change(MODEL, PRODUCT, {"name": "x"})), "UPDATE", None, None),
        (DocumentUpdate.publication(MERGED, 4), "UPDATE", None, 4),
        (DocumentUpdate.replacement(PRODUCT, {"name": "x"}), "REPLACE", None, None),
    ],
)
def test_an_update_has_its_operation(
    alteration: DocumentUpdate, operation: str, restored_from: int | None, draft: int | None
) -> None:
    """The operation does not depend on the kind of entry in the server's oplog."""
    found = (alteration.operation, alteration.restored_from, alteration.draft)
    assert found == (operation, restored_from, draft)


@pytest.mark.parametrize(
    "alteration",
    [
        DocumentUpdate.update(parse_change(MODEL, PRODUCT, {"name": "x"})),
        DocumentUpdate.publication(MERGED, 4),
        DocumentUpdate.replacement(PRODUCT, {"name": "x"}),
    ],
)
def test_each_write_counts_and_is_attributed(alteration: DocumentUpdate) -> None:
    """An invalid version number, or the maximum, counts as 0; a known number is written."""
    own = computed(alteration.pipeline(PRODUCT, CHANGE, None))
    assert own["_change"] == {"$literal": CHANGE}
    held = {"$getField": {"field": {"$literal": "version"}, "input": "$$old"}}
    counts = {"$and": [{"$isNumber": held}, {"$lt": [held, 2**30]}]}
    assert own["version"] == {"$add": [{"$cond": [counts, held, 0]}, 1]}
    own = computed(alteration.pipeline(PRODUCT, CHANGE, 7))
    assert own["version"] == {"$literal": 7}


def test_documents_without_a_version_field_are_not_counted() -> None:
    """The archive counts them; a known number changes nothing."""
    alteration = DocumentUpdate.publication(MERGED, 4)
    assert set(computed(alteration.pipeline(CITY, CHANGE, 7))) == {"_change"}


def test_an_update_increments_in_the_same_write() -> None:
    """The pipeline has patch, number and attribution, and the demands of both inputs."""
    change = parse_change(MODEL, PRODUCT, {"size": {"width": 2}}, {"stock": -1})
    alteration = DocumentUpdate.update(change)
    own = computed(alteration.pipeline(PRODUCT, CHANGE, None))
    assert set(own) == {"size", "stock", "_change", "version"}
    assert [each.path for each in alteration.demands] == ["size.height", "stock"]


def test_a_replacement_removes_absent_fields() -> None:
    """Only fields of the model are removed."""
    [stage] = DocumentUpdate.replacement(PRODUCT, {"name": "x"}).pipeline(PRODUCT, CHANGE, None)
    kept = stage["$replaceWith"]["$let"]["in"]["$mergeObjects"][0]
    [removed] = _literals(kept, list)
    assert removed == ["stock", "size"]


def test_a_restoration_replaces_the_whole_content() -> None:
    """Other fields are removed, also those outside the model; the version number continues."""
    content = raw({"_id": 1, "version": 2, "name": "old", "extra": 1})
    assert content is not None
    alteration = DocumentUpdate.restoration(content, 2)
    assert (alteration.operation, alteration.restored_from) == ("REPLACE", 2)
    [stage] = alteration.pipeline(PRODUCT, CHANGE, None)
    parts = stage["$replaceWith"]["$let"]["in"]["$mergeObjects"]
    assert parts[0] == {"$literal": content}
    [pairs] = parts[1]["$arrayToObject"]
    assert [each["k"]["$literal"] for each in pairs] == ["_change", "version"]


def test_an_event_is_compared_with_the_stored_fence_value() -> None:
    """An older or equal event changes nothing; without a stored number, the event is applied."""
    document = parse_document(MODEL, READING, {"sequence": 5, "value": 1})
    [stage] = fenced_pipeline(READING, document, CHANGE)
    stale, as_it_is, newer = stage["$replaceWith"]["$cond"]
    assert stale == {"$and": [{"$isNumber": "$s"}, {"$gte": ["$s", {"$literal": Int64(5)}]}]}
    assert as_it_is == "$$ROOT"
    assert set(computed([{"$replaceWith": newer}])) == {"_change", "n"}
    assert {"s": Int64(5), "value": 1.0} in _literals(newer, Mapping)


def test_an_event_removes_fields_that_it_does_not_have() -> None:
    """An event is a state, not a patch."""
    [stage] = fenced_pipeline(READING, {"s": Int64(5)}, CHANGE)
    newer = stage["$replaceWith"]["$cond"][2]
    assert ["value"] in _literals(newer, list)


def _literals(expression: Any, kind: Any) -> list[Any]:
    """Return the literals of one kind in an expression, the outermost first."""
    if isinstance(expression, list):
        return [found for each in expression for found in _literals(each, kind)]
    if not isinstance(expression, Mapping):
        return []
    own = [expression["$literal"]] if isinstance(expression.get("$literal"), kind) else []
    below = [each for name, each in expression.items() if name != "$literal"]
    return own + _literals(below, kind)
