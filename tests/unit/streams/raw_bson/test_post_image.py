"""Post-images in which a field occurs twice, as the server produces them."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st

from revstream.streams.mongo.driver.codecs import DECODED, RAW
from revstream.streams.raw_bson.post_image import repair_post_image


def raw(*fields: tuple[str, Any]) -> RawBSONDocument:
    """Return a document of these fields, in their order, with duplicates."""
    inside = b"".join(bson.encode({name: value})[4:-1] for name, value in fields)
    size = (len(inside) + 5).to_bytes(4, "little")
    return RawBSONDocument(size + inside + b"\0", RAW)


def described(**updated: Any) -> RawBSONDocument:
    return raw(("updatedFields", {name.replace("__", "."): each for name, each in updated.items()}))


@pytest.mark.parametrize(
    ("after", "update", "expected"),
    [
        (
            raw(("_id", 1), ("a", 1), ("b", 2), ("a", 3), ("c", 4)),
            described(a=3, c=4),
            [("_id", 1), ("b", 2), ("a", 3), ("c", 4)],
        ),
        (
            raw(("_id", 1), ("d", raw(("h", 30.0), ("w", 1.0), ("h", 2.5), ("n", "x")))),
            described(d__h=2.5, d__n="x"),
            [("_id", 1), ("d", {"w": 1.0, "h": 2.5, "n": "x"})],
        ),
        (
            raw(("_id", 1), ("l", [raw(("x", 1), ("y", 1), ("x", 2))])),
            raw(("updatedFields", {"l.0.x": 2})),
            [("_id", 1), ("l", [{"y": 1, "x": 2}])],
        ),
    ],
)
def test_a_duplicate_field_keeps_its_last_place(
    after: RawBSONDocument, update: RawBSONDocument, expected: list[tuple[str, Any]]
) -> None:
    """The earlier occurrence is removed."""
    assert repair_post_image(after, update).raw == raw(*expected).raw


@given(
    document=st.dictionaries(
        st.sampled_from("abc"), st.integers(-(2**63), 2**63 - 1) | st.text(), max_size=3
    ),
    nested=st.booleans(),
)
def test_images_without_duplicates_are_unchanged(document: dict[str, Any], nested: bool) -> None:
    """The same object is returned."""
    after = RawBSONDocument(bson.encode({"d": document}, codec_options=DECODED), RAW)
    assert repair_post_image(after, described(**{"d__a" if nested else "d": 1})) is after


@given(
    fields=st.lists(
        # One name ends like another, also where it is only text.
        st.tuples(
            st.sampled_from(["a", "ba", "b", ""]),
            st.sampled_from([1, "a", "b", {"a": 1}, {"a": 1, "b": "ba"}, ["a"]]),
        ),
        max_size=6,
    ),
    named=st.sets(st.sampled_from(["a", "ba", "b", ""])),
)
def test_each_field_keeps_its_last_place(fields: list[tuple[str, Any]], named: set[str]) -> None:
    """Other occurrences of the name do not matter; the description lists each appended field."""
    appended = {
        name for n, (name, _) in enumerate(fields) if name in {each for each, _ in fields[:n]}
    }
    update = raw(("updatedFields", dict.fromkeys(sorted(named | appended), 1)))
    last = [
        each
        for n, each in enumerate(fields)
        if each[0] not in {name for name, _ in fields[n + 1 :]}
    ]
    found = repair_post_image(raw(*fields), update)
    assert found is not None
    assert found.raw == raw(*last).raw


def test_invalid_text_is_not_rewritten() -> None:
    """The same object is returned for bytes that are not UTF-8."""
    after = RawBSONDocument(bson.encode({"a": "xx"}).replace(b"xx", b"\xff\xfe"), RAW)
    assert repair_post_image(after, described(a=1)) is after
    assert repair_post_image(after, raw(("updatedFields", {"b.c": 1}))) is after


def test_without_an_image_or_a_description_nothing_is_repaired() -> None:
    """The image is returned unchanged."""
    after = raw(("_id", 1))
    assert repair_post_image(None, described(a=1)) is None
    assert repair_post_image(after, None) is after
    assert repair_post_image(after, raw(("removedFields", ["a"]))) is after
