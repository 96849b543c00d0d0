"""A merge has the same result in MongoDB, in Python, and in RFC 7396."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from bson import CodecOptions
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient, ReturnDocument
from pymongo.collection import Collection

from revstream.model.compiler.loader import read_model
from revstream.resolvers.mutations.document_input import MOST_NESTED, parse_change
from revstream.resolvers.mutations.merge_patch import REMOVED, Merge, apply_merge
from revstream.resolvers.mutations.result import Author, InvalidDocument
from revstream.resolvers.mutations.update_pipeline import DocumentUpdate, attribution
from revstream.streams.mongo.driver.codecs import DECODED
from tests.support.history import same_json

Things = Collection[dict[str, Any]]

# There are few names, so that patches apply to existing fields.
NAMES = (
    "a",
    "b",
    "$a",
    "$literal",
    "$ref",
    "$id",
    "a.b",
    "a.",
    ".",
    "",
    "é🙂",
    "0",
    "10",
    "k",
    "v",
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(("", "text", "$a", "$$ROOT", "$$REMOVE", "a\0b"))
)


def objects(below: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(NAMES), below, max_size=5)


JSON = st.recursive(
    SCALARS, lambda below: st.lists(below, max_size=3) | objects(below), max_leaves=12
)
# Half of the generated values are objects, or almost no fields would be merged.
OBJECTS = objects(JSON | objects(JSON))

# Each example empties the collection itself.
SERVER = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture
def things(client: MongoClient[dict[str, Any]], database_name: str) -> Things:
    options: CodecOptions[dict[str, Any]] = DECODED
    return client.get_database(database_name, codec_options=options)["things"]


def textbook(target: Any, patch: Any) -> Any:
    """Merge as in RFC 7396, section 2; shares no code with the merge under test."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    target = dict(target)
    for name, value in patch.items():
        if value is None:
            if name in target:
                del target[name]
        else:
            target[name] = textbook(target.get(name), value)
    return target


def merge_of(patch: Mapping[str, Any]) -> Merge:
    return Merge({name: _entry(value) for name, value in patch.items()})


def _entry(value: Any) -> Any:
    if value is None:
        return REMOVED
    return merge_of(value) if isinstance(value, dict) else value


def by_server(things: Things, target: Any, merge: Merge) -> Any:
    """Return the field after the server's merge; `target` is its value before, `...` for none."""
    things.replace_one({"_id": 1}, {} if target is ... else {"json": target}, upsert=True)
    found = things.find_one_and_update(
        {"_id": 1},
        [{"$replaceWith": Merge({"json": merge}).expression()}],
        return_document=ReturnDocument.AFTER,
    )
    assert found is not None
    assert set(found) == {"_id", "json"}
    return _plain(found["json"])


@SERVER
@given(target=OBJECTS, patch=OBJECTS)
def test_a_merge_is_the_same_in_mongodb_and_in_python(
    things: Things, target: dict[str, Any], patch: dict[str, Any]
) -> None:
    """Both merges agree with the RFC, for all names and at every depth."""
    expected = textbook(target, patch)
    merge = merge_of(patch)
    assert same_json(apply_merge(merge, target), expected)
    assert same_json(by_server(things, target, merge), expected)


@SERVER
@given(target=SCALARS | st.lists(JSON, max_size=3) | st.just(...), patch=OBJECTS)
def test_a_merge_over_a_value_that_is_no_object_begins_with_an_empty_one(
    things: Things, target: Any, patch: dict[str, Any]
) -> None:
    """The value is a scalar, a list, or missing."""
    expected = textbook(None, patch)
    merge = merge_of(patch)
    assert same_json(apply_merge(merge, None if target is ... else target), expected)
    assert same_json(by_server(things, target, merge), expected)


@SERVER
@given(target=OBJECTS, patches=st.lists(OBJECTS, min_size=2, max_size=4))
def test_consecutive_patches_are_the_same_in_both(
    things: Things, target: dict[str, Any], patches: list[dict[str, Any]]
) -> None:
    """Each patch applies to the result of the one before, as in Python's merge of drafts."""
    here, there = target, target
    for patch in patches:
        here = apply_merge(merge_of(patch), here)
        there = by_server(things, there, merge_of(patch))
        assert same_json(here, there)


DEEP = read_model("""
type Thing @collection(name: "things") { id: ID! attributes: JSON part: Part }
type Part { name: String inner: Part attributes: JSON }
""")


LIST: Any = 1
for _ in range(60):
    LIST = [LIST]


def nested(place: str, levels: int, leaf: Any) -> dict[str, Any]:
    """Return a patch of a JSON field at this path, with so many levels."""
    for name in reversed((*place.split("."), *"a" * levels)):
        leaf = {name: leaf}
    return dict(leaf)


@pytest.mark.parametrize("leaf", [1, None])
@pytest.mark.parametrize(
    ("place", "levels"),
    [
        ("attributes", MOST_NESTED),
        ("part.attributes", MOST_NESTED),
        ("part.inner.inner.inner.inner.attributes", MOST_NESTED),
        ("part" + 15 * ".inner" + ".attributes", 1),
    ],
)
def test_mongodb_runs_the_deepest_patch_that_is_accepted(
    things: Things, place: str, levels: int, leaf: Any
) -> None:
    """Its expression, with all that a write adds, is within the server's limit."""
    patch = nested(place, levels, leaf)
    assert same_json(patched(things, patch), textbook({}, patch))


def test_mongodb_runs_a_deep_patch_whose_value_is_deep(things: Things) -> None:
    """The depth of both counts."""
    patch = nested("attributes", MOST_NESTED - 1, LIST)
    assert same_json(patched(things, patch), patch)


@pytest.mark.parametrize(
    ("place", "levels", "leaf"),
    [
        ("attributes", MOST_NESTED + 1, 1),
        ("attributes", MOST_NESTED + 1, None),
        ("attributes", MOST_NESTED, LIST),
        ("part.attributes", MOST_NESTED - 1, LIST),
        ("part" + 8 * ".inner" + ".attributes", MOST_NESTED, 1),
        ("part" + 40 * ".inner" + ".name", 0, "x"),
    ],
)
def test_a_patch_that_is_too_deep_for_mongodb_is_refused_before(
    place: str, levels: int, leaf: Any
) -> None:
    """The server's error would not help the client."""
    with pytest.raises(InvalidDocument) as refused:
        parse_change(DEEP, DEEP.entities[0], nested(place, levels, leaf))
    assert refused.value.path in (place, place.split(".")[0])


def patched(things: Things, patch: Mapping[str, Any]) -> Any:
    """Return the result of the patch on an empty document, in the fields that the patch names."""
    entity = DEEP.entities[0]
    alteration = DocumentUpdate.update(parse_change(DEEP, entity, patch))
    things.insert_one({"_id": 1})
    found = things.find_one_and_update(
        {"_id": 1},
        alteration.pipeline(entity, attribution(Author(by="ann"), entity, 1), None),
        return_document=ReturnDocument.AFTER,
    )
    assert found is not None
    return _plain({name: found[name] for name in patch})


def _plain(value: Any) -> Any:
    """Convert values that the driver decodes as references back to objects."""
    if hasattr(value, "as_doc"):
        value = dict(value.as_doc())
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    # The driver has a type of its own for 64 bits.
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
