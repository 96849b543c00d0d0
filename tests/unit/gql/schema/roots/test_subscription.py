"""Tests of `gql.schema.roots.subscription`: events, and the arguments of the stream."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest
import strawberry
from bson import ObjectId, Timestamp
from strawberry.types.execution import PreExecutionError

from revstream.gql.engine.limits.subscription_filters import SubscriptionFilters
from revstream.model.definition import Model
from revstream.resolvers.filters.predicate import compile_predicate
from revstream.resolvers.subscriptions.event_enrichment import Change
from revstream.streams.core import resume_tokens
from tests.support.reads import Memory, at
from tests.unit.gql.conftest import Ask

SUPPLIER = ObjectId("a" * 24)
BEFORE = {"_id": "p", "name": "Lamp", "stock": 3, "supplierId": SUPPLIER, "_change": {"id": 1}}
AFTER = {**BEFORE, "stock": 2, "_change": {"id": 2}}
TOKEN = f"{resume_tokens.time_prefix(at(5))}AB"

Follow = Callable[..., Coroutine[Any, Any, list[Any]]]


@pytest.fixture
def follow(schema: strawberry.Schema, memory: Memory) -> Follow:
    """Return a function that collects the results of a subscription until it ends."""

    async def results(query: str, **variables: Any) -> list[Any]:
        stream: Any = await schema.subscribe(query, variables, memory.context())
        return [each async for each in stream]

    return results


def change(model: Model, **given: Any) -> Change:
    return Change(
        **{
            "entity": model.entity("Product"),
            "kind": "CHANGE",
            "token": TOKEN,
            "operation": "UPDATE",
            "transition": "STAY",
            "document_id": "p",
            "version": 7,
            "previous_version": 5,
            "at": datetime(2024, 5, 1, 12, 0, 5, tzinfo=UTC),
            "by": "ann",
            "why": "a reason",
            "document": AFTER,
            "before": BEFORE,
            **given,
        }
    )


EVERYTHING = """
  subscription {
    productChanges {
      __typename kind operation transition documentId version changedFields
      diff { path kind before after } at author comment replayed gap resumeToken
      product { __typename id version name stock }
      before { __typename id nodeId stock }
    }
  }
"""


async def test_a_change_has_operation_and_states(
    memory: Memory, model: Model, follow: Follow
) -> None:
    """The new state has the current document's id, the old one the previous version's."""
    memory.changes = [change(model)]
    (result,) = await follow(EVERYTHING)
    assert result.errors is None
    assert result.data["productChanges"] == {
        "__typename": "ProductChange",
        "kind": "CHANGE",
        "operation": "UPDATE",
        "transition": "STAY",
        "documentId": "p",
        "version": 7,
        "changedFields": ["stock"],
        "diff": [{"path": "stock", "kind": "CHANGED", "before": 3, "after": 2}],
        "at": "2024-05-01T12:00:05.000Z",
        "author": "ann",
        "comment": "a reason",
        "replayed": False,
        "gap": False,
        "resumeToken": f"{TOKEN}.tests",
        "product": {"__typename": "Product", "id": "p", "version": 7, "name": "Lamp", "stock": 2},
        "before": {
            "__typename": "ProductSnapshot",
            "id": "p@5",
            "nodeId": "UHJvZHVjdFNuYXBzaG90OnBANQ",
            "stock": 3,
        },
    }


async def test_a_deletion_has_no_document(memory: Memory, model: Model, follow: Follow) -> None:
    """It has the old state, and all fields as removed."""
    memory.changes = [change(model, operation="DELETE", transition="LEAVE", document=None)]
    (result,) = await follow(EVERYTHING)
    assert result.errors is None
    event = result.data["productChanges"]
    assert event["product"] is None
    assert event["before"]["stock"] == 3
    assert {each["kind"] for each in event["diff"]} == {"REMOVED"}


async def test_a_checkpoint_has_only_a_token(memory: Memory, model: Model, follow: Follow) -> None:
    """Its other fields are null."""
    memory.changes = [Change(entity=model.entity("Product"), kind="CHECKPOINT", token=TOKEN)]
    (result,) = await follow(EVERYTHING)
    assert result.errors is None
    event = {name: value for name, value in result.data["productChanges"].items() if value}
    assert event == {
        "__typename": "ProductChange",
        "kind": "CHECKPOINT",
        "resumeToken": f"{TOKEN}.tests",
    }


async def test_a_snapshot_is_a_document_without_a_change(
    memory: Memory, model: Model, follow: Follow
) -> None:
    """It has neither a diff nor an operation."""
    memory.changes = [
        change(model, kind="SNAPSHOT", operation=None, transition="ENTER", before=None)
    ]
    (result,) = await follow(EVERYTHING)
    assert result.errors is None
    event = result.data["productChanges"]
    assert (event["kind"], event["operation"], event["transition"]) == ("SNAPSHOT", None, "ENTER")
    assert event["changedFields"] is None
    assert event["diff"] is None
    assert event["product"]["stock"] == 2


async def test_references_of_the_new_state_are_current_and_of_the_old_state_past(
    memory: Memory, model: Model, follow: Follow
) -> None:
    """The old state has the supplier at the time before the change."""
    memory.write("suppliers", {"_id": SUPPLIER, "name": "old"})
    for n in range(4):
        memory.write("readings", {"_id": n})
    memory.write("suppliers", {"_id": SUPPLIER, "name": "new"})
    # The supplier was renamed at the cluster time of the change, so it had its old name just
    # before.
    memory.changes = [change(model)]
    (result,) = await follow(
        "subscription { productChanges { product { supplier { name } history { totalCount } }"
        " before { supplier { name } } } }"
    )
    assert result.errors is None
    assert result.data["productChanges"] == {
        "product": {"supplier": {"name": "new"}, "history": {"totalCount": 0}},
        "before": {"supplier": {"name": "old"}},
    }


async def test_an_event_with_an_invalid_document_has_its_token(
    memory: Memory, model: Model, follow: Follow
) -> None:
    """The error has the document and the field, and the subscription continues."""
    bad = {name: value for name, value in AFTER.items() if name != "name"}
    memory.changes = [change(model, document=bad), change(model)]
    first, second = await follow("subscription { productChanges { resumeToken product { name } } }")
    assert first.data["productChanges"] == {"resumeToken": f"{TOKEN}.tests", "product": None}
    assert first.errors[0].extensions["code"] == "DOCUMENT_MISFIT"
    assert first.errors[0].extensions["field"] == "name"
    assert second.errors is None


@pytest.mark.parametrize(
    ("selection", "version", "before"),
    [
        ("kind resumeToken documentId", False, False),
        ("version", True, False),
        ("product { name supplier { version } history { totalCount } }", False, False),
        ("product { version }", True, False),
        ("...F", True, False),
        ("before { stock }", False, True),
        ("before { id }", True, True),
        ("before { nodeId }", True, True),
        ("diff { path }", False, True),
        ("changedFields", False, True),
        ("version @skip(if: true)", False, False),
    ],
)
async def test_only_selected_fields_are_read(
    memory: Memory, follow: Follow, selection: str, version: bool, before: bool
) -> None:
    """Without version and old state, the event is sent without another read."""
    fragment = "fragment F on Change { ... on ProductChange { product { v: version } } }"
    if selection != "...F":
        fragment = ""
    await follow(f"subscription {{ productChanges {{ {selection} }} }} {fragment}")
    (request,) = memory.requests
    assert (request.needs_version, request.needs_before) == (version, before)


async def test_arguments_become_a_request_of_the_stream(memory: Memory, follow: Follow) -> None:
    """Ids and tokens have their stored form, the filter is a condition."""
    await follow(
        "subscription($w: SupplierWhere, $s: DateTime) { supplierChanges("
        f' id: "{SUPPLIER}", where: $w, operations: [INSERT, DELETE], after: "{TOKEN}.tests",'
        ' since: $s, cursor: "mine") { kind } }',
        w={"name": {"startsWith": "A"}},
        s="2024-05-01T12:00:00Z",
    )
    (request,) = memory.requests
    assert request.ids == (SUPPLIER,)
    assert request.where is not None
    assert compile_predicate(request.where)({"_id": 1, "name": "Ames"})
    assert not compile_predicate(request.where)({"_id": 1, "name": "Brown"})
    assert request.operations == frozenset({"INSERT", "DELETE"})
    assert request.after == TOKEN
    assert request.since == datetime(2024, 5, 1, 12, tzinfo=UTC)
    assert request.cursor == "mine"


@pytest.mark.parametrize(
    ("after", "begins"),
    [
        ("null", (None, True)),
        (f'"{TOKEN}.tests"', (TOKEN, False)),
        (f'"{resume_tokens.snapshot_token(Timestamp(7, 1))}.tests"', (None, True)),
    ],
    ids=["at first", "behind it", "within it"],
)
async def test_a_client_that_resumes_keeps_its_snapshot_argument(
    memory: Memory, follow: Follow, after: str, begins: tuple[str | None, bool]
) -> None:
    """It puts the token of each event into its variables and leaves the others as they are: a
    snapshot is sent once, and anew where it was not finished."""
    await follow(
        f"subscription {{ productChanges(snapshot: true, after: {after}) {{ kind }} }}",
    )
    (request,) = memory.requests
    assert (request.after, request.snapshot) == begins


async def test_without_arguments_a_subscription_starts_now(memory: Memory, follow: Follow) -> None:
    """Null is the same as a missing argument."""
    for arguments in ("", "(id: null, where: null, operations: null, after: null, snapshot: null)"):
        await follow(f"subscription {{ productChanges{arguments} {{ kind }} }}")
        request = memory.requests[-1]
        given = (request.where, request.operations, request.after, request.since)
        assert given == (None, None, None, None)
        assert request.ids == ()
        assert request.snapshot is False


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ('after: "x"', "RESUME_TOKEN_INVALID"),
        (f'after: "{TOKEN}.elsewhere"', "RESUME_TOKEN_INVALID"),
        ("where: {stock: null}", "BAD_USER_INPUT"),
        ('since: "+012345-01-01T00:00:00Z"', "BAD_USER_INPUT"),
        ('where: {supplierId: {eq: "x"}}', "BAD_USER_INPUT"),
    ],
)
async def test_an_invalid_subscription_ends_with_its_error(
    memory: Memory, follow: Follow, arguments: str, code: str
) -> None:
    """It does not start at another position."""
    (result,) = await follow(f"subscription {{ productChanges({arguments}) {{ kind }} }}")
    # Sockets then send `error`, not `next` and `complete`.
    assert isinstance(result, PreExecutionError)
    assert result.errors is not None
    assert result.errors[0].extensions is not None
    assert result.errors[0].extensions["code"] == code
    assert memory.requests == []


async def test_a_query_cannot_be_subscribed_to(ask: Ask) -> None:
    """Only subscriptions are streams."""
    result = await ask("{ productChanges { kind } }")
    assert result.errors is not None
    assert "Cannot query field 'productChanges' on type 'Query'" in result.errors[0].message


FILTERED = "subscription($w: ProductWhere) { productChanges(where: $w) { kind } }"


def conditions(count: int) -> dict[str, Any]:
    return {"or": [{"stock": {"eq": number}} for number in range(count)]}


async def test_a_filter_with_too_many_conditions_is_refused(model: Model, follow: Follow) -> None:
    """No stream starts: a filter stays in memory and is evaluated for each change."""
    assert await follow(FILTERED, w=conditions(50)) == []
    refused = await follow(FILTERED, w=conditions(51))
    assert [each.data for each in refused] == [None]
    facts = refused[0].errors[0].extensions
    assert facts["code"] == "LIMIT_EXCEEDED"
    assert (facts["limit"], facts["asked"], facts["bound"]) == (
        "max_subscription_conditions",
        51,
        50,
    )


async def test_the_filters_of_open_subscriptions_are_counted(
    schema: strawberry.Schema, memory: Memory, model: Model
) -> None:
    """They are counted per caller and in total while the subscription is open."""
    memory.changes = [change(model)]
    filters = SubscriptionFilters(per_subscription=10, per_caller=15, in_all=20)

    async def opened(name: str | None) -> Any:
        context = memory.context()
        context.principal, context.subscription_filters = name, filters
        stream = await schema.subscribe(FILTERED, {"w": conditions(6)}, context)
        return stream, await anext(stream)  # type: ignore[arg-type]

    streams = [(await opened("ann"))[0] for _ in range(2)]
    _, refused = await opened("ann")
    assert refused.errors[0].extensions["limit"] == "max_principal_conditions"
    streams.append((await opened(None))[0])
    _, refused = await opened(None)
    assert refused.errors[0].extensions["limit"] == "max_process_conditions"
    _, refused = await opened("bob")
    assert refused.errors[0].extensions["limit"] == "max_process_conditions"
    assert filters.held == 18
    for each in streams:
        await each.aclose()
    assert filters.held == 0
    _, response = await opened("bob")
    assert response.errors is None
