"""Copies of a model, and whether a version has their values."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Timestamp

from revstream.model.compiler.loader import read_model
from revstream.streams.recording.bootstrap.index_creation import wanted_indexes
from revstream.streams.versioning.copied_field import SourceState, copied_fields
from revstream.streams.versioning.version import Version
from tests.support.copying import BASKETS, SHOP

VERSION = Version(
    token="t",
    document="p",
    number=1,
    operation="UPDATE",
    at=Timestamp(1, 1),
    wall=datetime(2024, 1, 1, tzinfo=UTC),
)
# The indexes depend on the model alone.
NOBODY: Any = None
ANN = SourceState(source="ann", number=9, value="Ann", since=5)


def test_every_copy_of_a_model_is_found_wherever_it_lies() -> None:
    """Paths have stored names; an embedded type counts once for each use."""
    model = read_model("""
    type Supplier @collection(name: "suppliers") { id: ID! name: String @stored(as: "n") }
    type Order @collection(name: "orders", version: null) {
      id: ID!
      payer: Party
      goods: [Good!] @stored(as: "g")
    }
    type Good { maker: Party }
    type Party {
      supplierId: ID @stored(as: "sid")
      supplier: Supplier @reference(by: "supplierId")
      supplierName: String @copy(of: "supplier.name")
    }
    """)
    found = copied_fields(model)
    assert [each.name for each in found] == [
        "suppliers.n>orders.payer.supplierName(sid)",
        "suppliers.n>orders.g.maker.supplierName(sid)",
    ]
    assert [each.key for each in found] == ["payer%2EsupplierName", "g%2Emaker%2EsupplierName"]
    assert [each.counts for each in found] == [None, None]
    indexes = [(collection, keys) for collection, keys, *_ in wanted_indexes(NOBODY, model)]
    assert ("orders", [("g.maker.sid", 1), ("_id", 1)]) in indexes


def test_the_targets_of_a_source_are_found_by_an_index() -> None:
    """One index is enough for several users; the index of `_id` exists anyway."""
    [(collection, keys, *_)] = wanted_indexes(NOBODY, SHOP)
    assert (collection, keys) == ("products", [("supplierId", 1), ("_id", 1)])
    model = read_model("""
    type Supplier @collection(name: "suppliers") {
      id: ID! name: String products: [Product!]! @referencedBy(field: "supplierId")
    }
    type Product @collection(name: "products") {
      id: ID!
      supplierId: ID
      supplier: Supplier @reference(by: "supplierId")
      one: String @copy(of: "supplier.name")
      two: String @copy(of: "supplier.name")
      self: Supplier @reference(by: "id")
      three: String @copy(of: "self.name")
    }
    """)
    assert len(wanted_indexes(NOBODY, model)) == 1


@pytest.mark.parametrize(
    ("changes", "matters"),
    [
        ({"changed": ("rank",)}, False),
        ({"changed": ("names",)}, False),
        ({"changed": ("rank", "name")}, True),
        ({"changed": ("name.first",)}, True),
        ({"changed": (), "gap": True}, True),
        ({"operation": "DELETE"}, True),
        ({"operation": "BASELINE"}, True),
        ({"operation": "INSERT"}, True),
        ({"operation": "REPLACE"}, False),
    ],
)
def test_a_version_of_a_source_matters_if_the_field_may_have_changed(
    changes: dict[str, Any], matters: bool
) -> None:
    """The changed paths of a version are exact, unless there is a gap before it."""
    [copy] = copied_fields(SHOP)
    assert copy.may_change(replace(VERSION, **changes)) is matters


@pytest.mark.parametrize(
    ("full", "entries", "settled"),
    [
        ({"supplierId": "ann", "supplierName": "Ann"}, [{"of": "ann", "v": 5}], True),
        ({"supplierId": "ann", "supplierName": "Ann"}, [{"of": "ann", "v": 12}], True),
        ({"supplierId": "ann", "supplierName": "Ann"}, [{"of": "ann", "v": 4}], False),
        ({"supplierId": "ann", "supplierName": "Ann"}, [{"of": "bob", "v": 5}], False),
        ({"supplierId": "ann", "supplierName": "Ann"}, [], False),
        ({"supplierId": "ann", "supplierName": "Ann"}, ["x", {"of": "ann", "v": "9"}], False),
        ({"supplierId": "ann", "supplierName": "Ann"}, "nonsense", False),
        ({"supplierId": "ann", "supplierName": "Anna"}, [{"of": "ann", "v": 5}], False),
        ({"supplierId": "ann"}, [{"of": "ann", "v": 5}], False),
        ({}, [], True),
        ({"supplierId": None, "supplierName": "Ann"}, [], False),
        ({"supplierName": None}, [], False),
    ],
)
def test_a_copy_is_settled_if_value_and_entry_are_right(
    full: dict[str, Any], entries: Any, settled: bool
) -> None:
    """An entry may be older than the last version, but not older than the field's last change."""
    [copy] = copied_fields(SHOP)
    version = replace(VERSION, full=full, copies={"supplierName": entries})
    assert copy.is_up_to_date(version, {"ann": ANN}) is settled


def test_each_copy_in_a_list_has_to_be_settled() -> None:
    """Each has its own reference."""
    [copy] = copied_fields(BASKETS)
    lines = [{"supplierId": "ann", "supplierName": "Ann"}, {}, "no line"]
    copies = {"lines%2EsupplierName": [{"of": "ann", "v": 5}]}
    version = replace(VERSION, full={"lines": lines}, copies=copies)
    assert copy.is_up_to_date(version, {"ann": ANN})
    more = replace(version, full={"lines": [*lines, {"supplierId": "ann"}]})
    assert not copy.is_up_to_date(more, {"ann": ANN})
    assert list(copy.source_ids(more.full or {})) == ["ann", "ann"]
