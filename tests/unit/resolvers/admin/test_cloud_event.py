"""CloudEvents of versions: the fields of the API, and no others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
from bson import Decimal128, Int64, Timestamp

from revstream.model.compiler.loader import read_model
from revstream.resolvers.admin.cloud_event import Events
from revstream.streams.listeners.webhooks.document_queue import LostVersions
from revstream.streams.versioning.truncation_mark import TruncationMark
from revstream.streams.versioning.version import Version

MODEL = read_model("""
type Order @collection(name: "orders") {
  id: ObjectID!
  total: Decimal @stored(as: "sum")
  count: Long
  lines: [Line!]
  shipTo: Address @stored(as: "ship_to")
  more: JSON
  placedAt: DateTime
  payments: [Payment]
}
union Payment @discriminator(field: "kind") = Card | Cash
type Card @variant(value: "card") { number: String @stored(as: "no") }
type Cash { amount: Int }
type Line { product: String @stored(as: "p") quantity: Int }
type Address { city: String! }
""")
EVENTS = Events(MODEL, MODEL.entity("Order"), sink="sink:orders:1", deployment="abc")
FULL: dict[str, Any] = {
    "_id": "0" * 24,
    "sum": Decimal128("12.50"),
    "count": Int64(2**60),
    "lines": [{"p": "lamp", "quantity": 2, "secret": 1}, {"p": "chair"}],
    "ship_to": {"city": "Ulm", "street": "x"},
    "more": {"_change": 1, "x": [Decimal128("1.0")]},
    "placedAt": datetime(2024, 5, 1, tzinfo=UTC),
    "payments": [{"kind": "card", "no": "4", "amount": 1}, {"kind": "Cash", "no": "4"}],
    "version": 7,
    "secret": "s",
}


def version(**changes: Any) -> Version:
    given: dict[str, Any] = {
        "token": "65B0000000000001",
        "document": "x",
        "number": 7,
        "operation": "UPDATE",
        "at": Timestamp(1, 1),
        "wall": datetime(2024, 1, 1, tzinfo=UTC),
        "changed": ("sum", "ship_to.city", "secret", "lines"),
        "full": FULL,
        **changes,
    }
    return Version(**given)


def event(**changes: Any) -> dict[str, Any]:
    from bson import ObjectId

    changes.setdefault("document", ObjectId("65b000000000000000000001"))
    found: dict[str, Any] = orjson.loads(EVENTS.change(version(**changes), 4).body)
    return found


def test_a_document_is_rendered_as_in_the_api() -> None:
    """API names and scalars are used; fields outside the model are omitted."""
    from bson import ObjectId

    rendered = event(full={**FULL, "_id": ObjectId("65b000000000000000000001")})
    assert rendered["subject"] == rendered["partitionkey"] == "65b000000000000000000001"
    assert rendered["data"]["document"] == {
        "id": "65b000000000000000000001",
        "total": "12.50",
        "count": str(2**60),
        "lines": [{"product": "lamp", "quantity": 2}, {"product": "chair", "quantity": None}],
        "shipTo": {"city": "Ulm"},
        "more": {"_change": 1, "x": ["1.0"]},
        "placedAt": "2024-05-01T00:00:00.000Z",
        "payments": [{"kind": "card", "number": "4"}, {"kind": "Cash", "amount": None}],
    }
    assert rendered["data"]["changedFields"] == ["total", "shipTo.city", "lines"]
    assert "misfits" not in rendered["data"]


def test_values_that_do_not_fit_the_model_are_null_and_listed() -> None:
    """The rest of the document is delivered."""
    lines = [{"p": 3}, None, 4]
    more = {"lines": lines, "ship_to": {"city": "Ulm"}, "payments": [{"kind": "crd"}]}
    data = event(full={"sum": "much", **more})["data"]
    assert data["misfits"] == ["total", "lines.1", "payments.0"]
    assert (data["document"]["total"], data["document"]["lines"]) == (None, None)
    assert data["document"]["shipTo"] == {"city": "Ulm"}
    inside = event(full={"lines": [{"p": 3, "quantity": 1}]})["data"]
    assert inside["misfits"] == ["lines.0.product"]
    assert inside["document"]["lines"] == [{"product": None, "quantity": 1}]


def test_gaps_and_truncations_are_reported() -> None:
    """A truncation mark counts as a gap."""
    assert event()["data"]["gap"] is False
    assert event(gap=True)["data"]["gap"] is True
    when = datetime(2024, 2, 1, tzinfo=UTC)
    cut = TruncationMark(versions=3, number=1, since=Timestamp(1, 1), at=when)
    data = event(cut=cut)["data"]
    assert (data["gap"], data["cut"]) == (True, {"versions": 3, "at": "2024-02-01T00:00:00.000Z"})


def test_the_id_is_stable_and_the_fencing_token_is_not() -> None:
    """The id does not depend on the process that delivers the event."""
    from bson import ObjectId

    key = ObjectId("65b000000000000000000001")
    one, other = (EVENTS.change(version(document=key), fence) for fence in (4, 5))
    assert one.id == other.id == "65B0000000000001.abc"
    assert orjson.loads(other.body)["fencingtoken"] == 5
    assert one.headers["Revstream-Fencing-Token"] == "4"
    lost = [EVENTS.lost(LostVersions("dropped", key), fence) for fence in (4, 5)]
    assert lost[0].id == lost[1].id != EVENTS.lost(LostVersions("dropped"), 4).id
    assert orjson.loads(lost[0].body)["type"] == "revstream.Order.history-lost"
