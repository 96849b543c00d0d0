"""Tests of `gql.schema.roots.write_result`."""

from __future__ import annotations

from typing import Any

import pytest
import strawberry
from bson import Timestamp
from graphql import build_schema as from_sdl

from revstream.gql.schema import print_sdl
from revstream.resolvers.mutations.fenced_upsert import BatchOutcome
from revstream.resolvers.mutations.result import (
    AlreadyExists,
    DocumentNotFound,
    InvalidDocument,
    StaleWrite,
    VersionConflict,
    WriteRefused,
)
from revstream.streams.core import resume_tokens
from tests.support.edits import MemoryEditing, written
from tests.support.reads import DEPLOYMENT, Memory
from tests.unit.gql.conftest import Ask

READING = {"_id": "r1", "sequence": 5, "value": 1.5, "_change": {"id": "c1"}}
APPLY = 'mutation { r: applyReading(id: "r1", document: {sequence: 1, value: 1}) { %s } }'
EVERYTHING = """
  __typename
  ... on ReadingWritten { reading { id value } }
  ... on WriteError { message }
  ... on VersionConflict { expectedVersion actualVersion current { ... on Reading { value } } }
  ... on AlreadyExists { path }
  ... on InvalidDocument { path }
  ... on StaleWrite { fence appliedFence }
"""


@pytest.fixture
def editing(memory: Memory) -> MemoryEditing:
    return memory.editing


def test_the_unions_have_all_results_of_a_write(schema: strawberry.Schema) -> None:
    """Only entities with a fence field have `StaleWrite`."""
    types = from_sdl(print_sdl(schema)).type_map
    refusals = ["VersionConflict", "DocumentNotFound", "AlreadyExists", "InvalidDocument"]
    assert [each.name for each in types["ProductWrite"].types] == ["ProductWritten", *refusals]  # type: ignore[attr-defined]
    assert [each.name for each in types["ReadingWrite"].types] == [  # type: ignore[attr-defined]
        "ReadingWritten",
        *refusals,
        "StaleWrite",
    ]
    errors = [*refusals, "StaleWrite"]
    assert [[i.name for i in types[each].interfaces] for each in errors] == [["WriteError"]] * 5  # type: ignore[attr-defined]


async def test_a_write_returns_the_written_document(
    ask: Ask, editing: MemoryEditing, memory: Memory
) -> None:
    """The document is not read again."""
    editing.answer = written(READING, number=7)
    result = await ask(
        APPLY % "... on ReadingWritten { version resumeToken reading { id version value } }"
    )
    token = resume_tokens.encode(resume_tokens.token_from_time(editing.answer.at), DEPLOYMENT)
    assert result.errors is None
    assert result.data == {
        "r": {
            "version": 7,
            "resumeToken": token,
            "reading": {"id": "r1", "version": 7, "value": 1.5},
        }
    }
    assert memory.calls == []


@pytest.mark.parametrize(
    ("selected", "reads"),
    [
        ("__typename", 0),
        ("... on ReadingWritten { resumeToken reading { id value } }", 0),
        ("... on StaleWrite { message } ... on ReadingWritten { resumeToken }", 0),
        ("... on ReadingWritten { version }", 1),
        ("... on ReadingWritten { reading { version } }", 1),
        ("... on ReadingWritten { reading { ... on Node { ... on Reading { version } } } }", 1),
        ("... on ReadingWritten { version reading { version n: version } }", 1),
    ],
)
async def test_the_version_number_is_read_only_if_it_is_selected(
    ask: Ask, editing: MemoryEditing, selected: str, reads: int
) -> None:
    """The read may wait for the recorder."""
    editing.answer = written(READING, number=7)
    result = await ask(APPLY % selected)
    assert result.errors is None
    assert editing.numbers == reads


async def test_a_deletion_returns_no_document(ask: Ask, editing: MemoryEditing) -> None:
    """It returns a version and a position in the change stream."""
    editing.answer = written(None, key="r1", number=3)
    result = await ask(
        'mutation { r: deleteReading(id: "r1") {'
        " ... on ReadingWritten { version reading { id } } } }"
    )
    assert result.errors is None
    assert result.data == {"r": {"version": 3, "reading": None}}


@pytest.mark.parametrize(
    ("refusal", "fields"),
    [
        (DocumentNotFound("why"), {}),
        (AlreadyExists("why", path="sku"), {"path": "sku"}),
        (InvalidDocument("why", path="size.width"), {"path": "size.width"}),
        (InvalidDocument("why", path=""), {"path": ""}),
        (StaleWrite("why", fence=3, applied=5), {"fence": 3, "appliedFence": 5}),
        (
            StaleWrite("why", fence=-(2**63), applied=2**53),
            {"fence": str(-(2**63)), "appliedFence": str(2**53)},
        ),
    ],
)
async def test_a_refusal_is_a_member_of_the_union(
    ask: Ask, editing: MemoryEditing, refusal: WriteRefused, fields: dict[str, Any]
) -> None:
    """It is data, not an error; numbers beyond JavaScript's range are text."""
    editing.answer = refusal
    result = await ask(APPLY % EVERYTHING)
    assert result.errors is None
    assert result.data == {"r": {"__typename": refusal.type_name, "message": "why", **fields}}


async def test_a_conflict_has_the_current_document(
    ask: Ask, editing: MemoryEditing, memory: Memory
) -> None:
    """It is read after the refusal, and only if it is selected; null if it is deleted."""
    memory.write("readings", {"_id": "r1", "sequence": 9, "value": 9.0})
    editing.answer = VersionConflict("why", expected=3, actual=4, key="r1")
    result = await ask(APPLY % EVERYTHING)
    assert result.errors is None
    assert result.data == {
        "r": {
            "__typename": "VersionConflict",
            "message": "why",
            "expectedVersion": 3,
            "actualVersion": 4,
            "current": {"value": 9.0},
        }
    }
    memory.write("readings", None, id_="r1")
    result = await ask(APPLY % EVERYTHING)
    assert result.data is not None
    assert result.data["r"]["current"] is None
    memory.calls.clear()
    await ask(APPLY % "... on VersionConflict { message actualVersion }")
    assert memory.calls == []


async def test_a_batch_returns_the_numbers_of_applied_and_stale_events(
    ask: Ask, editing: MemoryEditing
) -> None:
    """It returns a position after all of them, too."""
    editing.answer = BatchOutcome(applied=2, stale=1, at=Timestamp(1_700_000_000, 3))
    result = await ask("mutation { applyReadings(events: []) { applied stale resumeToken } }")
    assert result.errors is None
    token = resume_tokens.encode(
        resume_tokens.token_from_time(Timestamp(1_700_000_000, 3)), DEPLOYMENT
    )
    assert result.data == {"applyReadings": {"applied": 2, "stale": 1, "resumeToken": token}}
