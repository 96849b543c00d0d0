"""Tests of `gql.schema.roots.mutation`: the calls of the services by each mutation."""

from __future__ import annotations

from typing import Any

import pytest
import strawberry
from bson import Decimal128, Int64, ObjectId, Timestamp
from graphql import build_schema as from_sdl

from revstream.gql.schema import print_sdl
from revstream.model.definition import Model
from revstream.resolvers.mutations.document_input import parse_change
from revstream.resolvers.mutations.fenced_upsert import BatchOutcome
from revstream.resolvers.mutations.merge_patch import Merge
from revstream.resolvers.mutations.result import Author
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import Unavailable
from tests.support.edits import MemoryEditing, comment, draft, written
from tests.support.reads import DEPLOYMENT, Memory, at
from tests.unit.gql.conftest import Ask

READING = {"_id": "r1", "sequence": 5, "value": 1.5}
WHOLE = "document: {sequence: 5, value: 1}"
STORED = {"sequence": Int64(5), "value": 1.0}


@pytest.fixture
def editing(memory: Memory) -> MemoryEditing:
    memory.editing.answer = written(READING)
    return memory.editing


def only_call(editing: MemoryEditing) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Return the only call."""
    [call] = editing.asked
    return call


def test_each_entity_has_its_mutations(schema: strawberry.Schema) -> None:
    """Only entities with a fence field have mutations of events."""
    fields = from_sdl(print_sdl(schema)).type_map["Mutation"].fields  # type: ignore[attr-defined]
    listed = {
        name: {each: str(given.type) for each, given in field.args.items()}
        for name, field in fields.items()
        if "Reading" in name
    }
    comment, id_, expected = {"comment": "String"}, {"id": "ID!"}, {"expectedVersion": "Int"}
    document = {"document": "ReadingInput!"}
    assert listed == {
        "createReading": {"id": "ID", **document, **comment},
        "updateReading": {
            **id_,
            **expected,
            "patch": "ReadingPatch",
            "increment": "ReadingIncrement",
            **comment,
        },
        "replaceReading": {**id_, **expected, **document, **comment},
        "deleteReading": {**id_, **expected, **comment},
        "restoreReading": {**id_, "version": "Int", "draft": "Int", **expected, **comment},
        "proposeNewReading": {"id": "ID", **document, **comment},
        "proposeReading": {
            **id_,
            "basedOn": "Int",
            "basedOnDraft": "Int",
            "patch": "ReadingPatch!",
            **comment,
        },
        "publishReading": {**id_, "draft": "Int!", **comment},
        "rejectReading": {**id_, "draft": "Int!", **comment},
        "commentOnReading": {
            **id_,
            "version": "Int",
            "draft": "Int",
            "replyTo": "ID",
            "text": "String!",
        },
        "applyReading": {**id_, **document, **comment},
        "applyReadings": {"events": "[ReadingEvent!]!"},
    }
    assert not [name for name in fields if name.startswith("applyProduct")]


@pytest.mark.parametrize(
    ("mutation", "name", "given", "more"),
    [
        (f'createReading(id: "r1", {WHOLE})', "create", ("r1", STORED), {"fresh": False}),
        ('deleteReading(id: "r1", expectedVersion: 3)', "delete", ("r1", 3), {}),
        ('deleteReading(id: "r1")', "delete", ("r1", None), {}),
        ('restoreReading(id: "r1", version: 2)', "restore", ("r1", 2, None), {}),
        (
            'restoreReading(id: "r1", version: 2, expectedVersion: 3)',
            "restore",
            ("r1", 2, 3),
            {},
        ),
        ('publishReading(id: "r1", draft: 4)', "publish", ("r1", 4), {}),
        (f'applyReading(id: "r1", {WHOLE})', "apply", ("r1", STORED), {}),
    ],
)
async def test_a_mutation_calls_its_write(
    ask: Ask,
    editing: MemoryEditing,
    model: Model,
    mutation: str,
    name: str,
    given: tuple[Any, ...],
    more: dict[str, Any],
) -> None:
    """The call has the entity, stored names and the author."""
    result = await ask(f"mutation {{ {mutation} {{ ... on ReadingWritten {{ version }} }} }}")
    assert result.errors is None
    found = only_call(editing)
    entity, *arguments, author = found[1]
    assert (found[0], entity, tuple(arguments), found[2]) == (
        name,
        model.entity("Reading"),
        given,
        more,
    )
    assert isinstance(author, Author)


@pytest.mark.parametrize(
    ("mutation", "operation", "expected"),
    [
        ("updateReading(id: $id, patch: {value: 2})", "UPDATE", None),
        ("updateReading(id: $id, expectedVersion: 3, increment: {value: 2})", "UPDATE", 3),
        ("updateReading(id: $id)", "UPDATE", None),
        (f"replaceReading(id: $id, expectedVersion: 3, {WHOLE})", "REPLACE", 3),
    ],
)
async def test_an_update_and_a_replacement_alter_a_document(
    ask: Ask, editing: MemoryEditing, mutation: str, operation: str, expected: int | None
) -> None:
    """They apply to the expected version, or to any version without one."""
    query = f"mutation ($id: ID!) {{ r: {mutation} {{ ... on ReadingWritten {{ version }} }} }}"
    result = await ask(query, id="r1")
    assert result.errors is None
    name, (_entity, key, alteration, at_version, _author), _ = only_call(editing)
    found = (name, key, alteration.operation, at_version)
    assert found == ("alter", "r1", operation, expected)


async def test_a_missing_id_is_generated(ask: Ask, editing: MemoryEditing) -> None:
    """No earlier document had it."""
    await ask(f"mutation {{ createReading({WHOLE}) {{ __typename }} }}")
    _, (_entity, key, _document, _author), more = only_call(editing)
    assert (len(key), more) == (24, {"fresh": True})


async def test_variables_distinguish_missing_and_null(
    ask: Ask, editing: MemoryEditing, model: Model
) -> None:
    """A missing field of a patch stays, and null removes it."""
    editing.answer = draft(document="p")
    result = await ask(
        "mutation ($patch: ProductPatch!) {"
        ' proposeProduct(id: "p", basedOn: 3, patch: $patch) { __typename } }',
        patch={"sold": None, "price": "1.50", "dimensions": {"width": 2, "height": 1}},
    )
    assert result.errors is None
    name, (entity, key, change, _author), more = only_call(editing)
    assert (name, key, more) == ("propose", "p", {"based_on": 3, "based_on_draft": None})
    assert change == parse_change(
        model,
        entity,
        {"sold": None, "price": "1.50", "dimensions": {"width": 2, "height": 1}},
    )
    assert change.merge.entries["price"] == Decimal128("1.50")
    assert change.merge.entries["dimensions"] == Merge({"width": 2.0, "height": 1.0})


async def test_a_write_has_author_and_reason(
    schema: strawberry.Schema, memory: Memory, editing: MemoryEditing
) -> None:
    """The request has the author, the mutation the reason; key and arguments show repeats."""
    authors = []
    for query in (
        'mutation { a: deleteReading(id: "r1", comment: "old") { __typename } }',
        'mutation { a: deleteReading(id: "r1", comment: "old") { __typename } }',
        'mutation { b: deleteReading(id: "r1", comment: "new") { __typename } }',
    ):
        context = memory.context()
        context.principal, context.idempotency_key = "ann", "k1"
        result = await schema.execute(query, {}, context)
        assert result.errors is None
        authors.append(editing.asked.pop()[1][-1])
    first, again, other = authors
    assert (first.by, first.why) == ("ann", "old")
    assert first == again
    assert first.repeat != other.repeat, "one request may make several mutations"
    assert first.fingerprint != other.fingerprint


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_an_invalid_idempotency_key_is_refused(
    schema: strawberry.Schema, memory: Memory, editing: MemoryEditing, key: str
) -> None:
    """It is refused before any write."""
    context = memory.context()
    context.idempotency_key = key
    result = await schema.execute(
        'mutation { deleteReading(id: "r1") { __typename } }', {}, context
    )
    assert result.errors is not None
    assert "expected 1 to 255" in result.errors[0].message
    assert editing.asked == []


@pytest.mark.parametrize(
    ("mutation", "message"),
    [
        ('deleteSupplier(id: "x") { __typename }', "expected an ObjectID"),
        (
            'proposeReading(id: "r", basedOn: 1, basedOnDraft: 1, patch: {}) { __typename }',
            "arguments basedOn and basedOnDraft: got both",
        ),
        (
            'applyReadings(events: [{id: "a", document: {sequence: 1, value: 1}},'
            ' {id: "b", document: {sequence: "9223372036854775808", value: 1}}]) { applied }',
            "64 bits",
        ),
        ('saveCursor(name: "n", token: "x")', "resume token"),
    ],
)
async def test_invalid_arguments_are_an_error_of_the_request(
    ask: Ask, editing: MemoryEditing, mutation: str, message: str
) -> None:
    """They are not a result, because they concern no document."""
    result = await ask(f"mutation {{ {mutation} }}")
    assert result.errors is not None
    assert message in result.errors[0].message
    assert editing.asked == []


async def test_an_invalid_document_is_a_result(ask: Ask, editing: MemoryEditing) -> None:
    """The result has the path of the field; no service is called."""
    result = await ask(
        'mutation { updateReading(id: "r", patch: {sequence: null}) {'
        " ... on InvalidDocument { path } } }"
    )
    assert result.errors is None
    assert result.data == {"updateReading": {"path": "sequence"}}
    assert editing.asked == []


async def test_a_failure_is_an_error(ask: Ask, editing: MemoryEditing) -> None:
    """An internal error is not a result of a write."""
    editing.answer = Unavailable("MongoDB cannot be reached")
    result = await ask('mutation { deleteReading(id: "r1") { __typename } }')
    assert result.errors is not None
    assert (result.errors[0].extensions or {})["code"] == "UNAVAILABLE"


async def test_a_batch_is_one_call(ask: Ask, editing: MemoryEditing, model: Model) -> None:
    """It has the events in the order of the request."""
    editing.answer = BatchOutcome(applied=1, stale=1, at=Timestamp(1, 1))
    result = await ask(
        'mutation { applyReadings(events: [{id: "b", document: {sequence: 1, value: 1}},'
        ' {id: "a", document: {sequence: 2, value: 2}}]) { applied } }'
    )
    assert result.errors is None
    name, (entity, events, _author), _ = only_call(editing)
    assert (name, entity) == ("apply_each", model.entity("Reading"))
    assert events == [
        ("b", {"sequence": Int64(1), "value": 1.0}),
        ("a", {"sequence": Int64(2), "value": 2.0}),
    ]


async def test_a_too_large_batch_is_refused(ask: Ask, editing: MemoryEditing) -> None:
    """It would delay other callers."""
    event = {"id": "a", "document": {"sequence": 1, "value": 1}}
    result = await ask(
        "mutation ($events: [ReadingEvent!]!) { applyReadings(events: $events) { applied } }",
        events=[event] * 10_001,
    )
    assert result.errors is not None
    assert "events: 10,001, maximum is 10,000" in result.errors[0].message


async def test_a_comment_is_about_a_version_or_a_draft(ask: Ask, editing: MemoryEditing) -> None:
    """The service checks that exactly one of them is set."""
    editing.answer = comment("hm", version=2)
    result = await ask(
        'mutation { commentOnReading(id: "r1", version: 2, text: "hm") { id version text } }'
    )
    assert result.errors is None
    assert result.data == {"commentOnReading": {"id": "c1", "version": 2, "text": "hm"}}
    name, (_entity, key), more = only_call(editing)
    more.pop("author")
    assert (name, key, more) == ("add", "r1", {"version": 2, "text": "hm"})


async def test_a_cursor_is_stored_without_the_deployments_tag(
    ask: Ask, editing: MemoryEditing
) -> None:
    """It is stored for its owner and name; the result is the client's token."""
    token = resume_tokens.encode(resume_tokens.token_from_time(at(3)), DEPLOYMENT)
    result = await ask(f'mutation {{ saveCursor(name: "mine", token: "{token}") }}')
    assert result.errors is None
    assert result.data == {"saveCursor": token}
    assert only_call(editing) == ("save", ("", "mine", resume_tokens.token_from_time(at(3))), {})


async def test_data_is_read_again_after_a_write(
    ask: Ask, editing: MemoryEditing, memory: Memory
) -> None:
    """Mutations of one request run in order, and each result has the data at its time."""
    maker = ObjectId()
    memory.write("suppliers", {"_id": maker, "name": "Ada"})
    editing.answer = written({"_id": "p", "makerId": maker})
    selected = "{ ... on ProductWritten { product { maker { name } } } }"
    result = await ask(
        f'mutation {{ a: updateProduct(id: "p") {selected} b: updateProduct(id: "p") {selected} }}'
    )
    assert result.errors is None
    assert [name for name, *_ in memory.calls] == ["by_ids", "by_ids"]
