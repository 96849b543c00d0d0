"""Access to draft and comment events on a real MongoDB: the same as on pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import context_of
from revstream.gql.runtime.configuration.settings import Settings
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import Principal
from tests.support.editing import Row, Shop, open_shop
from tests.support.proposals import (
    comments_that_are_none,
    drafts_that_are_none,
    next_event,
    token_now,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = read_model(
    """
    type Page @collection(name: "pages")
      @access(read: ["reader"], write: ["admin"], propose: ["contributor"], publish: ["moderator"])
      { id: ID! title: String secret: String @access(read: ["admin"]) }
    type Memo @collection(name: "memos") @access(rows: "{ owner: { eq: $sub } }")
      { id: ID! owner: String! title: String }
    """
)


def caller(name: str, *roles: str) -> Principal:
    return Principal(name=name, roles=frozenset(roles))


ADMIN = caller("adam", "admin", "contributor", "moderator", "reader")
READER, STRANGER = caller("rita", "reader"), caller("otto", "contributor", "moderator", "admin")
ANN, BOB = caller("ann"), caller("bob")

FIELDS = "kind operation transition type documentId resumeToken"
DRAFTS = f"{FIELDS} number draft {{ number status diff {{ path }} }}"
COMMENTS = f"{FIELDS} commentId comment {{ text }}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(mongo_uri: str, client: MongoClient[Row]) -> AsyncIterator[Shop]:
    """Run a gateway over one page `p`, with a draft and a comment."""
    name = f"site_{uuid4().hex[:8]}"
    settings = Settings(quiet_s=0.2)
    async with open_shop(client, mongo_uri, name, settings, model=MODEL) as shop:
        await ask(shop, ADMIN, 'createPage(id: "p", document: {title: "x"}) { __typename }')
        await shop.recorded()
        yield shop
    client.drop_database(name)


async def ask(shop: Shop, who: Principal, mutation: str) -> Row:
    context = context_of(shop.gateway, caller=who)
    result = await shop.schema.execute(f"mutation {{ done: {mutation} }}", {}, context)
    assert not result.errors, result.errors
    assert result.data is not None
    found: Row = result.data["done"]
    assert "__typename" not in found or "Error" not in found["__typename"], found
    return found


async def replay(shop: Shop, who: Principal, name: str, selection: str, after: str) -> Any:
    """Return the replayed events, or the code of the error."""
    await shop.streamed()
    context = context_of(shop.gateway, caller=who)
    text = f'subscription {{ found: {name}(after: "{after}") {{ {selection} }} }}'
    results: Any = await shop.schema.subscribe(text, {}, context)
    found: list[Row] = []
    async with aclosing(results) as events:
        while True:
            event = await next_event(events)
            if event.errors:
                return event.errors[0].extensions["code"]
            change = event.data["found"]
            if change["kind"] == "CHECKPOINT":
                return found
            found.append(change)


async def test_a_caller_without_the_read_role_gets_no_events_of_a_type(site: Shop) -> None:
    """The roles to propose and publish do not suffice, and the queue of all types omits it."""
    after = await token_now(site)
    await ask(site, ADMIN, 'proposePage(id: "p", patch: {title: "y"}) { __typename }')
    await ask(site, ADMIN, 'commentOnPage(id: "p", draft: 1, text: "t") { text }')
    for of_type, of_all, selection in (
        ("pageDraftChanges", "allDraftChanges", DRAFTS),
        ("pageCommentChanges", "allCommentChanges", COMMENTS),
    ):
        assert len(await replay(site, READER, of_type, selection, after)) == 1
        assert len(await replay(site, READER, of_all, selection, after)) == 1
        assert await replay(site, STRANGER, of_type, selection, after) == "FORBIDDEN"
        assert await replay(site, STRANGER, of_all, selection, after) == []


async def test_hidden_fields_are_in_no_diff_of_an_event(site: Shop) -> None:
    """The diff equals that of a draft on a page."""
    after = await token_now(site)
    patch = '{title: "z", secret: "s"}'
    await ask(site, ADMIN, f'proposePage(id: "p", patch: {patch}) {{ __typename }}')
    paths = {}
    for who in (ADMIN, READER):
        (change,) = await replay(site, who, "pageDraftChanges", DRAFTS, after)
        paths[who.name] = {each["path"] for each in change["draft"]["diff"]}
    assert paths == {"adam": {"title", "secret"}, "rita": {"title"}}


async def test_a_row_rule_applies_to_events_of_drafts_and_comments(site: Shop) -> None:
    """A draft that a program transfers leaves for the first owner and enters for the other."""
    content = '{owner: "ann", title: "x"}'
    await ask(site, ANN, f'createMemo(id: "m", document: {content}) {{ __typename }}')
    await site.recorded()
    after = await token_now(site)
    await ask(site, ANN, 'proposeMemo(id: "m", patch: {title: "SECRET"}) { __typename }')
    await ask(site, ANN, 'commentOnMemo(id: "m", draft: 1, text: "SECRET") { text }')
    await ask(site, ANN, 'commentOnMemo(id: "m", version: 1, text: "SECRET") { text }')
    for name, selection, count in (
        ("memoDraftChanges", DRAFTS, 1),
        ("allDraftChanges", DRAFTS, 1),
        ("memoCommentChanges", COMMENTS, 2),
        ("allCommentChanges", COMMENTS, 2),
    ):
        assert len(await replay(site, ANN, name, selection, after)) == count
        assert await replay(site, BOB, name, selection, after) == []
    drafts, moved = site.database["memos.drafts"], {"base.owner": "bob", "full.owner": "bob"}
    drafts.update_one({"doc": "m"}, {"$set": moved})
    drafts.update_one({"doc": "m"}, {"$set": {"full.title": "HIS"}})
    mine = await replay(site, ANN, "memoDraftChanges", DRAFTS, after)
    assert [(e["operation"], e["transition"]) for e in mine] == [
        ("INSERT", "ENTER"),
        (None, "LEAVE"),
    ]
    assert (mine[1]["number"], mine[1]["draft"]) == (1, None)
    his = await replay(site, BOB, "memoDraftChanges", DRAFTS, after)
    assert [each["transition"] for each in his] == ["ENTER", "STAY"]
    # Comments on it are also his from now on, and not hers.
    assert len(await replay(site, ANN, "memoCommentChanges", COMMENTS, after)) == 1
    assert len(await replay(site, BOB, "memoCommentChanges", COMMENTS, after)) == 1
    drafts.delete_one({"doc": "m"})
    (removed,) = (await replay(site, BOB, "memoDraftChanges", DRAFTS, after))[2:]
    # Like a transferred draft: a caller with a row rule does not learn which one.
    assert (removed["operation"], removed["transition"]) == (None, "LEAVE")


async def test_a_proposed_new_document_is_sent_to_its_future_owner(site: Shop) -> None:
    """Its draft has no base that the row rule could check."""
    after = await token_now(site)
    content = '{owner: "ann", title: "x"}'
    await ask(site, ANN, f'proposeNewMemo(id: "new", document: {content}) {{ __typename }}')
    await ask(site, ANN, 'commentOnMemo(id: "new", draft: 1, text: "SECRET") { text }')
    for name, selection in (
        ("memoDraftChanges", DRAFTS),
        ("allDraftChanges", DRAFTS),
        ("memoCommentChanges", COMMENTS),
    ):
        (hers,) = await replay(site, ANN, name, selection, after)
        assert (hers["transition"], hers["documentId"]) == ("ENTER", "new")
        assert await replay(site, BOB, name, selection, after) == []


async def test_an_invalid_draft_record_ends_no_subscription_with_a_row_rule(site: Shop) -> None:
    """The rule is only applied to valid drafts and comments."""
    content = '{owner: "ann", title: "x"}'
    await ask(site, ANN, f'createMemo(id: "odd", document: {content}) {{ __typename }}')
    await ask(site, ANN, 'proposeMemo(id: "odd", patch: {title: "y"}) { __typename }')
    await site.recorded()
    after = await token_now(site)
    drafts, comments = site.database["memos.drafts"], site.database["memos.comments"]
    drafts.insert_many(wrong := drafts_that_are_none("odd"))
    comments.insert_many(unsaid := comments_that_are_none("odd"))
    await ask(site, ANN, 'proposeMemo(id: "odd", patch: {title: "y"}) { __typename }')
    await ask(site, ANN, 'commentOnMemo(id: "odd", version: 1, text: "t") { text }')
    for name, selection in (
        ("memoDraftChanges", DRAFTS),
        ("allDraftChanges", DRAFTS),
        ("memoCommentChanges", COMMENTS),
        ("allCommentChanges", COMMENTS),
    ):
        (hers,) = await replay(site, ANN, name, selection, after)
        assert (hers["transition"], hers["documentId"]) == ("ENTER", "odd")
    drafts.delete_many({"_id": {"$in": [each["_id"] for each in wrong]}})
    comments.delete_many({"_id": {"$in": [each["_id"] for each in unsaid]}})
