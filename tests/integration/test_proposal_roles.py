"""Roles for proposing, commenting and publishing, on a real MongoDB."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import context_of
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import ANONYMOUS, Principal
from tests.support.editing import Row, Shop, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = read_model(
    """
    type Page @collection(name: "pages")
      @access(
        write: ["admin"] propose: ["contributor", "moderator"] comment: ["contributor"]
        publish: ["moderator"] publishOwn: false
      ) { id: ID! title: String locked: String @access(write: ["admin"]) }
    type Note @collection(name: "notes") @access(write: ["writer"]) { id: ID! text: String }
    """
)
CONTRIBUTOR = Principal(name="carl", roles=frozenset({"contributor"}))
OTHER = Principal(name="cora", roles=frozenset({"contributor"}))
MODERATOR = Principal(name="mo", roles=frozenset({"moderator"}))
ADMIN = Principal(name="adam", roles=frozenset({"admin"}))
WRITER = Principal(name="wim", roles=frozenset({"writer"}))

PROPOSE = """
mutation ($id: ID!, $title: String) {
  done: proposePage(id: $id, patch: {title: $title}) {
    ... on PageDrafted { draft { number } } ... on WriteError { message }
  }
}
"""
PUBLISH = """
mutation ($id: ID!, $draft: Int!) {
  done: publishPage(id: $id, draft: $draft) {
    ... on PageWritten { version } ... on WriteError { message }
  }
}
"""
REJECT = """
mutation ($id: ID!, $draft: Int!) {
  done: rejectPage(id: $id, draft: $draft) {
    ... on PageDrafted { draft { status decidedBy } } ... on WriteError { message }
  }
}
"""
COMMENT = 'mutation ($id: ID!) { done: commentOnPage(id: $id, version: 1, text: "x") { author } }'
UPDATE = 'mutation ($id: ID!) { done: updatePage(id: $id, patch: {title: "x"}) { __typename } }'
FORBIDDEN = "FORBIDDEN"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(mongo_uri: str, client: MongoClient[Row]) -> AsyncIterator[Shop]:
    name = f"site_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=MODEL) as shop:
        yield shop
    client.drop_database(name)


async def ask(site: Shop, caller: Principal, text: str, **variables: Any) -> Any:
    """Return the data of `done`, or the code of the only error."""
    context = context_of(site.gateway, caller=caller)
    result = await site.schema.execute(text, variables, context)
    if result.errors:
        [error] = result.errors
        return (error.extensions or {})["code"]
    assert result.data is not None
    return result.data["done"]


async def page(site: Shop) -> str:
    """Return the id of a new page."""
    id_ = uuid4().hex[:8]
    site.database["pages"].insert_one({"_id": id_, "title": "Old"})
    await site.recorded()
    return id_


async def test_a_contributor_proposes_and_does_not_publish(site: Shop) -> None:
    """The role to propose includes neither writing nor publishing."""
    id_ = await page(site)
    proposed = await ask(site, CONTRIBUTOR, PROPOSE, id=id_, title="New")
    assert proposed == {"draft": {"number": 1}}
    assert await ask(site, CONTRIBUTOR, PUBLISH, id=id_, draft=1) == FORBIDDEN
    assert await ask(site, CONTRIBUTOR, UPDATE, id=id_) == FORBIDDEN
    assert site.database["pages"].find_one({"_id": id_}) == {"_id": id_, "title": "Old"}


async def test_a_moderator_publishes_without_the_write_role(site: Shop) -> None:
    """Publication has its own role: direct writes stay refused."""
    id_ = await page(site)
    await ask(site, CONTRIBUTOR, PROPOSE, id=id_, title="New")
    assert await ask(site, MODERATOR, PUBLISH, id=id_, draft=1) == {"version": 2}
    assert await ask(site, MODERATOR, UPDATE, id=id_) == FORBIDDEN
    assert (site.database["pages"].find_one({"_id": id_}) or {})["title"] == "New"


async def test_authors_cannot_publish_their_own_drafts_if_the_model_forbids_it(site: Shop) -> None:
    """A draft at the end of a chain with other authors' drafts is refused, too."""
    id_ = await page(site)
    await ask(site, MODERATOR, PROPOSE, id=id_, title="Mine")
    assert await ask(site, MODERATOR, PUBLISH, id=id_, draft=1) == FORBIDDEN
    chained = PROPOSE.replace("patch", "basedOnDraft: 1, patch")
    assert await ask(site, CONTRIBUTOR, chained, id=id_, title="Ours") == {"draft": {"number": 2}}
    assert await ask(site, MODERATOR, PUBLISH, id=id_, draft=2) == FORBIDDEN


async def test_the_write_role_alone_neither_proposes_nor_publishes(site: Shop) -> None:
    """Named roles replace those of `write`; they do not add to them."""
    id_ = await page(site)
    assert await ask(site, ADMIN, PROPOSE, id=id_, title="New") == FORBIDDEN
    await ask(site, CONTRIBUTOR, PROPOSE, id=id_, title="New")
    assert await ask(site, ADMIN, PUBLISH, id=id_, draft=1) == FORBIDDEN


async def test_a_draft_is_rejected_by_a_moderator_or_withdrawn_by_its_author(site: Shop) -> None:
    """Another contributor may do neither."""
    id_ = await page(site)
    for title in ("One", "Two"):
        await ask(site, CONTRIBUTOR, PROPOSE, id=id_, title=title)
    assert await ask(site, OTHER, REJECT, id=id_, draft=1) == FORBIDDEN
    withdrawn = await ask(site, CONTRIBUTOR, REJECT, id=id_, draft=1)
    assert withdrawn == {"draft": {"status": "REJECTED", "decidedBy": "carl"}}
    rejected = await ask(site, MODERATOR, REJECT, id=id_, draft=2)
    assert rejected == {"draft": {"status": "REJECTED", "decidedBy": "mo"}}


async def test_a_protected_field_cannot_be_proposed(site: Shop) -> None:
    """The write role of a field applies to drafts, too."""
    id_ = await page(site)
    locked = PROPOSE.replace("title: $title}", "locked: $title}")
    assert await ask(site, CONTRIBUTOR, locked, id=id_, title="x") == FORBIDDEN


async def test_comments_have_a_role_of_their_own(site: Shop) -> None:
    """The read role, which all callers have here, does not allow comments."""
    id_ = await page(site)
    assert await ask(site, ANONYMOUS, COMMENT, id=id_) == FORBIDDEN
    assert await ask(site, MODERATOR, COMMENT, id=id_) == FORBIDDEN
    assert await ask(site, CONTRIBUTOR, COMMENT, id=id_) == {"author": "carl"}


async def test_without_draft_roles_the_write_roles_apply(site: Shop) -> None:
    """Older models keep their meaning, one's own drafts included."""
    site.database["notes"].insert_one({"_id": "n", "text": "Old"})
    await site.recorded()
    propose = PROPOSE.replace("Page", "Note").replace("title: $title", "text: $title")
    publish = PUBLISH.replace("Page", "Note")
    assert await ask(site, CONTRIBUTOR, propose, id="n", title="New") == FORBIDDEN
    assert await ask(site, WRITER, propose, id="n", title="New") == {"draft": {"number": 1}}
    assert await ask(site, CONTRIBUTOR, publish, id="n", draft=1) == FORBIDDEN
    assert await ask(site, WRITER, publish, id="n", draft=1) == {"version": 2}
