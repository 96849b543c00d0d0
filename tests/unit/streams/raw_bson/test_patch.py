"""Patches between generated documents: applied to one, they give the other."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Int64
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st

from revstream.streams.mongo.driver.codecs import DECODED, RAW
from revstream.streams.raw_bson.diff import is_same
from revstream.streams.raw_bson.patch import apply_patch, create_patch
from tests.support.bson_values import DOCUMENTS, VALUES


def raw(document: dict[str, Any]) -> RawBSONDocument:
    return RawBSONDocument(bson.encode(document, codec_options=DECODED), RAW)


def stored(patch: dict[str, Any]) -> RawBSONDocument:
    """Return the patch as read from the archive."""
    return raw(patch)


def lists(before: list[Any], items: list[Any], start: int, end: int) -> list[Any]:
    """Draw a list and the same list with a part of it moved."""
    return before[:start] + items + before[end:]


SPLICED = st.builds(
    lists, st.lists(VALUES, max_size=5), st.lists(VALUES, max_size=2), *[st.integers(0, 5)] * 2
)


@given(before=DOCUMENTS, after=DOCUMENTS)
def test_a_patch_turns_one_state_into_the_other(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """They are strictly equal, but for the order of fields."""
    patched = apply_patch(raw(before), stored(create_patch(raw(before), raw(after))))
    assert is_same(patched, raw(after))
    assert sorted(patched) == sorted(after)


@given(before=st.lists(VALUES, max_size=5), after=SPLICED)
def test_lists_are_patched_where_they_differ(before: list[Any], after: list[Any]) -> None:
    """The bytes are equal, since the document has only one field order."""
    one, other = raw({"_id": 1, "list": before}), raw({"_id": 1, "list": after})
    assert apply_patch(one, stored(create_patch(one, other))).raw == other.raw


@pytest.mark.parametrize(
    ("before", "after", "patch"),
    [
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": Int64(1)}, {"set": {"a": Int64(1)}}),
        ({"a": 0.0}, {"a": -0.0}, {"set": {"a": -0.0}}),
        ({"a": 1, "b": 1}, {"b": 1}, {"unset": ["a"]}),
        ({"a": {"b": {"c": 1, "d": 1}}}, {"a": {"b": {"c": 1, "d": 2}}},
         {"inside": {"a": {"inside": {"b": {"set": {"d": 2}}}}}}),
        ({"a": [1, 2, 3]}, {"a": [1, 2, 3, 4]}, {"splice": {"a": [3, 0, [4]]}}),
        ({"a": [1, 2, 3]}, {"a": [0, 1, 2, 3]}, {"splice": {"a": [0, 3, [0]]}}),
        ({"a": [1, 1, 1]}, {"a": [1, 1]}, {"splice": {"a": [2, 0, []]}}),
        ({"a": {"b": 1}}, {"a": [1]}, {"set": {"a": [1]}}),
    ],
)  # fmt: skip
def test_a_patch_has_only_the_differences(
    before: dict[str, Any], after: dict[str, Any], patch: dict[str, Any]
) -> None:
    """Unchanged parts are omitted."""
    assert create_patch(raw(before), raw(after)) == patch


def test_a_patch_on_another_state_is_refused() -> None:
    """This holds where the mismatch can be detected."""
    patch = create_patch(raw({"a": {"b": 1}, "c": 1}), raw({"a": {"b": 2}}))
    with pytest.raises(KeyError):
        apply_patch(raw({"a": {"b": 1}}), patch)
