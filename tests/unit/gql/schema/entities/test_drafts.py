"""Tests of `gql.schema.entities.drafts` and of comments."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from revstream.resolvers.mutations.result import (
    DocumentNotFound,
    InvalidDocument,
    VersionConflict,
    WriteRefused,
)
from tests.support.edits import MemoryEditing, comment, draft
from tests.support.reads import Memory
from tests.unit.gql.conftest import Ask

BASE: dict[str, Any] = {"_id": "p", "name": "Lamp", "stock": 3, "supplierId": None}
FULL: dict[str, Any] = {**BASE, "name": "Lantern"}
PROPOSE = 'mutation { r: proposeProduct(id: "p", patch: {name: "Lantern"}) { %s } }'
MEMBERS = (
    "__typename ... on ProductDrafted { draft { number } } ... on WriteError { message }"
    " ... on VersionConflict { expectedVersion } ... on InvalidDocument { path }"
)


@pytest.fixture
def editing(memory: Memory) -> MemoryEditing:
    memory.write("products", BASE)
    memory.write("products", {**BASE, "stock": 5})
    return memory.editing


async def test_a_draft_has_author_changes_and_base(ask: Ask, editing: MemoryEditing) -> None:
    """Its document is the proposed state, and its diff has the changes."""
    editing.answer = draft(4, base=BASE, full=FULL, based_on_draft=3)
    result = await ask(
        PROPOSE
        % (
            "... on ProductDrafted { draft { number status basedOn basedOnDraft author comment at"
            " document { name stock } diff { path kind before after } comments { nodes { text } }"
            " publishedAs decidedBy decidedAt decidedComment } }"
        )
    )
    assert result.errors is None
    assert result.data == {
        "r": {
            "draft": {
                "number": 4,
                "status": "PROPOSED",
                "basedOn": 2,
                "basedOnDraft": 3,
                "author": "ann",
                "comment": "a reason",
                "at": "2024-05-01T12:00:00.000Z",
                "document": {"name": "Lantern", "stock": 3},
                "diff": [{"path": "name", "kind": "CHANGED", "before": "Lamp", "after": "Lantern"}],
                "comments": {"nodes": []},
                "publishedAs": None,
                "decidedBy": None,
                "decidedAt": None,
                "decidedComment": None,
            }
        }
    }


async def test_the_document_of_a_draft_has_an_id_of_its_own(
    ask: Ask, editing: MemoryEditing
) -> None:
    """It differs from the ids of the current document and of all versions."""
    editing.answer = draft(4, base=BASE, full=FULL)
    result = await ask(
        PROPOSE % "... on ProductDrafted { draft { document { __typename id nodeId } } }"
    )
    assert result.data is not None
    document = result.data["r"]["draft"]["document"]
    assert (document["__typename"], document["id"]) == ("ProductSnapshot", "p@draft-4")
    editing.proposed["p"] = [editing.answer]
    found = await ask("query ($id: ID!) { node(nodeId: $id) { nodeId } }", id=document["nodeId"])
    assert found.errors is None
    assert found.data == {"node": {"nodeId": document["nodeId"]}}


@pytest.mark.parametrize(
    ("refusal", "fields"),
    [
        (DocumentNotFound("why"), {}),
        (InvalidDocument("why", path="name"), {"path": "name"}),
        (VersionConflict("why", expected=3, actual=4, key="p"), {"expectedVersion": 3}),
    ],
)
@pytest.mark.parametrize(
    "query", [PROPOSE, 'mutation { r: rejectProduct(id: "p", draft: 1) {%s} }']
)
async def test_a_refused_draft_is_a_result(
    ask: Ask, editing: MemoryEditing, query: str, refusal: WriteRefused, fields: dict[str, Any]
) -> None:
    """It is a member of the union."""
    editing.answer = refusal
    result = await ask(query % MEMBERS)
    assert result.errors is None
    assert result.data == {"r": {"__typename": refusal.type_name, "message": "why", **fields}}


async def test_a_decided_draft_has_the_decisions_author(ask: Ask, editing: MemoryEditing) -> None:
    """It has the reason and the published version, too."""
    then = datetime(2024, 5, 2, tzinfo=UTC)
    facts = {"decided_by": "bob", "decided_why": "fine", "decided_at": then, "published_as": 3}
    editing.answer = draft(1, base=BASE, full=FULL, status="PUBLISHED", **facts)
    result = await ask(
        'mutation { r: rejectProduct(id: "p", draft: 1) { ... on ProductDrafted { draft {'
        " status publishedAs decidedBy decidedAt decidedComment } } } }"
    )
    assert result.errors is None
    assert result.data == {
        "r": {
            "draft": {
                "status": "PUBLISHED",
                "publishedAs": 3,
                "decidedBy": "bob",
                "decidedAt": "2024-05-02T00:00:00.000Z",
                "decidedComment": "fine",
            }
        }
    }


async def test_a_document_lists_its_drafts(ask: Ask, editing: MemoryEditing) -> None:
    """They are a connection, newest first."""
    editing.proposed["p"] = [draft(2, base=BASE), draft(1, base=BASE, status="REJECTED")]
    result = await ask('{ product(id: "p") { drafts { nodes { number documentId } totalCount } } }')
    assert result.errors is None
    assert result.data == {
        "product": {
            "drafts": {
                "nodes": [{"number": 2, "documentId": "p"}, {"number": 1, "documentId": "p"}],
                "totalCount": 2,
            }
        }
    }


async def test_versions_and_drafts_have_comments(ask: Ask, editing: MemoryEditing) -> None:
    """Each has its own; a deletion of the document removes none."""
    editing.said["p", "version", 1] = [comment("first!", version=1)]
    editing.said["p", "draft", 2] = [comment("no", id="c2", draft=2, reply_to="c1")]
    editing.proposed["p"] = [draft(2, base=BASE)]
    every = "id version draft author at text replyTo"
    result = await ask(
        f'{{ productVersion(id: "p", version: 1) {{ comments {{ nodes {{ {every} }} }} }}'
        f' other: productVersion(id: "p", version: 2) {{ comments {{ nodes {{ id }} }} }}'
        f' product(id: "p") {{ drafts {{ nodes {{ comments {{ nodes {{ {every} }} }} }} }} }} }}'
    )
    assert result.errors is None
    attribution = {"author": "bob", "at": "2024-05-01T12:00:00.000Z"}
    first = {
        **attribution,
        "id": "c1",
        "version": 1,
        "draft": None,
        "text": "first!",
        "replyTo": None,
    }
    second = {**attribution, "id": "c2", "version": None, "draft": 2, "text": "no", "replyTo": "c1"}
    assert result.data == {
        "productVersion": {"comments": {"nodes": [first]}},
        "other": {"comments": {"nodes": []}},
        "product": {"drafts": {"nodes": [{"comments": {"nodes": [second]}}]}},
    }


async def test_a_version_has_the_draft_that_was_published(
    ask: Ask, editing: MemoryEditing, memory: Memory
) -> None:
    """The draft has its author; other versions have null."""
    versions = memory.versions["products"]
    versions[-1] = replace(versions[-1], draft=7)
    editing.proposed["p"] = [draft(7, base=BASE, by="carol")]
    result = await ask(
        '{ product(id: "p") { history { nodes { version fromDraft draft { number author } } } } }'
    )
    assert result.errors is None
    assert result.data is not None
    assert result.data["product"]["history"]["nodes"] == [
        {"version": 2, "fromDraft": 7, "draft": {"number": 7, "author": "carol"}},
        {"version": 1, "fromDraft": None, "draft": None},
    ]
