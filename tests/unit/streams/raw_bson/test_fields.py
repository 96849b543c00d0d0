"""Removal of fields from BSON bytes."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Code, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.dbref import DBRef
from hypothesis import given
from hypothesis import strategies as st

from revstream.streams.mongo.driver.codecs import DECODED
from revstream.streams.raw_bson.fields import (
    find_changed_elements,
    iterate_elements,
    remove_field,
    split_objects,
)
from tests.support.bson_values import DOCUMENTS, VALUES

EVERY: dict[str, Any] = {
    "": 1,
    "double": 0.5,
    "string": "a\0b",
    "object": {"_change": 1},
    "array": [1, [2]],
    "binary": b"\0\1",
    "id": ObjectId(),
    "boolean": True,
    "null": None,
    "regex": Regex("a", "im"),
    "empty regex": Regex(""),
    "code": Code("f()"),
    "scoped": Code("f()", {"x": 1}),
    "ref": DBRef("c", 1),
    "int32": 1,
    "timestamp": Timestamp(1, 2),
    "int64": Int64(1),
    "decimal": Decimal128("1.0"),
    "minimum": MinKey(),
    "maximum": MaxKey(),
}


@pytest.mark.parametrize("place", range(len(EVERY) + 1))
def test_a_field_is_removed_from_between_any_two(place: int) -> None:
    """The fields around it do not matter; an inner field of the same name stays."""
    fields = list(EVERY.items())
    fields.insert(place, ("_change", {"by": "alice"}))
    assert remove_field(bson.encode(dict(fields)), "_change") == bson.encode(EVERY)


@given(DOCUMENTS)
def test_a_document_without_the_field_keeps_its_bytes(document: dict[str, Any]) -> None:
    """A document with it has the bytes that the driver would encode without it."""
    raw = bson.encode(document, codec_options=DECODED)
    assert remove_field(raw, "_change") == raw
    for name in document:
        rest = {key: value for key, value in document.items() if key != name}
        assert remove_field(raw, name) == bson.encode(rest, codec_options=DECODED)


@given(DOCUMENTS, st.data())
def test_objects_are_split_off_and_the_rest_stays(
    document: dict[str, Any], data: st.DataObject
) -> None:
    """Values of other types with the same name stay."""
    names = data.draw(st.sets(st.sampled_from(list(document)))) if document else set()
    found, rest = split_objects(
        bson.encode(document, codec_options=DECODED), {each.encode() for each in names}
    )
    objects = {n: each for n, each in document.items() if n in names and isinstance(each, dict)}
    others = {n: each for n, each in document.items() if n not in objects}
    assert rest == bson.encode(others, codec_options=DECODED)
    assert found == {
        name.encode(): bson.encode(each, codec_options=DECODED) for name, each in objects.items()
    }


@given(DOCUMENTS, st.data())
def test_differing_values_are_found_while_fields_keep_their_places(
    before: dict[str, Any], data: st.DataObject
) -> None:
    """The result is None with other fields, or in another order."""
    after = {**before}
    for name in data.draw(st.lists(st.sampled_from(list(before)))) if before else ():
        after[name] = data.draw(VALUES)
    one, other = (bson.encode(each, codec_options=DECODED) for each in (before, after))
    expected = [
        pair
        for pair in zip(iterate_elements(one), iterate_elements(other), strict=True)
        if pair[0] != pair[1]
    ]
    assert find_changed_elements(one, other) == expected
    assert (
        find_changed_elements(one, bson.encode({**after, "one more": 1}, codec_options=DECODED))
        is None
    )
    assert (
        find_changed_elements(bson.encode({**before, "one more": 1}, codec_options=DECODED), other)
        is None
    )
    turned = bson.encode(dict(reversed(after.items())), codec_options=DECODED)
    assert len(after) < 2 or find_changed_elements(one, turned) is None


def test_an_unknown_type_is_refused() -> None:
    """The end of its value is unknown."""
    with pytest.raises(ValueError, match="0x42"):
        remove_field(b"\x08\0\0\0\x42a\0\0", "b")
