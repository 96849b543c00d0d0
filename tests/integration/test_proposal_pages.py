"""Drafts and comments as connections, their limits, drafts of new documents, and restored drafts,
on a real MongoDB.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from bson import Decimal128, ObjectId

from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import Principal
from revstream.resolvers.drafts.limits import DEFAULT_LIMITS, ProposalLimits
from tests.integration.test_proposal_roles import ask as ask_as
from tests.support.editing import Failed, Row, Shop, lamp, open_shop, pick
from tests.support.proposals import (
    comments_that_are_none,
    drafts_that_are_none,
    propose,
    stored_draft,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

DRAFTS = """
query ($id: ID, $where: DraftWhere, $first: Int, $after: String) {
  found: productDrafts(documentId: $id, where: $where, first: $first, after: $after) {
    nodes { number documentId status author document { name } }
    pageInfo { hasNextPage endCursor } totalCount
  }
}
"""
COMMENTS = """
query ($id: ID!) {
  found: productComments(documentId: $id) {
    nodes { text version draft aboutVersion { version operation } aboutDraft { number status } }
    totalCount
  }
}
"""


async def drafts(shop: Shop, **given: Any) -> Row:
    found: Row = (await shop.ask(DRAFTS, **given))["found"]
    return found


async def test_the_pages_of_a_documents_drafts_have_each_draft_once(shop: Shop) -> None:
    """The newest is first, with the total and the selected content."""
    id_ = await shop.create()
    for number in range(5):
        await propose(shop, id_, f"name {number}")
    first = await drafts(shop, id=id_, first=2)
    rest = await drafts(shop, id=id_, first=10, after=first["pageInfo"]["endCursor"])
    assert (first["totalCount"], first["pageInfo"]["hasNextPage"]) == (5, True)
    nodes = [*first["nodes"], *rest["nodes"]]
    assert pick(nodes, "number") == [5, 4, 3, 2, 1]
    assert nodes[0]["document"] == {"name": "name 4"}
    assert rest["pageInfo"]["hasNextPage"] is False


async def test_drafts_are_found_by_status_author_and_age(shop: Shop) -> None:
    """A moderator searches for undecided drafts, by an author, since some time."""
    id_ = await shop.create()
    await propose(shop, id_, "one", author="dan")
    await propose(shop, id_, "two", author="eve")
    await shop.mutate("rejectProduct", id=id_, draft=1)
    for where, numbers in (
        ({"status": {"eq": "PROPOSED"}}, [2]),
        ({"status": {"in": ["REJECTED", "PUBLISHED"]}}, [1]),
        ({"author": {"eq": "dan"}}, [1]),
        ({"at": {"gt": "2020-01-01T00:00:00Z"}}, [2, 1]),
        ({"at": {"lt": "2020-01-01T00:00:00Z"}}, []),
        ({"author": {"eq": "eve"}, "status": {"eq": "REJECTED"}}, []),
    ):
        assert pick((await drafts(shop, id=id_, where=where))["nodes"], "number") == numbers


async def test_the_drafts_of_all_types_are_one_queue(shop: Shop) -> None:
    """They are in the order of their proposal, each as its own type."""
    first, second = await shop.create(), await shop.create("Sample")
    await propose(shop, first, "queued", author="queue")
    patch = {"name": "queued"}
    await shop.mutate("proposeSample", id=second, patch=patch, author="queue")
    await propose(shop, first, "again", author="queue")
    text = """
    query ($after: String) {
      allDrafts(where: {author: {eq: "queue"}}, first: 2, after: $after) {
        nodes { __typename documentId number ... on ProductDraft { document { name } } }
        pageInfo { endCursor } totalCount
      }
    }
    """
    found = (await shop.ask(text))["allDrafts"]
    rest = (await shop.ask(text, after=found["pageInfo"]["endCursor"]))["allDrafts"]
    assert found["totalCount"] == 3
    assert pick(found["nodes"] + rest["nodes"], "__typename", "documentId") == [
        ("ProductDraft", first),
        ("SampleDraft", second),
        ("ProductDraft", first),
    ]
    assert found["nodes"][0]["document"] == {"name": "again"}


async def test_the_comments_of_a_document_have_their_subjects(shop: Shop) -> None:
    """A field leads to the version or draft."""
    id_ = await shop.create()
    await propose(shop, id_, "one")
    await shop.mutate("commentOnProduct", id=id_, version=1, text="nice")
    await shop.mutate("commentOnProduct", id=id_, draft=1, text="why?")
    found = (await shop.ask(COMMENTS, id=id_))["found"]
    assert found["totalCount"] == 2
    assert found["nodes"] == [
        {
            "text": "why?",
            "version": None,
            "draft": 1,
            "aboutVersion": None,
            "aboutDraft": {"number": 1, "status": "PROPOSED"},
        },
        {
            "text": "nice",
            "version": 1,
            "draft": None,
            "aboutVersion": {"version": 1, "operation": "INSERT"},
            "aboutDraft": None,
        },
    ]
    every = await shop.ask("{ allComments(first: 2) { nodes { text documentId } } }")
    assert every["allComments"]["nodes"] == [
        {"text": "why?", "documentId": id_},
        {"text": "nice", "documentId": id_},
    ]


async def test_a_new_document_is_proposed_discussed_and_published(shop: Shop) -> None:
    """It does not exist before; then it is version 1, with that draft and the publisher."""
    id_ = shop.fresh_id()
    made = await shop.mutate("proposeNewProduct", id=id_, document=lamp(id_), author="dan")
    assert (made["draft"]["number"], made["draft"]["basedOn"]) == (1, 0)
    assert await shop.present(id_) is None
    assert await propose(shop, id_, "Better", basedOnDraft=1) == 2
    assert pick((await drafts(shop, id=id_))["nodes"], "number") == [2, 1]
    await shop.mutate("commentOnProduct", id=id_, draft=1, text="good")
    result = await shop.mutate("publishProduct", id=id_, draft=2, author="eve")
    assert (result["version"], result["product"]["name"]) == (1, "Better")
    (version,) = await shop.history(id_)
    assert (version["operation"], version["fromDraft"], version["author"]) == ("INSERT", 2, "eve")
    assert pick((await drafts(shop, id=id_))["nodes"], "status") == ["PUBLISHED", "PUBLISHED"]


async def test_a_proposed_document_that_exists_meanwhile_is_a_result(shop: Shop) -> None:
    """Neither the proposal nor its publication overwrites anything."""
    id_ = shop.fresh_id()
    await shop.mutate("proposeNewProduct", id=id_, document=lamp(id_))
    await shop.mutate("createProduct", id=id_, document={**lamp(id_), "name": "First"})
    published = await shop.mutate("publishProduct", id=id_, draft=1)
    again = await shop.mutate("proposeNewProduct", id=id_, document=lamp(id_))
    assert [published["__typename"], again["__typename"]] == ["AlreadyExists", "AlreadyExists"]
    assert ((await shop.present(id_)) or {})["name"] == "First"


async def test_a_proposed_document_continues_the_numbers_of_a_deleted_one(shop: Shop) -> None:
    """The numbers are those of any reinserted document."""
    id_ = await shop.create()
    await shop.mutate("deleteProduct", id=id_)
    await shop.mutate("proposeNewProduct", id=id_, document=lamp(id_))
    assert (await shop.mutate("publishProduct", id=id_, draft=1))["version"] == 3
    assert pick(await shop.history(id_), "version", "operation") == [
        (1, "INSERT"),
        (2, "DELETE"),
        (3, "INSERT"),
    ]


async def test_a_rejected_draft_is_restored_as_a_whole(shop: Shop) -> None:
    """The same field may have changed since; the version has its draft."""
    id_ = await shop.create()
    await propose(shop, id_, "Passed over")
    await shop.mutate("rejectProduct", id=id_, draft=1)
    await shop.mutate("updateProduct", id=id_, patch={"name": "Other", "stock": 5})
    assert (await shop.mutate("publishProduct", id=id_, draft=1))["__typename"] == "InvalidDocument"
    conflict = await shop.mutate("restoreProduct", id=id_, draft=1, expectedVersion=1)
    assert conflict["__typename"] == "VersionConflict"
    result = await shop.mutate("restoreProduct", id=id_, draft=1, expectedVersion=2)
    assert (result["version"], result["product"]["name"]) == (3, "Passed over")
    assert result["product"]["stock"] == lamp(id_)["stock"], "whole, not merged"
    last = (await shop.history(id_))[-1]
    assert (last["fromDraft"], last["operation"]) == (1, "REPLACE")
    (draft,) = await shop.drafts(id_)
    assert (draft["status"], draft["publishedAs"]) == ("PUBLISHED", 3)
    again = await shop.mutate("restoreProduct", id=id_, draft=1)
    assert "published as version 3 already" in again["message"]


@pytest.mark.parametrize("given", [{}, {"version": 1, "draft": 1}])
async def test_restoring_requires_a_version_or_a_draft(shop: Shop, given: Row) -> None:
    """Neither and both are bad input."""
    id_ = await shop.create()
    with pytest.raises(Failed) as caught:
        await shop.mutate("restoreProduct", id=id_, **given)
    assert caught.value.code == "BAD_USER_INPUT"


async def test_undecided_drafts_are_limited_by_document_caller_and_bytes(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each limit is an error with both numbers; decided drafts do not count."""
    bounds = ProposalLimits(drafts_per_document=2, drafts_per_caller=3)
    monkeypatch.setattr(shop.gateway.services.editing.drafts, "_limits", bounds)
    first, second = await shop.create(), await shop.create()
    for id_ in (first, first, second):
        await propose(shop, id_, "x", author="fred")
    with pytest.raises(Failed, match=r"undecided drafts: 3, maximum is 2") as of_document:
        await propose(shop, first, "x", author="gina")
    with pytest.raises(Failed, match=r"your undecided drafts: 4, maximum is 3"):
        await propose(shop, second, "x", author="fred")
    assert of_document.value.code == "LIMIT_EXCEEDED"
    await shop.mutate("rejectProduct", id=first, draft=1)
    await propose(shop, first, "x", author="fred")
    few = replace(DEFAULT_LIMITS, draft_bytes_per_caller=2000)
    monkeypatch.setattr(shop.gateway.services.editing.drafts, "_limits", few)
    with pytest.raises(Failed, match=r"bytes of your undecided drafts: .* maximum is 2,000"):
        await propose(shop, second, "x" * 2000, author="hugo")


async def test_comments_are_limited_by_document_caller_and_bytes(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long text, and one comment too many, are errors with both numbers."""
    bounds = ProposalLimits(comments_per_document=3, comments_per_caller=2, text_bytes=10)
    monkeypatch.setattr(shop.gateway.services.editing.comments, "_limits", bounds)
    id_ = await shop.create()
    with pytest.raises(Failed, match=r"text: bytes: 12, maximum is 10"):
        await shop.mutate("commentOnProduct", id=id_, version=1, text="é" * 6)
    for _ in range(2):
        await shop.mutate("commentOnProduct", id=id_, version=1, text="x", author="iris")
    with pytest.raises(Failed, match=r"your comments: 3, maximum is 2"):
        await shop.mutate("commentOnProduct", id=id_, version=1, text="x", author="iris")
    await shop.mutate("commentOnProduct", id=id_, version=1, text="x", author="joe")
    with pytest.raises(Failed, match=r"comments: 4, maximum is 3"):
        await shop.mutate("commentOnProduct", id=id_, version=1, text="x", author="kim")


OWN_PAGES = read_model(
    """
    type Page @collection(name: "pages") @access(rows: "{ owner: { eq: $sub } }") {
      id: ID! owner: String title: String
    }
    """
)


async def test_row_rules_apply_to_queues_and_totals(mongo_uri: str, client: Any) -> None:
    """A draft or comment is listed for callers that may see its document."""
    ann, bob = Principal(name="ann"), Principal(name="bob")
    queue = "{ done: allDrafts { nodes { documentId } totalCount } }"
    talk = "{ done: allComments { nodes { documentId text } totalCount } }"
    async with open_shop(client, mongo_uri, "proposal_rows", model=OWN_PAGES) as shop:
        shop.database["pages"].insert_many(
            [{"_id": each, "owner": each, "title": "x"} for each in ("ann", "bob")]
        )
        await shop.recorded()
        for caller, id_ in ((ann, "ann"), (bob, "bob")):
            for text in (
                '{ done: proposePage(id: "%s", patch: {title: "y"}) { __typename } }',
                '{ done: commentOnPage(id: "%s", version: 1, text: "v") { text } }',
                '{ done: commentOnPage(id: "%s", draft: 1, text: "d") { text } }',
            ):
                await ask_as(shop, caller, f"mutation {text % id_}")
        seen = await ask_as(shop, ann, queue)
        said = await ask_as(shop, ann, talk)
    client.drop_database("proposal_rows")
    assert seen == {"nodes": [{"documentId": "ann"}], "totalCount": 1}
    assert said == {
        "nodes": [{"documentId": "ann", "text": "d"}, {"documentId": "ann", "text": "v"}],
        "totalCount": 2,
    }


async def test_a_new_document_is_proposed_and_published_under_a_row_rule(
    mongo_uri: str, client: Any
) -> None:
    """Its draft has no base, so the rule checks the proposed content only.

    This holds on pages, for comments, for drafts based on it, for publication and rejection.
    """
    ann, bob = Principal(name="ann"), Principal(name="bob")
    queue = "{ done: pageDrafts { nodes { number } totalCount } }"
    talk = "{ done: pageComments { nodes { text } totalCount } }"
    new = """
    mutation { done: proposeNewPage(id: "%s", document: {owner: "ann", title: "x"}) {
      __typename ... on PageDrafted { draft { number basedOn } } } }
    """
    follow_up = """
    mutation { done: proposePage(id: "n", basedOnDraft: 1, patch: {title: "y"}) {
      __typename ... on PageDrafted { draft { number basedOn } } } }
    """
    publish = 'mutation { done: publishPage(id: "n", draft: 2) { __typename } }'
    reject = 'mutation { done: rejectPage(id: "m", draft: 1) { __typename } }'
    comment = 'mutation { done: commentOnPage(id: "n", draft: 1, text: "t") { text } }'
    async with open_shop(client, mongo_uri, "new_proposal_rows", model=OWN_PAGES) as shop:
        proposed = [await ask_as(shop, ann, new % each) for each in ("n", "m")]
        proposed.append(await ask_as(shop, ann, follow_up))
        said = [await ask_as(shop, who, comment) for who in (ann, bob)]
        seen = [await ask_as(shop, who, queue) for who in (ann, bob)]
        heard = [await ask_as(shop, who, talk) for who in (ann, bob)]
        decided = [
            (await ask_as(shop, who, text))["__typename"]
            for text in (publish, reject)
            for who in (bob, ann)
        ]
        published = shop.database["pages"].find_one({"_id": "n"}) or {}
    client.drop_database("new_proposal_rows")
    assert [each.get("draft") for each in proposed] == [
        {"number": 1, "basedOn": 0},
        {"number": 1, "basedOn": 0},
        {"number": 2, "basedOn": 0},
    ]
    assert said == [{"text": "t"}, "BAD_USER_INPUT"]
    empty = {"nodes": [], "totalCount": 0}
    assert seen == [
        {"nodes": [{"number": 2}, {"number": 1}, {"number": 1}], "totalCount": 3},
        empty,
    ]
    assert heard == [{"nodes": [{"text": "t"}], "totalCount": 1}, empty]
    assert decided == ["DocumentNotFound", "PageWritten", "DocumentNotFound", "PageDrafted"]
    assert (published["owner"], published["title"]) == ("ann", "y")


@pytest.mark.parametrize("rule", ["", '@access(rows: "{ owner: { eq: $sub } }")'])
async def test_records_that_are_neither_drafts_nor_comments_are_left_out_of_pages(
    mongo_uri: str, client: Any, rule: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Pages have the valid records, each once.

    New drafts, comments and publications of the document succeed.
    """
    model = read_model(
        f"""type Page @collection(name: "pages") {rule}
        {{ id: ID! owner: String title: String }}"""
    )
    ann, name = Principal(name="ann"), f"odd_{uuid4().hex[:8]}"
    propose = """
    mutation { done: proposePage(id: "p", patch: {title: "%s"}) {
      ... on PageDrafted { draft { number } } ... on WriteError { message } } }
    """
    comment = 'mutation { done: commentOnPage(id: "p", version: 1, text: "%s") { id } }'
    reply = """mutation { done: commentOnPage(id: "p", replyTo: "%s", text: "r") { text } }"""
    draft = "number documentId status document { id title } diff { path }"
    page = "(first: 2) { %s pageInfo { hasNextPage } }"
    drafts = page % f"nodes {{ {draft} }}"
    numbers, texts = page % "nodes { number }", page % "nodes { id text version draft }"
    async with open_shop(client, mongo_uri, name, model=model) as shop:
        shop.database["pages"].insert_one({"_id": "p", "owner": "ann", "title": "x"})
        await shop.recorded()
        proposed, wrong, unsaid = [], drafts_that_are_none("p"), comments_that_are_none("p")
        for number in range(3):
            proposed.append((await ask_as(shop, ann, propose % number))["draft"]["number"])
            shop.database["pages.drafts"].insert_many(wrong[number::3])
            said = await ask_as(shop, ann, comment % number)
            shop.database["pages.comments"].insert_many(unsaid[number::3])
        queues = [
            await ask_as(shop, ann, text % inside)
            for inside in (drafts, numbers)
            for text in ("{ done: pageDrafts%s }", "{ done: allDrafts%s }")
            if inside is numbers or "pageDrafts" in text
        ]
        queues.append(
            (await ask_as(shop, ann, f'{{ done: page(id: "p") {{ drafts{numbers} }} }}'))["drafts"]
        )
        talks = [
            await ask_as(shop, ann, text % texts)
            for text in ("{ done: pageComments%s }", "{ done: allComments%s }")
        ]
        versions = await ask_as(
            shop, ann, f'{{ done: page(id: "p") {{ history {{ nodes {{ comments{texts} }} }} }} }}'
        )
        others = [
            await ask_as(shop, ann, reply % id_)
            for id_ in (said["id"], unsaid[0]["_id"], unsaid[2]["_id"])
        ]
        publish = f'publishPage(id: "p", draft: {proposed[2]}) {{ __typename }}'
        decided = await ask_as(shop, ann, f"mutation {{ done: {publish} }}")
    client.drop_database(name)
    assert proposed == sorted(set(proposed))
    for each in queues:
        assert [node["number"] for node in each["nodes"]] == proposed[:0:-1]
        assert each["pageInfo"]["hasNextPage"]
    assert queues[0]["nodes"][0]["document"] == {
        "id": f"p@draft-{proposed[2]}",
        "title": "2",
    }
    assert queues[0]["nodes"][0]["diff"] == [{"path": "title"}]
    for each in talks:
        assert [node["text"] for node in each["nodes"]] == ["2", "1"]
    (about,) = versions["history"]["nodes"]
    assert [node["text"] for node in about["comments"]["nodes"]] == ["0", "1"]
    assert others == [{"text": "r"}, "BAD_USER_INPUT", "BAD_USER_INPUT"]
    assert decided == {"__typename": "PageWritten"}
    assert any("neither a draft nor a comment" in each.message for each in caplog.records)


async def test_invalid_draft_numbers_do_not_stop_proposals(shop: Shop) -> None:
    """The next draft has the next free number after texts, fractions, lists and the largest
    integers.
    """
    id_ = await shop.create()
    for number in ("7", 1.0, [2], 2**31 - 1, 2**63 - 1, Decimal128("3"), float("inf")):
        shop.database["products.drafts"].insert_one(
            {"_id": ObjectId(), "doc": id_, "number": number, "bytes": Decimal128("1")}
        )
    assert [await propose(shop, id_, "x") for _ in range(2)] == [4, 5]


async def test_drafts_based_on_each_other_are_refused(shop: Shop) -> None:
    """A program may store such a cycle: the publication of one of them ends."""
    id_ = await shop.create()
    for number, based_on in ((1, 2), (2, 1), (3, 3)):
        record = stored_draft(id_, number, basedOnDraft=based_on)
        shop.database["products.drafts"].insert_one(record)
    kinds = [
        (await shop.mutate("publishProduct", id=id_, draft=number))["__typename"]
        for number in (1, 2, 3)
    ]
    assert kinds == ["DocumentNotFound"] * 3


async def test_records_that_an_index_refuses_stop_no_gateway(mongo_uri: str, client: Any) -> None:
    """Another program stored them before the index existed: everything but proposing works.

    The error of a proposal says what to do.
    """
    name = f"unindexed_{uuid4().hex[:8]}"
    drafts, comments = (client[name][f"products.{each}"] for each in ("drafts", "comments"))
    drafts.insert_many([{"doc": "SECRET"}, {"doc": "SECRET"}])
    comments.insert_one({"version": [1], "draft": [1]})
    async with open_shop(client, mongo_uri, name) as shop:
        id_ = await shop.create()
        await shop.recorded()
        assert (await shop.mutate("commentOnProduct", id=id_, version=1, text="x"))["text"] == "x"
        with pytest.raises(Failed, match=r"products\.drafts: .* remove") as caught:
            await propose(shop, id_, "x")
        assert (caught.value.code, "SECRET" in str(caught.value)) == ("UNAVAILABLE", False)
        assert (await shop.ask(DRAFTS))["found"]["nodes"] == []
        drafts.delete_one({"doc": "SECRET"})
        assert await propose(shop, id_, "x") == 1
    client.drop_database(name)
