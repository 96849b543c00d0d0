"""Loaders: single lookups are read together."""

from __future__ import annotations

import asyncio

import pytest

from revstream.gql.engine.request.loaders import Loaders
from revstream.model.definition import Model
from tests.support.reads import Memory, at

FIELDS = frozenset({"value"})


@pytest.fixture
def loads(memory: Memory) -> Loaders:
    for n in range(3):
        memory.write("readings", {"_id": f"r{n}", "value": float(n)})
    memory.write("readings", {"_id": "r0", "value": 9.0})
    return memory.context().loads


async def test_concurrent_lookups_are_one_read(
    loads: Loaders, memory: Memory, model: Model
) -> None:
    """Each gets its own document or None, and each id is read once."""
    entity = model.entity("Reading")
    ids = ["r2", "r0", "none", "r2"]
    found = await asyncio.gather(*(loads.document(entity, id_, FIELDS) for id_ in ids))
    assert [each and each["value"] for each in found] == [2.0, 9.0, None, 2.0]
    assert memory.calls == [("by_ids", "Reading", 3, FIELDS)]


async def test_other_fields_are_another_read(loads: Loaders, memory: Memory, model: Model) -> None:
    """A document read for one field lacks the others."""
    entity = model.entity("Reading")
    await loads.document(entity, "r0", FIELDS)
    await loads.document(entity, "r0", frozenset())
    assert len(memory.calls) == 2


async def test_ids_that_python_calls_equal_are_distinguished(
    loads: Loaders, memory: Memory, model: Model
) -> None:
    """MongoDB has 1 and true as two documents; embedded documents are ids, too."""
    entity = model.entity("Reading")
    for id_ in (1, True, {"a": 1}):
        memory.write("readings", {"_id": id_, "value": str(id_)})
    found = await asyncio.gather(
        *(loads.document(entity, id_, FIELDS) for id_ in (1, True, {"a": 1}))
    )
    assert [each and each["value"] for each in found] == ["1", "True", "{'a': 1}"]


async def test_versions_are_read_together(loads: Loaders, memory: Memory, model: Model) -> None:
    """They are looked up by number, by time point and by token, each in one read."""
    entity = model.entity("Reading")
    numbered = await asyncio.gather(
        *(loads.version_numbered(entity, id_, n, FIELDS) for id_, n in (("r0", 1), ("r0", 2)))
    )
    standing = await asyncio.gather(
        *(loads.version_at(entity, "r0", at(n), FIELDS) for n in (0, 3))
    )
    last = standing[1]
    assert last is not None
    assert last.previous is not None
    before = await loads.version_before(entity, last.previous, FIELDS)
    assert [each and each.number for each in (*numbered, *standing, before)] == [1, 2, 1, 2, 1]
    assert [name for name, *_ in memory.calls] == ["by_number", "as_of", "before"]


async def test_a_failed_read_fails_all_its_lookups(
    loads: Loaders, memory: Memory, model: Model
) -> None:
    """They have the same exception, so that it is one incident."""
    memory.failure = RuntimeError("broken")
    entity = model.entity("Reading")
    found = await asyncio.gather(
        *(loads.document(entity, id_, FIELDS) for id_ in ("r0", "r1")), return_exceptions=True
    )
    assert found == [memory.failure, memory.failure]


async def test_a_cancelled_field_leaves_the_others_their_result(
    loads: Loaders, model: Model
) -> None:
    """Execution cancels the siblings of a field whose error nulls their parent."""
    entity = model.entity("Reading")
    given_up = asyncio.ensure_future(loads.document(entity, "r0", FIELDS))
    waiting = asyncio.ensure_future(loads.document(entity, "r0", FIELDS))
    await asyncio.sleep(0)
    given_up.cancel()
    found = await waiting
    assert found is not None
    assert found["value"] == 9.0
