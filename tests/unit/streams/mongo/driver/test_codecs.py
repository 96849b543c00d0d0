"""Codecs: a document decodes to the same values whatever the names of its fields are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Code, Int64
from bson.raw_bson import RawBSONDocument

from revstream.streams.mongo.driver.codecs import RAW, SHOWN, decode, plain_value

SHAPES: list[dict[str, Any]] = [
    {"a": {"$ref": "users", "$id": 1}},
    {"a": {"x": 1, "$id": 1, "$db": "d", "$ref": "users", "name": {"$ref": "c", "$id": 2}}},
    {"a": [{"$ref": "users", "$id": Int64(1)}, [{"$ref": "c", "$id": None}]]},
    {"$ref": "users", "$id": 1, "a": {"b": [1, {"c": 2}]}},
    {"code": Code("return x", {"x": 1, "r": {"$ref": "users", "$id": 1}})},
    {"code": Code("return x", {"x": 1}), "a": {"$ref": "users", "$id": 1}},
]


@pytest.mark.parametrize("document", SHAPES)
def test_no_document_is_decoded_as_a_reference(document: dict[str, Any]) -> None:
    """Embedded documents are dicts with their fields in order, and encode to the same bytes."""
    raw = bson.encode(document)
    found = decode(raw)
    assert repr(found) == repr(document) or "code" in document
    assert bson.encode(found) == raw
    assert plain_value(RawBSONDocument(raw, RAW)) == found


def test_dates_follow_the_codec_options() -> None:
    """This holds beside fields with the names of a DBRef, too."""
    at = datetime(2024, 5, 1, tzinfo=UTC)
    raw = bson.encode({"at": at, "a": {"$ref": "c", "$id": 1, "at": at}})
    assert decode(raw)["a"]["at"] == at
    assert decode(memoryview(raw), SHOWN)["a"]["at"] == at.replace(tzinfo=None)
