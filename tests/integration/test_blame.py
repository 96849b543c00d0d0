"""Blame: for each field of a document, the version that last changed it."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from revstream.resolvers.history import blame as blaming
from revstream.resolvers.history.blame import FieldBlame, blame_documents
from revstream.resolvers.history.versions import VersionHistory
from revstream.streams.mongo.database import Mongo
from tests.integration.conftest import Commands
from tests.support.archives import Scribe, at, nothing_written
from tests.support.exhaustive import examples
from tests.support.shop import PRODUCT, SHOP

NAME = frozenset({"name"})


async def blamed(mongo: Mongo, scribe: Scribe, *keys: str) -> list[list[FieldBlame]]:
    await scribe.save()
    history = VersionHistory(mongo, {PRODUCT.collection: scribe.archive}, nothing_written())
    return await blame_documents(history, SHOP, PRODUCT, keys, NAME)


def numbers_by_path(found: list[FieldBlame]) -> dict[str, int]:
    return {each.path: each.version.number for each in found}


async def test_each_field_is_blamed_on_the_version_that_changed_it_last(mongo: Mongo) -> None:
    """Fields have API paths, the model's order, values as JSON, and the selected state."""
    scribe = Scribe(mongo, PRODUCT)
    scribe.write("a", {"name": "x", "stock": 1, "dims": {"w": 1.0, "h": 1.0}}, at(1), by="ann")
    scribe.write("a", {"name": "x", "stock": 2, "dims": {"w": 1.0, "h": 1.0}}, at(2), by="bob")
    scribe.write("a", {"name": "x", "stock": 2, "dims": {"w": 1.0, "h": 2.0}}, at(3))
    scribe.write("a", {"name": "x", "stock": 3, "dims": {"w": 1.0, "h": 2.0}}, at(4), by="cat")
    (found,) = await blamed(mongo, scribe, "a")
    assert [(each.path, each.value, each.version.number, each.version.by) for each in found] == [
        ("name", "x", 1, "ann"),
        ("stock", 3, 4, "cat"),
        ("dimensions.width", 1.0, 1, "ann"),
        ("dimensions.height", 2.0, 3, None),
    ]
    assert found[0].version.full == {"_id": "a", "name": "x"}


async def test_an_added_embedded_document_is_blamed_field_by_field(mongo: Mongo) -> None:
    """A list and a JSON field have one entry each."""
    scribe = Scribe(mongo, PRODUCT)
    scribe.write("a", {"name": "x", "attributes": {"k": {"l": 1}}}, at(1))
    scribe.write("a", {"name": "x", "attributes": {"k": {"l": 1}}, "dims": {"w": 1.0}}, at(2))
    scribe.write("a", {"name": "x", "attributes": {"k": {"l": 2}}, "dims": {"w": 1.0}}, at(3))
    scribe.write(
        "a", {"name": "x", "attributes": {"k": {"l": 2}}, "dims": {"w": 1.0}, "tags": ["t"]}, at(4)
    )
    (found,) = await blamed(mongo, scribe, "a")
    assert numbers_by_path(found) == {"name": 1, "tags": 4, "dimensions.width": 2, "attributes": 3}


async def test_a_reinserted_document_is_not_blamed_on_earlier_versions(mongo: Mongo) -> None:
    """All fields are blamed on the insertion or a later version."""
    scribe = Scribe(mongo, PRODUCT)
    scribe.write("a", {"name": "x", "stock": 1}, at(1))
    scribe.write("a", None, at(2))
    scribe.write("a", {"name": "x", "stock": 1}, at(3))
    scribe.write("a", {"name": "x", "stock": 2}, at(4))
    (found,) = await blamed(mongo, scribe, "a")
    assert numbers_by_path(found) == {"name": 3, "stock": 4}


async def test_missing_documents_have_no_fields(mongo: Mongo) -> None:
    """Deleted and unknown documents have no fields; the requested order is kept."""
    scribe = Scribe(mongo, PRODUCT)
    scribe.write("a", {"name": "x"}, at(1))
    scribe.write("b", {"name": "y"}, at(2))
    scribe.write("b", None, at(3))
    found = await blamed(mongo, scribe, "b", "a", "c", "a")
    assert [numbers_by_path(each) for each in found] == [{}, {"name": 1}, {}, {"name": 1}]
    assert await blamed(mongo, scribe) == []


async def test_fields_from_before_the_history_are_blamed_on_the_baseline(mongo: Mongo) -> None:
    """The baseline is the first known version with these fields."""
    scribe = Scribe(mongo, PRODUCT)
    scribe.write("a", {"name": "x", "stock": 1, "secret": 1}, at(1), operation="BASELINE")
    scribe.write("a", {"name": "x", "stock": 1, "secret": 2}, at(2))
    (found,) = await blamed(mongo, scribe, "a")
    assert numbers_by_path(found) == {"name": 1, "stock": 1}


@settings(
    deadline=None,
    max_examples=examples(25),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    states=st.lists(
        st.none()
        | st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from("xy"),
                "stock": st.integers(0, 1),
                "dims": st.fixed_dictionaries({}, optional={"w": st.integers(0, 1)}),
                "attributes": st.fixed_dictionaries({}, optional={"k": st.integers(0, 1)}),
            },
        ),
        min_size=1,
        max_size=12,
    )
)
async def test_blame_equals_a_comparison_of_all_states(
    counted: Mongo, monkeypatch: pytest.MonkeyPatch, states: list[dict[str, Any] | None]
) -> None:
    """A value is as old as the first of the consecutive last states that have it."""
    monkeypatch.setattr(blaming, "_FIRST_READ", 2)
    await counted.command({"delete": "products.versions", "deletes": [{"q": {}, "limit": 0}]})
    scribe = Scribe(counted, PRODUCT)
    for second, state in enumerate(states):
        if state is not None or scribe.present:
            scribe.write("a", state, at(second))
    (found,) = await blamed(counted, scribe, "a") if scribe.records else [[]]
    full = [
        None if each["full"] is None else bson.decode(each["full"].raw) for each in scribe.records
    ]
    leaves = {"name": "name", "stock": "stock", "attributes": "attributes"}
    leaves |= {"dimensions.width": "dims.w"} if _at(full[-1:], -1, "dims.w") is not None else {}
    leaves |= {"dimensions": "dims"} if _at(full[-1:], -1, "dims") == {} else {}
    assert numbers_by_path(found) == {
        path: _since(full, stored)
        for path, stored in leaves.items()
        if _at(full[-1:], -1, stored) is not None
    }


def _at(states: list[Any], number: int, path: str) -> Any:
    value: Any = states[number] if states else None
    for name in path.split("."):
        value = value.get(name) if value is not None else None
    return value


def _since(states: list[Any], path: str) -> int:
    number = len(states)
    while number > 1 and _at(states, number - 2, path) == _at(states, -1, path):
        number -= 1
    return number


async def test_blame_of_a_long_history_takes_few_reads(counted: Mongo, commands: Commands) -> None:
    """The number of reads does not depend on the number of documents."""
    scribe = Scribe(counted, PRODUCT)
    for second in range(150):
        for key in "abc":
            scribe.write(key, {"name": "x", "stock": second}, at(second, ord(key)))
    await scribe.save()
    for keys in ("a", "abc"):
        with commands.counting() as started:
            found = await blamed_only(counted, scribe, keys)
        assert [numbers_by_path(each) for each in found] == [{"name": 1, "stock": 150}] * len(keys)
        # The newest version (one find for one document), 32 before it, 128 more, the blamed ones.
        newest = "find" if len(keys) == 1 else "aggregate"
        assert started == [newest, "aggregate", "aggregate", "find"]


async def blamed_only(mongo: Mongo, scribe: Scribe, keys: str) -> list[list[FieldBlame]]:
    history = VersionHistory(mongo, {PRODUCT.collection: scribe.archive}, nothing_written())
    return await blame_documents(history, SHOP, PRODUCT, list(keys), NAME)
