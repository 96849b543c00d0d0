"""Comments: threads on versions and drafts, which create no version and stay when the document is
deleted.
"""

from __future__ import annotations

import pytest

from revstream.resolvers.admin.purge import Purging
from revstream.streams.archive.store import Archive
from tests.support.editing import Failed, Row, Shop, pick

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_comment_on_a_version_is_shown_with_it(shop: Shop) -> None:
    """No other version has the comment, and no version is created."""
    id_ = await shop.create()
    await shop.mutate("updateProduct", id=id_, patch={"name": "x"})
    made = await shop.mutate("commentOnProduct", author="dan", id=id_, version=1, text="why?")
    assert (made["version"], made["draft"], made["author"]) == (1, None, "dan")
    assert pick(await shop.history(id_), "version", "comments") == [
        (1, [{"text": "why?"}]),
        (2, []),
    ]


async def test_a_comment_on_a_draft_is_shown_with_it(shop: Shop) -> None:
    """Version 1 and draft 1 are distinct subjects."""
    id_ = await shop.create()
    await shop.mutate("proposeProduct", id=id_, patch={"name": "x"})
    await shop.mutate("commentOnProduct", id=id_, draft=1, text="hm")
    (draft,) = await shop.drafts(id_)
    assert draft["comments"] == [{"text": "hm", "author": "ann"}]
    assert pick(await shop.history(id_), "comments") == [[]]


async def test_a_reply_belongs_to_its_comment(shop: Shop) -> None:
    """A thread is in the order of writing."""
    id_ = await shop.create()
    first = await shop.mutate("commentOnProduct", id=id_, version=1, text="why?")
    second = await shop.mutate("commentOnProduct", id=id_, replyTo=first["id"], text="because")
    assert (second["replyTo"], second["version"]) == (first["id"], 1)
    third = await shop.mutate("commentOnProduct", id=id_, replyTo=second["id"], text="ah")
    assert third["replyTo"] == second["id"]
    assert pick(await shop.history(id_), "comments") == [
        [{"text": "why?"}, {"text": "because"}, {"text": "ah"}]
    ]


async def test_a_deleted_document_accepts_comments(shop: Shop) -> None:
    """Its versions do, too, the deletion included; earlier comments stay."""
    id_ = await shop.create()
    await shop.mutate("commentOnProduct", id=id_, version=1, text="before")
    await shop.mutate("deleteProduct", id=id_)
    await shop.mutate("commentOnProduct", id=id_, version=1, text="after")
    await shop.mutate("commentOnProduct", id=id_, version=2, text="a pity")
    assert pick(await shop.history(id_), "operation", "comments") == [
        ("INSERT", [{"text": "before"}, {"text": "after"}]),
        ("DELETE", [{"text": "a pity"}]),
    ]


async def test_an_unrecorded_version_accepts_comments(
    shop: Shop,
) -> None:
    """The mutation waits for the recorder."""
    id_ = await shop.create()
    shop.database["products"].update_one({"_id": id_}, {"$set": {"stock": 1}})
    made = await shop.mutate("commentOnProduct", id=id_, version=2, text="fast")
    assert made["version"] == 2


@pytest.mark.parametrize(
    "given",
    [
        {"text": "about nothing"},
        {"text": "about both", "version": 1, "draft": 1},
        {"text": "about none", "version": 7},
        {"text": "about none", "draft": 7},
        {"text": "to nobody", "replyTo": "0" * 24},
        {"text": "to nobody", "replyTo": "nonsense"},
        {"text": " \n", "version": 1},
    ],
)
async def test_a_comment_without_subject_or_text_is_refused(shop: Shop, given: Row) -> None:
    """The code is BAD_USER_INPUT."""
    id_ = await shop.create()
    await shop.mutate("proposeProduct", id=id_, patch={"name": "x"})
    with pytest.raises(Failed) as caught:
        await shop.mutate("commentOnProduct", id=id_, **given)
    assert caught.value.code == "BAD_USER_INPUT"


async def test_a_reply_to_a_comment_elsewhere_is_refused(shop: Shop) -> None:
    """The comment is of another document, or of another version."""
    id_, other = await shop.create(), await shop.create()
    await shop.mutate("updateProduct", id=id_, patch={"name": "x"})
    first = await shop.mutate("commentOnProduct", id=id_, version=1, text="why?")
    for wrong in ({"id": other}, {"id": id_, "version": 2}):
        with pytest.raises(Failed) as caught:
            await shop.mutate("commentOnProduct", replyTo=first["id"], text="x", **wrong)
        assert caught.value.code == "BAD_USER_INPUT"


async def test_a_comment_with_a_repeated_idempotency_key_is_created_once(
    shop: Shop,
) -> None:
    """The second mutation returns the same comment."""
    id_ = await shop.create()
    given = {"id": id_, "version": 1, "text": "why?", "key": f"comment-{id_}"}
    first = await shop.mutate("commentOnProduct", **given)
    assert await shop.mutate("commentOnProduct", **given) == first
    assert pick(await shop.history(id_), "comments") == [[{"text": "why?"}]]


async def test_a_comment_sent_again_after_a_purge_is_lost_history(shop: Shop) -> None:
    """The purged comment is neither an internal error nor created again."""
    id_ = await shop.create()
    given = {"id": id_, "version": 1, "text": "why?", "key": f"comment-{id_}"}
    await shop.mutate("commentOnProduct", **given)
    gateway = shop.gateway
    archive, entity = Archive(gateway.mongo, "products"), gateway.model.entity("Product")
    await Purging(gateway.mongo, archive, gateway.progress, entity).purge(id_, by="x", why="y")
    with pytest.raises(Failed) as caught:
        await shop.mutate("commentOnProduct", **given)
    assert caught.value.code == "HISTORY_LOST"
    assert "removed by a purge" in str(caught.value)
    assert shop.database["products.comments"].count_documents({"doc": id_}) == 0
