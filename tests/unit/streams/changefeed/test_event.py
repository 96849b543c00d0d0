"""Decoded change events, and equality of their `_id`s."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Code, Decimal128, Int64, ObjectId, Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import decode_event, identity, key_hash
from revstream.streams.mongo.driver.codecs import RAW
from tests.support.streams import raw

OBJECT_ID = ObjectId("5a0000000000000000000001")
DATE = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, Int64(1)),
        (1, Decimal128("1.00")),
        (0.5, Decimal128("0.5")),
        (0.0, -0.0),
        (float("nan"), float("nan")),
        (float("nan"), Decimal128("NaN")),
        (Decimal128("sNaN"), Decimal128("NaN")),
        (float("inf"), Decimal128("Infinity")),
        ({"a": 1, "b": [1, {"c": 2}]}, {"a": 1.0, "b": [Int64(1), {"c": Decimal128("2")}]}),
        ({"a": 1}, raw({"a": 1})),
        ({"a": {"b": OBJECT_ID}}, raw({"a": {"b": OBJECT_ID}})),
        (Code("f"), Code("f")),
        (Code("f", {"a": 1, "b": float("nan")}), Code("f", {"a": 1.0, "b": Decimal128("NaN")})),
        (Decimal128("1E+6000"), Decimal128("1.0E+6000")),
    ],
)
def test_two_ids_that_mongodb_calls_equal_are_one(one: Any, other: Any) -> None:
    """A unique index holds only one of them, whatever the types of the numbers."""
    assert identity(one) == identity(other)
    assert key_hash(one) == key_hash(other)
    assert {identity(one): True}[identity(other)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0, False),
        (1, "1"),
        ("f", Code("f")),
        (Code("f"), Code("f", {})),
        (Code("f", {"a": 1}), Code("f", {"b": 1})),
        ({"a": 1}, {"a": True}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1}, [("a", 1)]),
        ([1], {"0": 1}),
        (0.1, Decimal128("0.1")),
        (DATE, "2024-05-01"),
        (DATE, Timestamp(int(DATE.timestamp()), 0)),
        (OBJECT_ID, str(OBJECT_ID)),
        (None, ""),
    ],
)
def test_two_ids_that_mongodb_distinguishes_are_two(one: Any, other: Any) -> None:
    """Values that a unique index can hold together have two identities."""
    assert identity(one) != identity(other)


def test_every_id_that_mongodb_stores_has_an_identity() -> None:
    """Identities are hashable, even if the values are not."""
    values = [Decimal128("1.5"), Code("f", {"x": 1}), {"r": bson.Regex("a")}, {"a": {"b": [1]}}]
    assert len({identity(each) for each in values}) == len(values)


def decoded(change: dict[str, Any]) -> Any:
    return decode_event(RawBSONDocument(bson.encode(change), RAW))


def test_an_event_is_decoded_from_the_servers_reply() -> None:
    """An update has its key, images and description; documents stay raw until they are read."""
    change = {
        "_id": {"_data": "82674C1B3E000000022B04"},
        "operationType": "update",
        "clusterTime": Timestamp(0x674C1B3E, 2),
        "wallTime": DATE,
        "ns": {"db": "shop", "coll": "things"},
        "documentKey": {"_id": {"a": 1}, "shard": 5},
        "fullDocument": {"_id": {"a": 1}, "n": 2},
        "fullDocumentBeforeChange": {"_id": {"a": 1}, "n": 1},
        "updateDescription": {"updatedFields": {"n": 2}},
    }
    found = decoded(change)
    assert (found.token, found.at, found.wall) == (
        "674C1B3E000000022B04",
        Timestamp(0x674C1B3E, 2),
        DATE,
    )
    assert (found.operation, found.collection, found.key) == ("update", "things", {"a": 1})
    assert found.is_write
    assert found.after.raw == bson.encode(change["fullDocument"])
    assert found.document == change["fullDocument"]
    assert found.document_before == change["fullDocumentBeforeChange"]
    assert found.size_bytes > len(found.after.raw) + len(found.before.raw)


@pytest.mark.parametrize("operation", ["insert", "update", "replace", "delete"])
def test_the_key_of_a_sharded_collection_is_only_its_id(operation: str) -> None:
    """`documentKey` begins with the shard key there, which is not part of the identity."""
    change = {
        "_id": {"_data": "82674C1B3E000000022B04"},
        "operationType": operation,
        "clusterTime": Timestamp(0x674C1B3E, 2),
        "wallTime": DATE,
        "ns": {"db": "shop", "coll": "orders"},
        "documentKey": {"region": "eu", "customer.name": None, "_id": OBJECT_ID},
    }
    assert decoded(change).key == OBJECT_ID


def test_an_event_of_no_document_has_no_key() -> None:
    """A rename names both collections, an invalidate none.

    A missing wall time is the cluster time.
    """
    renamed = decoded(
        {
            "_id": {"_data": "82674C1B3E000000022B04"},
            "operationType": "rename",
            "clusterTime": Timestamp(0x674C1B3E, 2),
            "ns": {"db": "shop", "coll": "old"},
            "to": {"db": "shop", "coll": "new"},
        }
    )
    assert (renamed.collection, renamed.renamed_to, renamed.key) == ("old", "new", None)
    assert not renamed.is_write
    assert renamed.wall == datetime.fromtimestamp(0x674C1B3E, UTC)
    ended = decoded(
        {
            "_id": {"_data": "82674C1B3E000000022B04"},
            "operationType": "invalidate",
            "clusterTime": Timestamp(0x674C1B3E, 2),
        }
    )
    assert (ended.collection, ended.key, ended.document) == ("", None, None)


def test_an_event_that_cannot_be_decoded_keeps_its_token_and_its_bytes() -> None:
    """It does not end the stream: it carries the reason why it cannot be decoded."""
    at = Timestamp(5, 1)
    sent = {
        "_id": {"_data": "82" + "00" * 20},
        "operationType": "update",
        "clusterTime": at,
        "ns": {"db": "shop", "coll": "things"},
        "documentKey": {"_id": 7},
        "wallTime": "not a date",
        "updateDescription": {"updatedFields": {"a": 1}},
    }
    document = bson.encode(sent)
    # A string whose length exceeds the document.
    damaged = document.replace(b"\x0b\0\0\0not a date", b"\xff\xff\0\0not a date")
    event = decode_event(RawBSONDocument(bson.encode(sent), RAW))
    assert event.fault is None
    event = decode_event(_Damaged(damaged))  # type: ignore[arg-type]
    assert (event.at, event.operation, event.collection) == (at, "update", "things")
    assert event.fault is not None
    assert event.undecoded == damaged
    assert event.after is event.before is event.update is None


class _Damaged:
    """A document as the driver would return it if it did not validate BSON."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
