"""Every BSON type, including those without a Python type: the archive stores documents byte for
byte, however a version was made.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import RAW, Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.server_check import enable_collection_images
from tests.support.streams import Recording, outline

Client = MongoClient[dict[str, Any]]
pytestmark = pytest.mark.parametrize("mongo", ["motor"], indirect=True)


def element(kind: int, name: str, value: bytes) -> bytes:
    return bytes([kind]) + name.encode() + b"\0" + value


def document(*elements: bytes) -> bytes:
    body = b"".join(elements)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def text(value: bytes) -> bytes:
    return struct.pack("<i", len(value) + 1) + value + b"\0"


def int32(name: str, value: int) -> bytes:
    return element(0x10, name, struct.pack("<i", value))


def binary(subtype: int, value: bytes) -> bytes:
    return struct.pack("<i", len(value)) + bytes([subtype]) + value


def code_with_scope() -> bytes:
    inner = text(b"f(x)") + document(int32("x", 1))
    return struct.pack("<i", len(inner) + 4) + inner


OBJECT_ID = bytes(range(12))
VALUES: dict[str, tuple[int, bytes]] = {
    "double": (0x01, struct.pack("<d", 0.1)),
    "integral double": (0x01, struct.pack("<d", 1.0)),
    "minus zero": (0x01, struct.pack("<d", -0.0)),
    "infinity": (0x01, struct.pack("<d", float("-inf"))),
    "NaN": (0x01, struct.pack("<Q", 0x7FF8000000000000)),
    "NaN with a payload": (0x01, struct.pack("<Q", 0x7FF8000000000ABC)),
    "string": (0x02, text("é\0x".encode())),
    "text that is not UTF-8": (0x02, text(b"\xff\xfe")),
    "dots and dollars": (
        0x03,
        document(int32("a.b", 1), int32("$c", 2), int32("", 3), int32("0", 4), int32("$", 5)),
    ),
    "DBRef": (
        0x03,
        document(
            element(0x02, "$ref", text(b"c")), int32("$id", 1), element(0x02, "$db", text(b"d"))
        ),
    ),
    "array": (0x04, document(int32("0", 1), element(0x0A, "1", b""))),
    "generic binary": (0x05, binary(0, b"\0\1")),
    "function": (0x05, binary(1, b"\0\1")),
    "old binary": (0x05, binary(2, struct.pack("<i", 2) + b"\0\1")),
    "old UUID": (0x05, binary(3, bytes(16))),
    "UUID": (0x05, binary(4, bytes(16))),
    "short UUID": (0x05, binary(4, b"\1")),
    "MD5": (0x05, binary(5, bytes(16))),
    "compressed": (0x05, binary(7, b"\0")),
    "sensitive": (0x05, binary(8, b"secret")),
    "user-defined binary": (0x05, binary(0x80, b"")),
    "undefined": (0x06, b""),
    "ObjectId": (0x07, OBJECT_ID),
    "false": (0x08, b"\0"),
    "date": (0x09, struct.pack("<q", 0)),
    "date of year 292277025": (0x09, struct.pack("<q", 2**63 - 1)),
    "date before year 1": (0x09, struct.pack("<q", -(2**63))),
    "null": (0x0A, b""),
    "regex": (0x0B, b"^a\0imx\0"),
    "DBPointer": (0x0C, text(b"db.c") + OBJECT_ID),
    "code": (0x0D, text(b"f()")),
    "symbol": (0x0E, text(b"sym")),
    "code with scope": (0x0F, code_with_scope()),
    "int32": (0x10, struct.pack("<i", 1)),
    "timestamp": (0x11, struct.pack("<II", 1, 2)),
    "int64": (0x12, struct.pack("<q", 1)),
    "Decimal128": (0x13, bytes(14) + b"\x40\x30"),
    "minimum": (0xFF, b""),
    "maximum": (0x7F, b""),
}


def thing(number: int, kind: int, value: bytes) -> Any:
    """Return a document with the value on top and nested, between other fields."""
    inner = document(element(kind, "inside", value), int32("n", 0))
    found = document(
        int32("_id", number),
        int32("before", 1),
        element(kind, "value", value),
        element(0x03, "nested", inner),
        element(0x04, "list", document(element(kind, "0", value))),
        int32("n", 0),
    )
    return RawBSONDocument(found, RAW)


@pytest.mark.parametrize("images", [True, False], ids=["images", "deltas"])
async def test_every_type_is_stored_byte_for_byte(
    mongo: Mongo, client: Client, images: bool
) -> None:
    """Inserts, updates beside the value and inside its parent, and replacements, with `_change` and
    without.
    """
    if images:
        await enable_collection_images(mongo, "things")
    await Recording(mongo).begin(baseline_done=True)
    things = client.get_database(mongo.name, codec_options=RAW).things
    expected: list[bytes] = []
    names: list[str] = []

    def stored(number: int) -> None:
        names.append(list(VALUES)[number])
        expected.append(
            bytes(things.aggregate([{"$match": {"_id": number}}, {"$unset": "_change"}]).next().raw)
        )

    for number, (kind, value) in enumerate(VALUES.values()):
        made = thing(number, kind, value)
        things.insert_one(made)
        stored(number)
        assert expected[-1] == made.raw, names[-1]
        for update in (
            {"$set": {"n": 1}},
            {"$set": {"nested.n": 1, "before": 2}},
            {"$set": {"_change": {"id": 1, "by": "a"}, "n": 2}},
            [{"$set": {"copy": "$value", "n": 3}}],
        ):
            things.update_one({"_id": number}, update)
            stored(number)
        # `replace_one` would decode it.
        things.database.command("update", "things", updates=[{"q": {"_id": number}, "u": made}])
        stored(number)
    recording = Recording(mongo)
    await recording.record()
    records: list[Document] = await mongo.find(
        recording.archive.name, {}, FindOptions(sort=[("_id", 1)], raw=True)
    )
    wrong = {
        f"{name} {record['v']}"
        for name, record, full in zip(names, records, expected, strict=True)
        if bytes(record["full"].raw) != full
    }
    assert wrong == set()
    assert not any(gap for _, _, gap in outline(records))
