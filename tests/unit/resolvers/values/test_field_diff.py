"""Differences between states, and the changed paths of the archive, in API names."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from revstream.model.definition import EnumType, Field, Scalar
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.values.field_diff import (
    FieldChange,
    FieldDiff,
    _in_api_names,
    api_value,
    changed_fields,
    visible_fields,
)
from revstream.resolvers.values.field_path import stored_path
from revstream.streams.mongo.driver.codecs import DECODED, RAW
from revstream.streams.raw_bson.diff import find_differences
from revstream.streams.versioning.version import changed_paths
from tests.support.shapes import SHAPES, THING


def differences(
    before: dict[str, Any] | None, after: dict[str, Any] | None
) -> list[tuple[Any, ...]]:
    return [
        (each.path, each.kind, each.before, each.after)
        for each in FieldDiff(THING, SHAPES).changes(before, after)
    ]


def test_fields_have_their_api_names() -> None:
    """Stored names differ from API names at the top level and inside embedded documents."""
    before = {"t": "a", "size": {"w": 1.0, "label": "x"}}
    after = {"t": "b", "size": {"w": 2.0, "label": "x"}}
    assert differences(before, after) == [
        ("text", "CHANGED", "a", "b"),
        ("size.width", "CHANGED", 1.0, 2.0),
    ]


def test_changes_come_in_the_order_of_the_model() -> None:
    """The order of a document depends on its writer."""
    after = {"lines": [], "whole": 1, "t": "a"}
    assert [path for path, *_ in differences({}, after)] == ["text", "whole", "lines"]


VALUES = st.recursive(
    st.sampled_from(
        [None, True, False, 0, 1, 2, 1.0, 0.0, float("nan"), "", "a", "1", Decimal128("1")]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["w", "label", "x", "corner", "other"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
STATES = st.none() | st.dictionaries(
    st.sampled_from(["_id", "version", "_change", "secret", *(f.stored for f in THING.fields)]),
    VALUES,
    max_size=6,
)


@given(before=STATES, after=STATES, raw=st.booleans())
def test_changes_are_the_differences_of_whole_states(
    before: dict[str, Any] | None, after: dict[str, Any] | None, raw: bool
) -> None:
    """The fast comparison gives the same changes, in the order of the model's fields."""
    found: dict[str, list[FieldChange]] = {}
    for each in find_differences(before, after):
        change = _in_api_names(THING, SHAPES, each, before, after)
        if change is not None:
            found.setdefault(each.path[0], []).append(change)
    expected = [change for field in visible_fields(THING) for change in found.get(field.stored, ())]
    states: Any = [
        RawBSONDocument(bson.encode(each, codec_options=DECODED), RAW) if raw and each else each
        for each in (before, after)
    ]
    # NaN is equal to itself here.
    assert repr(FieldDiff(THING, SHAPES).changes(*states)) == repr(expected)


@given(before=STATES, after=STATES)
def test_changes_are_among_the_paths_of_the_version(
    before: dict[str, Any] | None, after: dict[str, Any] | None
) -> None:
    """The paths were computed from whole states; a deletion has none."""
    comparison = FieldDiff(THING, SHAPES)
    one, other = (
        None if each is None else RawBSONDocument(bson.encode(each, codec_options=DECODED), RAW)
        for each in (before, after)
    )
    # Pages of versions are read in this form.
    read = [None if each is None else each.raw for each in (one, other)]
    states = [None if each is None else bson.decode(each, DECODED) for each in read]
    listed_paths = tuple(changed_paths(one, other, "version"))
    # NaN is not equal to itself.
    assert repr(comparison.changes(*states, listed_paths)) == repr(comparison.changes(*states))


def test_paths_are_mapped_together_as_one_by_one() -> None:
    """Each path occurs once: top-level paths, inner paths, and hidden ones."""
    paths = ["t", "size.w", "secret", "t", "size.secret", "_id", "whole", "size"]
    for count in range(len(paths) + 1):
        expected = changed_fields(THING, SHAPES, paths[:count])
        assert FieldDiff(THING, SHAPES).paths(tuple(paths[:count])) == expected


def test_fields_outside_the_model_are_hidden() -> None:
    """These are unknown fields at any depth, the id, the version field and the attribution."""
    before = {"_id": 1, "version": 1, "secret": 1, "size": {"w": 1.0, "secret": 1}}
    after = {"_id": 2, "version": 2, "secret": 2, "size": {"w": 1.0, "secret": 2}, "_change": {}}
    assert differences(before, after) == []


def test_a_field_is_added_or_removed() -> None:
    """A missing document has no fields."""
    assert differences(None, {"_id": 1, "version": 1, "t": "a"}) == [("text", "ADDED", None, "a")]
    assert differences({"_id": 1, "t": "a"}, None) == [("text", "REMOVED", "a", None)]
    assert differences(None, None) == []


def test_an_added_embedded_document_is_one_change() -> None:
    """It has only fields of the model, by their API names."""
    inside = {"w": 1.5, "secret": 1, "corner": {"x": 1}, "corners": [{"x": 2, "secret": 1}]}
    assert differences({}, {"size": inside}) == [
        (
            "size",
            "ADDED",
            None,
            {"width": 1.5, "corner": {"x": 1}, "corners": [{"x": 2}]},
        )
    ]


def test_a_list_is_one_value() -> None:
    """Embedded documents in it have API names too."""
    before = {"lines": [{"sku": "a", "n": 1}]}
    after = {"lines": [{"sku": "a", "n": 2}, None]}
    assert differences(before, after) == [
        ("lines", "CHANGED", [{"sku": "a", "count": 1}], [{"sku": "a", "count": 2}, None])
    ]


def test_a_json_field_keeps_its_own_keys() -> None:
    """Keys may contain dots or equal stored names of fields."""
    before = {"attributes": {"t": {"w": 1}, "5.5": "y"}}
    after = {"attributes": {"t": {"w": 1.0}, "5.5": "n"}}
    assert differences(before, after) == [
        ("attributes.t.w", "CHANGED", 1, 1.0),
        ("attributes.5.5", "CHANGED", "y", "n"),
    ]


def test_types_that_differ_are_changes() -> None:
    """1, 1.0 and true are three values."""
    assert differences({"whole": 1}, {"whole": 1.0}) == [("whole", "CHANGED", 1, 1.0)]
    assert differences({"flag": True}, {"flag": 1}) == [("flag", "CHANGED", True, 1)]


def test_values_are_json() -> None:
    """Decimals and ids are texts, also an id that is stored as a number."""
    owner = ObjectId("5" * 24)
    assert differences({}, {"price": Decimal128("1.50"), "owner": owner}) == [
        ("price", "ADDED", None, "1.50"),
        ("ownerId", "ADDED", None, "5" * 24),
    ]
    number = Field(name="otherId", stored="other", type=Scalar.ID, stored_scalar=Scalar.LONG)
    assert api_value(number, SHAPES, 7) == "7"
    assert api_value(replace(number, is_list=True), SHAPES, [7, 8]) == ["7", "8"]


def test_days_timestamps_and_binary_data_have_the_text_of_their_scalars() -> None:
    """A date with a time in place of a day has the text of a date."""
    day, noon = datetime(2024, 5, 1, tzinfo=UTC), datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert differences({"day": day}, {"day": noon}) == [
        ("day", "CHANGED", "2024-05-01", "2024-05-01T12:00:00.000Z")
    ]
    assert differences({}, {"days": [day, None], "clock": Timestamp(5, 1), "data": b"a"}) == [
        ("clock", "ADDED", None, "5:1"),
        ("data", "ADDED", None, "YQ=="),
        ("dayList", "ADDED", None, ["2024-05-01", None]),
    ]


def test_values_that_do_not_fit_the_model_are_rendered_unchanged() -> None:
    """An object in place of a text, or the reverse, is a change as well."""
    assert differences({"t": {"a": 1}}, {"t": {"a": 2}}) == [("text.a", "CHANGED", 1, 2)]
    assert differences({"size": "big"}, {"size": {"w": 1.0}}) == [
        ("size", "CHANGED", "big", {"width": 1.0})
    ]


@pytest.mark.parametrize(
    ("stored", "path"),
    [
        ("t", "text"),
        ("size", "size"),
        ("size.w", "size.width"),
        ("size.corner.x", "size.corner.x"),
        ("attributes.t.5.5", "attributes.t.5.5"),
        ("lines", "lines"),
        ("t.a", "text"),
    ],
)
def test_listed_paths_become_api_paths(stored: str, path: str) -> None:
    """A path inside a value that should have no fields is that value's path."""
    assert changed_fields(THING, SHAPES, [stored]) == [path]


def test_listed_paths_are_unique_and_of_the_model() -> None:
    """They keep the order in which they are listed."""
    listed = ["size.w", "t.a", "secret", "size.secret", "t.b", "_id", "version", "_change.by"]
    assert changed_fields(THING, SHAPES, listed) == ["size.width", "text"]


@pytest.mark.parametrize(
    ("path", "stored"),
    [
        ("text", "t"),
        ("size.width", "size.w"),
        ("lines", "lines"),
        ("attributes.some.key", "attributes.some.key"),
        ("size.corner.x", "size.corner.x"),
    ],
)
def test_api_paths_become_stored_paths(path: str, stored: str) -> None:
    """This is the inverse of `changed_fields`."""
    assert stored_path(THING, SHAPES, path, "changedField") == stored


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("colours", "'colours', expected a field of Thing"),
        ("id", "'id', expected a field of Thing that can change"),
        ("", "expected a field of Thing that can change, not ''"),
        ("size.w", "expected a field of Size that can change, not 'w'"),
        ("text.length", "inside of 'text', which has none"),
        ("lines.sku", "recorded as a whole; pass 'lines'"),
    ],
)
def test_paths_that_do_not_exist_are_refused(path: str, message: str) -> None:
    """Each error has a suggestion."""
    with pytest.raises(BadUserInput, match=message):
        stored_path(THING, SHAPES, path, "changedField")


def test_all_fields_but_id_and_version_can_change() -> None:
    """The version field only counts writes."""
    names = [each.name for each in visible_fields(THING)]
    assert names == [each.name for each in THING.fields[1:]]
    counted = replace(THING, version="whole")
    assert "whole" not in [each.name for each in visible_fields(counted)]


def test_code_in_place_of_an_enum_is_rendered_unchanged() -> None:
    """BSON code is a str in Python, and cannot be looked up."""
    enum = next(each for each in THING.fields if isinstance(each.type, EnumType))
    assert api_value(enum, SHAPES, Code("x", {"a": 1})) == {"$code": "x", "$scope": {"a": 1}}
    assert api_value(enum, SHAPES, [Code("x", {})])
