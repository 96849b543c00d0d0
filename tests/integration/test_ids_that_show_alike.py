"""Two ids with the same text: the one of the declared type is meant as long as anything is known of
it.

Missing parts of it are never looked up in the other document, whatever the caller may see.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from pymongo import MongoClient

from revstream.gql.cli.purge import purge
from revstream.gql.runtime.asgi_app import context_of
from revstream.gql.runtime.configuration.settings import Settings
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import Principal
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.values.global_id import node_id
from revstream.streams.core import resume_tokens
from tests.support.editing import Row, Shop, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = read_model(
    """
    type Kit @collection(name: "kits") { id: ID! name: String owner: String }
    type Part @collection(name: "parts") @access(rows: "{ owner: { eq: $sub } }") {
      id: ID! name: String owner: String
    }
    """
)
ANN, BOB = Principal(name="ann"), Principal(name="bob")
NEITHER = "DocumentNotFound"
_numbers = itertools.count(1001)

MISSING = {
    "a version is restored": "restoreKit(id: $id, version: 3) { __typename }",
    "a draft is restored": "restoreKit(id: $id, draft: 1) { __typename }",
    "a draft is published": "publishKit(id: $id, draft: 1) { __typename }",
    "a draft is rejected": "rejectKit(id: $id, draft: 1) { __typename }",
    "a draft goes on from another":
        'proposeKit(id: $id, basedOnDraft: 1, patch: {name: "x"}) { __typename }',
}  # fmt: skip
COMMENTS = {
    "on a version": 'commentOnKit(id: $id, version: 3, text: "x") { id }',
    "without a text": 'commentOnKit(id: $id, version: 3, text: "") { id }',
    "on a draft": 'commentOnKit(id: $id, draft: 1, text: "x") { id }',
    "on a comment": 'commentOnKit(id: $id, replyTo: "REPLY", text: "x") { id }',
}
PRESENT = {
    "an update": 'updateKit(id: $id, patch: {name: "x"}) { __typename }',
    "a replacement": 'replaceKit(id: $id, document: {owner: "ann"}) { __typename }',
    "a deletion": "deleteKit(id: $id) { __typename }",
    "a proposal": 'proposeKit(id: $id, patch: {name: "x"}) { __typename }',
}


@dataclass(kw_only=True, eq=False)
class Twins:
    """A document with a numeric `_id`, at version 3, with a draft and a comment, and one whose
    `_id` is the same number as text, at version 1.
    """

    shop: Shop
    collection: str
    number: int

    @property
    def text(self) -> str:
        return str(self.number)

    async def ask(
        self, operation: str, caller: Principal = ANN, id_: str | None = None, **variables: str
    ) -> tuple[Any, list[str]]:
        """Return the data of one root field, and the messages of errors."""
        if self.collection == "parts":
            operation = operation.replace("Kit", "Part").replace("kit", "part")
        context = context_of(self.shop.gateway, caller=caller)
        given = {"id": id_ or self.text, **variables}
        result = await self.shop.schema.execute(operation, given, context)
        data = result.data and next(iter(result.data.values()))
        return data, [each.message for each in result.errors or ()]

    async def mutate(self, field: str, *more: Any) -> tuple[Any, list[str]]:
        """Return the result of a mutation."""
        return await self.ask(f"mutation($id: ID!) {{ {field} }}", *more)

    async def read(self, field: str, *more: Any) -> tuple[Any, list[str]]:
        """Return the result of a query."""
        return await self.ask(f"query($id: ID!) {{ {field} }}", *more)

    async def now(self) -> str:
        """Return the current time as an argument."""
        at = await self.shop.gateway.mongo.operation_time()
        token = resume_tokens.encode(
            resume_tokens.token_from_time(at), self.shop.gateway.deployment
        )
        return f'{{token: "{token}"}}'

    def stored(self) -> list[Any]:
        """Return everything that is stored of the numeric document."""
        database, name = self.shop.database, self.collection
        return [
            database[name].find_one({"_id": self.number}),
            list(database[f"{name}.drafts"].find({"doc": self.number})),
            list(database[f"{name}.comments"].find({"doc": self.number})),
        ]

    def insert_text(self, owner: str = "ann") -> None:
        """Insert the document with the text id."""
        row = {"_id": self.text, "name": "text", "owner": owner, "version": 1}
        self.shop.database[self.collection].insert_one(row)

    def delete_text(self) -> None:
        """Delete the document with the text id; its history stays."""
        self.shop.database[self.collection].delete_one({"_id": self.text})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(mongo_uri: str, client: MongoClient[Row]) -> AsyncIterator[Shop]:
    """Run a gateway over kits, which all callers see, and parts, of which callers see their own."""
    name = f"alike_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=MODEL) as opened:
        yield opened
    client.drop_database(name)


async def number_alone(shop: Shop, collection: str) -> Twins:
    """Insert the numeric document with its draft and comment."""
    twins = Twins(shop=shop, collection=collection, number=next(_numbers))
    row = {"_id": twins.number, "name": "number", "owner": "ann", "version": 1}
    shop.database[collection].insert_one(row)
    for _ in range(2):
        shop.database[collection].update_one({"_id": twins.number}, {"$inc": {"version": 1}})
    propose = 'proposeKit(id: $id, patch: {name: "draft"}) { ... on WriteError { message } }'
    assert await twins.mutate(propose) == ({}, [])
    comment = 'commentOnKit(id: $id, version: 3, text: "said") { documentId }'
    assert await twins.mutate(comment) == ({"documentId": twins.text}, [])
    return twins


@pytest_asyncio.fixture(loop_scope="module")
async def kits(shop: Shop) -> Twins:
    """Insert two kits."""
    twins = await number_alone(shop, "kits")
    twins.insert_text()
    await shop.recorded()
    return twins


@pytest_asyncio.fixture(loop_scope="module")
async def parts(shop: Shop) -> Twins:
    """Insert two parts: the numeric one is ann's, the other bob's."""
    twins = await number_alone(shop, "parts")
    twins.insert_text("bob")
    await shop.recorded()
    return twins


def of_number(twins: Twins, field: str) -> str:
    """Return the same field for the numeric document."""
    comments = twins.shop.database[f"{twins.collection}.comments"]
    (comment,) = comments.find({"doc": twins.number})
    return field.replace("REPLY", str(comment["_id"]))


@pytest.mark.parametrize("case", MISSING)
async def test_missing_parts_of_the_declared_document_are_not_found(kits: Twins, case: str) -> None:
    """The other document, which has them, is not written."""
    before = kits.stored()
    assert await kits.mutate(MISSING[case]) == ({"__typename": NEITHER}, [])
    assert kits.stored() == before


@pytest.mark.parametrize("case", COMMENTS)
async def test_no_comment_is_stored_on_the_other_document(kits: Twins, case: str) -> None:
    """The text is refused, or the subject belongs to the other document."""
    before = kits.stored()
    data, messages = await kits.mutate(of_number(kits, COMMENTS[case]))
    assert data is None
    assert f"Kit {kits.text}" in messages[0]
    assert kits.stored() == before


VERSION = "kitVersion(id: $id, version: 3) { documentId document { name } }"


async def test_no_version_of_the_other_document_is_returned(kits: Twins) -> None:
    """Versions are looked up by number, by node id, and as a state of the document."""
    assert await kits.read(VERSION) == (None, [])
    node = "query($node: ID!) { node(nodeId: $node) { nodeId } }"
    for type_name, id_ in (
        ("KitVersion", f"{kits.text}@3"),
        ("KitSnapshot", f"{kits.text}@3"),
        ("KitSnapshot", f"{kits.text}@draft-1"),
    ):
        assert await kits.ask(node, node=node_id(type_name, id_)) == (None, [])
    states = "kits(where: {id: {eq: $id}}) { nodes { name state(version: 3) { version } } }"
    data, messages = await kits.read(states)
    assert not messages
    found = {each["name"]: each["state"] for each in data["nodes"]}
    assert found == {"text": None, "number": {"version": 3}}


async def test_a_document_has_no_state_before_its_insertion(shop: Shop) -> None:
    """An as-of read then finds the other document, whose id has the same text."""
    twins = Twins(shop=shop, collection="kits", number=next(_numbers))
    twins.insert_text()
    then = await twins.now()
    row = {"_id": twins.number, "name": "number", "version": 1}
    shop.database["kits"].insert_one(row)
    await shop.recorded()
    state = f"state(asOf: {then}) {{ document {{ name }} }}"
    query = f"kits(where: {{id: {{eq: $id}}}}) {{ nodes {{ name {state} }} }}"
    data, messages = await twins.read(query)
    assert not messages
    found = {each["name"]: each["state"] for each in data["nodes"]}
    assert found == {"text": {"document": {"name": "text"}}, "number": None}


@pytest.mark.parametrize("case", [*MISSING, *COMMENTS])
async def test_the_other_document_is_meant_if_the_declared_one_never_existed(
    shop: Shop, case: str
) -> None:
    """All operations that are refused beside the declared document succeed."""
    twins = await number_alone(shop, "kits")
    field, before = of_number(twins, {**MISSING, **COMMENTS}[case]), twins.stored()
    data, messages = await twins.mutate(field)
    if case == "without a text":
        assert messages == ["text: empty, expected the text of the comment; write one"]
    else:
        assert data is not None
        assert not messages
        assert data.get("__typename") != NEITHER
        assert twins.stored() != before
    assert (await twins.read(VERSION))[0]["documentId"] == twins.text
    snapshot = node_id("KitSnapshot", f"{twins.text}@draft-1")
    node = "query($node: ID!) { node(nodeId: $node) { nodeId } }"
    assert await twins.ask(node, node=snapshot) == ({"nodeId": snapshot}, [])


async def test_a_deleted_declared_document_keeps_only_its_history(kits: Twins) -> None:
    """Lookups, changes and drafts mean the other document.

    Restored versions, and versions by number, are those of the deleted document.
    """
    kits.delete_text()
    await kits.shop.recorded()
    assert await kits.read(VERSION) == (None, [])
    before = kits.stored()
    restore = "restoreKit(id: $id, version: 3) { __typename }"
    assert await kits.mutate(restore) == ({"__typename": NEITHER}, [])
    data, messages = await kits.mutate(COMMENTS["on a version"])
    assert data is None
    assert messages == [f"version: 3, expected the number of a version of Kit {kits.text}"]
    assert kits.stored() == before
    assert await kits.read("kit(id: $id) { name }") == ({"name": "number"}, [])
    publish = "publishKit(id: $id, draft: 1) { ... on KitWritten { kit { name } } }"
    assert await kits.mutate(publish) == ({"kit": {"name": "draft"}}, [])
    update = 'updateKit(id: $id, patch: {name: "new"}) { ... on KitWritten { kit { name } } }'
    assert await kits.mutate(update) == ({"kit": {"name": "new"}}, [])
    back = "restoreKit(id: $id, version: 1) { ... on KitWritten { kit { name } } }"
    assert await kits.mutate(back) == ({"kit": {"name": "text"}}, [])
    assert await kits.read("kit(id: $id) { name }") == ({"name": "text"}, [])


async def test_drafts_of_a_new_document_belong_to_it(shop: Shop) -> None:
    """A new document was proposed under the text id: drafts are looked up there."""
    twins = await number_alone(shop, "kits")
    new = 'proposeNewKit(id: $id, document: {name: "new"}) { __typename }'
    assert await twins.mutate(new) == ({"__typename": "KitDrafted"}, [])
    before = twins.stored()
    for field in (PRESENT["a proposal"], "rejectKit(id: $id, draft: 2) { __typename }"):
        assert await twins.mutate(field) == ({"__typename": NEITHER}, [])
    assert twins.stored() == before


HIDDEN = {
    **{case: f"mutation($id: ID!) {{ {field} }}" for case, field in (MISSING | PRESENT).items()},
    **{
        f"a comment {case}": f"mutation($id: ID!) {{ {field} }}" for case, field in COMMENTS.items()
    },
    "a lookup": "query($id: ID!) { kit(id: $id) { name } }",
    "a version": f"query($id: ID!) {{ {VERSION} }}",
    "a moment": "query($id: ID!) { kitVersion(id: $id, asOf: NOW) { version } }",
}


@pytest.mark.parametrize("case", HIDDEN)
async def test_a_hidden_declared_document_is_like_a_missing_one(parts: Twins, case: str) -> None:
    """It is meant and not found: the caller's own document with the same text is not changed.

    The response is that for an unknown id.
    """
    before = parts.stored()
    operation = of_number(parts, HIDDEN[case]).replace("NOW", await parts.now())
    nothing = str(next(_numbers))
    expected = await parts.ask(operation, ANN, nothing)
    data, messages = await parts.ask(operation, ANN)
    assert (data, [each.replace(parts.text, nothing) for each in messages]) == expected
    assert data in (None, {"__typename": NEITHER})
    assert parts.stored() == before


async def test_as_of_reads_mean_the_document_of_a_lookup_at_that_time(parts: Twins) -> None:
    """It is the caller's own document after the deletion of the hidden one."""
    moment = "kitVersion(id: $id, asOf: WHEN) { document { name } }"
    then = await parts.now()
    parts.delete_text()
    await parts.shop.recorded()
    assert await parts.read(moment.replace("WHEN", then)) == (None, [])
    found = await parts.read(moment.replace("WHEN", await parts.now()))
    assert found == ({"document": {"name": "number"}}, [])
    assert await parts.read("kit(id: $id) { name }") == ({"name": "number"}, [])
    assert await parts.read(VERSION) == (None, [])


async def test_a_purge_means_the_existing_document(kits: Twins, mongo_uri: str) -> None:
    """Even if it has no version, the other document's history stays."""
    database = kits.shop.database
    database["kits.versions"].delete_many({"doc": kits.text})
    versions = database["kits.versions"].count_documents({"doc": kits.number})
    with pytest.raises(BadUserInput, match=f"Kit {kits.text}: no versions"):
        await purge(
            Settings(), MODEL, mongo_uri, database.name, "Kit", kits.text, by="ann", why="asked"
        )
    assert kits.stored()[2]
    assert database["kits.versions"].count_documents({"doc": kits.number}) == versions
