"""Subscriptions to drafts and comments on a real MongoDB: live events, replay, and refusals."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest
from bson import Timestamp
from pymongo import MongoClient

from revstream.gql.runtime.configuration.settings import Settings
from revstream.resolvers.admin.purge import Purging
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import Unsuitable
from tests.support.editing import Failed, Row, Shop, open_shop, pick
from tests.support.eventually import eventually
from tests.support.proposals import (
    ALL_COMMENTS,
    ALL_DRAFTS,
    COMMENTS,
    DRAFTS,
    caught_up,
    comments_that_are_none,
    drafts_that_are_none,
    next_event,
    next_events,
    propose,
    stored_comment,
    token_now,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAID = ("operation", "transition", "number")
PROPOSED = {"status": {"eq": "PROPOSED"}}


def images_of(shop: Shop, collection: str) -> bool:
    """Return whether the server stores post-images of a collection."""
    (found,) = shop.database.list_collections(filter={"name": collection})
    enabled: bool = found["options"].get("changeStreamPreAndPostImages", {}).get("enabled", False)
    return enabled


async def refused(shop: Shop, text: str, **variables: Any) -> Any:
    """Return the extensions of the error that ends a subscription."""
    with pytest.raises(Failed) as caught:
        async with shop.changes(text, **variables) as events:
            while True:
                await next_event(events)
    return caught.value.args[0].extensions


async def test_proposals_and_decisions_are_sent_live(shop: Shop) -> None:
    """Each event has the draft as it is then: proposed, published or rejected."""
    id_ = await shop.create()
    async with shop.changes(DRAFTS, id=id_) as events:
        assert await caught_up(events) == []
        await propose(shop, id_, "one", author="dan")
        await propose(shop, id_, "two", author="dan")
        await shop.mutate("publishProduct", id=id_, draft=1, author="mo")
        await shop.mutate("rejectProduct", id=id_, draft=2, author="mo")
        found = await next_events(events, 4)
    assert pick(found, *SAID) == [
        ("INSERT", "ENTER", 1),
        ("INSERT", "ENTER", 2),
        ("UPDATE", "STAY", 1),
        ("UPDATE", "STAY", 2),
    ]
    drafts = [each["draft"] for each in found]
    assert pick(drafts, "status", "publishedAs", "decidedBy") == [
        ("PROPOSED", None, None),
        ("PROPOSED", None, None),
        ("PUBLISHED", 2, "mo"),
        ("REJECTED", None, "mo"),
    ]
    assert pick(drafts, "author") == ["dan"] * 4
    assert drafts[1]["document"] == {"name": "two"}
    assert {(each["type"], each["documentId"]) for each in found} == {("Product", id_)}
    assert not any(each["replayed"] for each in found)


async def test_a_decided_draft_leaves_the_queue_of_proposed_ones(shop: Shop) -> None:
    """A moderator's queue is a filter by status and by author."""
    id_ = await shop.create()
    where = {**PROPOSED, "author": {"eq": "dan"}}
    async with shop.changes(DRAFTS, id=id_, where=where) as events:
        assert await caught_up(events) == []
        await propose(shop, id_, "one", author="dan")
        await propose(shop, id_, "two", author="eve")
        await shop.mutate("rejectProduct", id=id_, draft=2)
        await shop.mutate("rejectProduct", id=id_, draft=1)
        await shop.mutate("restoreProduct", id=id_, draft=1)
        await propose(shop, id_, "three", author="dan")
        found = await next_events(events, 3)
    assert pick(found, *SAID) == [
        ("INSERT", "ENTER", 1),
        ("UPDATE", "LEAVE", 1),
        ("INSERT", "ENTER", 3),
    ]
    assert found[1]["draft"]["status"] == "REJECTED"


async def test_comments_of_callers_and_of_programs_are_sent(shop: Shop) -> None:
    """They are added by a mutation, and added, edited and deleted by another program."""
    id_ = await shop.create()
    await shop.recorded()
    stored = stored_comment(id_, "by a program")
    comments = shop.database["products.comments"]
    async with shop.changes(COMMENTS, id=id_) as events:
        assert await caught_up(events) == []
        await shop.mutate("commentOnProduct", id=id_, version=1, text="by a caller")
        comments.insert_one(stored)
        comments.update_one({"_id": stored["_id"]}, {"$set": {"text": "edited"}})
        comments.delete_one({"_id": stored["_id"]})
        found = await next_events(events, 4)
    texts = [each["comment"] and each["comment"]["text"] for each in found]
    assert texts == ["by a caller", "by a program", "edited", None]
    assert pick(found, "operation", "transition") == [
        ("INSERT", "ENTER"),
        ("INSERT", "ENTER"),
        ("UPDATE", "STAY"),
        ("DELETE", "LEAVE"),
    ]
    assert found[0]["comment"]["author"] == "ann"
    assert pick(found[1:], "commentId") == [str(stored["_id"])] * 3
    assert {each["documentId"] for each in found} == {id_}


async def test_drafts_that_programs_edit_and_remove_are_sent(shop: Shop) -> None:
    """A deleted draft has its number and its document, and no content."""
    id_ = await shop.create()
    number = await propose(shop, id_, "one")
    drafts, one = shop.database["products.drafts"], {"doc": id_, "number": number}
    async with shop.changes(DRAFTS, id=id_) as events:
        assert await caught_up(events) == []
        drafts.update_one(one, {"$set": {"full.name": "edited"}})
        drafts.delete_one(one)
        edited, removed = await next_events(events, 2)
    assert edited["draft"]["document"] == {"name": "edited"}
    assert (*pick([removed], *SAID)[0], removed["documentId"]) == ("DELETE", "LEAVE", number, id_)
    assert removed["draft"] is None


async def test_the_proposals_of_all_types_are_in_one_order(shop: Shop) -> None:
    """Each has its type; comments likewise."""
    product, sample = await shop.create(), await shop.create("Sample")
    after = await token_now(shop)
    for name in ("a", "b"):
        await propose(shop, product, name)
        await shop.mutate("proposeSample", id=sample, patch={"name": name})
    await shop.recorded()
    await shop.mutate("commentOnSample", id=sample, version=1, text="s")
    await shop.mutate("commentOnProduct", id=product, version=1, text="p")
    await shop.streamed()
    async with shop.changes(ALL_DRAFTS, after=after) as events:
        found = await caught_up(events)
    assert pick(found, "type", "documentId", "number") == [
        ("Product", product, 1),
        ("Sample", sample, 1),
        ("Product", product, 2),
        ("Sample", sample, 2),
    ]
    assert pick(found, "resumeToken") == sorted(pick(found, "resumeToken"))
    assert found[2]["draft"]["document"] == {"name": "b"}
    assert found[3]["draft"]["__typename"] == "SampleDraft"
    async with shop.changes(ALL_COMMENTS, after=after) as events:
        said = await caught_up(events)
    assert [(each["type"], each["comment"]["text"]) for each in said] == [
        ("Sample", "s"),
        ("Product", "p"),
    ]


async def story(shop: Shop) -> tuple[str, str, list[Row]]:
    """Return a document, the token before its proposals, and their live events."""
    id_ = await shop.create()
    after = await token_now(shop)
    async with shop.changes(DRAFTS, id=id_, after=after) as events:
        assert await caught_up(events) == []
        for name in ("one", "two", "three"):
            await propose(shop, id_, name)
        await shop.mutate("publishProduct", id=id_, draft=1)
        await shop.mutate("rejectProduct", id=id_, draft=2)
        shop.database["products.drafts"].delete_one({"doc": id_, "number": 3})
        return id_, after, await next_events(events, 6)


def replayed(events: list[Row], removed: int | None = None) -> list[Row]:
    """Return the same events as replayed after a draft was deleted."""
    return [
        {**each, "replayed": True, "draft": None if each["number"] == removed else each["draft"]}
        for each in events
    ]


async def test_replay_from_memory_has_exactly_the_missed_events(shop: Shop) -> None:
    """This holds after each token."""
    id_, after, live = await story(shop)
    for count, token in enumerate([after, *pick(live, "resumeToken")]):
        async with shop.changes(DRAFTS, id=id_, after=token) as events:
            assert await caught_up(events) == replayed(live[count:])


async def test_another_gateway_replays_from_the_oplog(
    mongo_uri: str, client: MongoClient[Row], shop: Shop
) -> None:
    """Its memory is empty, as after a restart. Proposals deleted since have no content."""
    id_, after, live = await story(shop)
    name = shop.database.name
    async with open_shop(client, mongo_uri, name, begun=True) as another:
        for count, token in enumerate([after, *pick(live, "resumeToken")]):
            async with another.changes(DRAFTS, id=id_, after=token) as events:
                assert await caught_up(events) == replayed(live[count:], removed=3)
        async with another.changes(DRAFTS, id=id_, after=after) as events:
            await caught_up(events)
            # And live events follow.
            number = await propose(another, id_, "later")
            (later,) = await next_events(events, 1)
            assert (later["number"], later["replayed"]) == (number, False)


async def test_long_replays_are_read_in_pages_by_turns(
    mongo_uri: str, client: MongoClient[Row], shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is more than a page, and more callers than slots."""
    monkeypatch.setattr("revstream.streams.live.oplog_replay._PAGE", 7)
    id_ = await shop.create()
    after = await token_now(shop)
    stored = [stored_comment(id_, f"{n}") for n in range(100)]
    for each in stored:
        shop.database["products.comments"].insert_one(each)
    async with open_shop(client, mongo_uri, shop.database.name, begun=True) as another:

        async def missed() -> list[str]:
            async with another.changes(COMMENTS, id=id_, after=after) as events:
                return [each["comment"]["text"] for each in await caught_up(events)]

        expected = [each["text"] for each in stored]
        assert await asyncio.gather(*(missed() for _ in range(6))) == [expected] * 6
        slots = another.gateway.services.proposals._replay._slots
        assert (slots.held, slots.waiting) == (0, 0)


async def test_a_page_of_replay_ends_by_time_with_a_token(
    mongo_uri: str, client: MongoClient[Row], shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most events match no caller; another caller's turn comes before a page is full.

    An interrupted subscription resumes from the token.
    """
    monkeypatch.setattr("revstream.streams.live.oplog_replay._PAGE_S", 0.0)
    id_ = await shop.create()
    after = await token_now(shop)
    texts = [f"{n}" for n in range(150)]
    shop.database["products.comments"].insert_many([stored_comment(id_, each) for each in texts])
    nobodys = {"author": {"eq": "nobody"}}
    async with open_shop(client, mongo_uri, shop.database.name, begun=True) as another:
        tokens_given = [after]
        async with another.changes(COMMENTS, id=id_, where=nobodys, after=after) as events:
            while (event := await next_event(events))["replayed"]:
                assert event["kind"] == "CHECKPOINT"
                tokens_given.append(event["resumeToken"])
        assert tokens_given == sorted(set(tokens_given))
        left = []
        for token in tokens_given:
            async with another.changes(COMMENTS, id=id_, after=token) as events:
                left.append([each["comment"]["text"] for each in await caught_up(events)])
        counts = [len(each) for each in left]
        assert left == [texts[len(texts) - count :] for count in counts]
        assert (counts[0], counts[-1]) == (150, 0)
        # Several pages, although one would hold all of it.
        assert len(set(counts)) > 2


async def test_replay_progresses_with_the_shortest_turns(
    mongo_uri: str, client: MongoClient[Row], shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No page is empty and at its old position."""
    monkeypatch.setattr("revstream.streams.live.oplog_replay._PAGE_S", 0.0)
    id_ = await shop.create()
    after = await token_now(shop)
    shop.database["others"].insert_many([{"n": n} for n in range(3000)])
    await propose(shop, id_, "one")
    async with (
        open_shop(client, mongo_uri, shop.database.name, begun=True) as another,
        another.changes(DRAFTS, id=id_, after=after) as events,
    ):
        assert pick(await caught_up(events), "number") == [1]


async def test_long_replays_of_one_caller_leave_slots_to_others(
    mongo_uri: str, client: MongoClient[Row], shop: Shop
) -> None:
    """While a caller uses all its slots, the replay of another one continues."""
    id_ = await shop.create()
    after = await token_now(shop)
    await propose(shop, id_, "one")
    async with open_shop(client, mongo_uri, shop.database.name, begun=True) as another:
        slots = another.gateway.services.proposals._replay._slots
        for _ in range(2):
            await slots.acquire("ann")
        async with another.changes(DRAFTS, id=id_, after=after) as waiting:
            task = asyncio.ensure_future(anext(waiting))
            await eventually(lambda: slots.waiting == 1)
            given, context = {"id": id_, "after": after}, another.context("bob")
            results: Any = await another.schema.subscribe(DRAFTS, given, context)
            async with aclosing(results) as events:
                (found,) = (await asyncio.wait_for(anext(events), 60)).data.values()
                assert (found["number"], task.done()) == (1, False)
            for _ in range(2):
                slots.release("ann")
            assert (await task)["number"] == 1


async def test_future_and_foreign_tokens_are_refused_at_once(shop: Shop) -> None:
    """Subscriptions to documents do the same."""
    own = shop.gateway.deployment
    later = await shop.gateway.mongo.operation_time()
    future = resume_tokens.encode(
        resume_tokens.token_from_time(Timestamp(later.time + 3600, 1)), own
    )
    snapshot = resume_tokens.encode(resume_tokens.snapshot_token(later), own)
    other = resume_tokens.encode(resume_tokens.token_from_time(later), "another")
    for text in (DRAFTS, COMMENTS, ALL_DRAFTS, ALL_COMMENTS):
        for token in (future, snapshot, other, "nonsense"):
            assert (await refused(shop, text, after=token))["code"] == "RESUME_TOKEN_INVALID"


async def test_a_token_of_a_document_write_is_valid_here(shop: Shop) -> None:
    """A token is a position in the change stream, for events of any kind."""
    id_ = await shop.create()
    await propose(shop, id_, "before")
    update = await shop.mutate("updateProduct", id=id_, patch={"name": "x"})
    await propose(shop, id_, "after")
    await shop.streamed()
    async with shop.changes(DRAFTS, id=id_, after=update["resumeToken"]) as events:
        (found,) = await caught_up(events)
    assert found["draft"]["document"] == {"name": "after"}


async def test_a_collection_that_is_dropped_ends_with_a_token_that_works(
    mongo_uri: str, client: MongoClient[Row]
) -> None:
    """The dropped drafts are unknown: clients must read the current ones again."""
    name = f"dropped_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name) as shop:
        id_ = await shop.create()
        await propose(shop, id_, "one")
        after = await token_now(shop)
        await shop.mutate("rejectProduct", id=id_, draft=1)
        # An event that is read after the drop has no draft.
        await shop.streamed()
        shop.database.drop_collection("products.drafts")
        async with shop.changes(DRAFTS, after=after) as events:
            assert (await next_event(events))["draft"]["status"] == "REJECTED"
        facts = await refused(shop, DRAFTS, after=after)
        assert facts["code"] == "HISTORY_LOST"
        async with shop.changes(DRAFTS, after=facts["oldestResumeToken"]) as events:
            assert await caught_up(events) == []
            await propose(shop, id_, "anew")
            assert (await next_events(events, 1))[0]["number"] == 1
    client.drop_database(name)


async def test_dropped_collections_get_post_images_again(
    mongo_uri: str, client: MongoClient[Row]
) -> None:
    """Deletions then have their draft or comment; a refusal is not permanent."""
    name = f"images_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name) as shop:
        id_ = await shop.create()
        await shop.recorded()
        for _ in range(2):
            for kind in ("drafts", "comments"):
                shop.database.drop_collection(f"products.{kind}")
            await propose(shop, id_, "one")
            await shop.mutate("commentOnProduct", id=id_, version=1, text="x")
        await shop.streamed()
        found = []
        for text, kind in ((DRAFTS, "drafts"), (COMMENTS, "comments")):
            async with shop.changes(text) as events:
                assert await caught_up(events) == []
                shop.database[f"products.{kind}"].delete_many({})
                found += await next_events(events, 1)
    client.drop_database(name)
    assert pick(found, "operation", "transition", "documentId") == [("DELETE", "LEAVE", id_)] * 2


async def test_refused_post_images_are_requested_again(
    mongo_uri: str, client: MongoClient[Row], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The privilege may be granted meanwhile."""
    name = f"refused_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name) as shop:
        id_ = await shop.create()
        with monkeypatch.context() as patch:
            refusal = AsyncMock(side_effect=Unsuitable("not authorized"))
            patch.setattr("revstream.resolvers.drafts.images.enable_collection_images", refusal)
            await propose(shop, id_, "one")
        assert not images_of(shop, "products.drafts")
        await propose(shop, id_, "two")
        assert images_of(shop, "products.drafts")
        with monkeypatch.context() as patch:
            patch.setattr(
                "revstream.resolvers.drafts.images.enable_collection_images", asked := AsyncMock()
            )
            await propose(shop, id_, "three")
        assert asked.await_count == 0, "a collection that has images is not changed each time"
    client.drop_database(name)


async def test_without_post_images_drafts_are_read_and_deletions_are_bare_leaves(
    mongo_uri: str, client: MongoClient[Row]
) -> None:
    """An event has the draft after its decision, although another decision followed."""
    name = f"bare_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, Settings(images=False)) as shop:
        id_ = await shop.create()
        await propose(shop, id_, "one")
        after = await token_now(shop)
        await shop.mutate("rejectProduct", id=id_, draft=1)
        await shop.mutate("restoreProduct", id=id_, draft=1)
        await shop.streamed()
        async with shop.changes(DRAFTS, id=id_, after=after) as events:
            found = await caught_up(events)
        drafts = [each["draft"] for each in found]
        assert pick(drafts, "status", "publishedAs") == [("REJECTED", None), ("PUBLISHED", 2)]
        # A draft does not change its document, which existed before, with any content.
        assert pick(found, *SAID) == [("UPDATE", "STAY", 1)] * 2
        async with shop.changes(DRAFTS, where=PROPOSED, after=after) as events:
            found = await caught_up(events)
            assert pick(found, *SAID) == [("UPDATE", "LEAVE", 1)] * 2
            shop.database["products.drafts"].delete_many({})
            assert pick(await next_events(events, 1), *SAID) == [("DELETE", "LEAVE", None)]
    client.drop_database(name)


async def test_an_invalid_draft_record_ends_no_subscription(shop: Shop) -> None:
    """It is left out, and later events are sent, live and in replay."""
    id_ = await shop.create()
    # With these the collections have pre-images, without which a deleted record is not known.
    await propose(shop, id_, "zero")
    await shop.mutate("commentOnProduct", id=id_, version=1, text="zero")
    await shop.recorded()
    await shop.streamed()
    after = await token_now(shop)
    drafts, comments = (shop.database[f"products.{each}"] for each in ("drafts", "comments"))
    for collection, wrong in (
        (drafts, drafts_that_are_none(id_)),
        (comments, comments_that_are_none(id_)),
    ):
        collection.insert_many(wrong)
        collection.update_many({"_id": {"$in": pick(wrong, "_id")}}, {"$set": {"x": 1}})
        collection.delete_many({"_id": {"$in": pick(wrong, "_id")}})
    await propose(shop, id_, "one")
    await shop.mutate("commentOnProduct", id=id_, version=1, text="one")
    await shop.streamed()
    for text, name in ((DRAFTS, "draft"), (COMMENTS, "comment")):
        async with shop.changes(text, after=after) as events:
            (found,) = await caught_up(events)
        assert (found["operation"], found[name] is None) == ("INSERT", False)


async def test_purged_content_is_not_replayed(
    mongo_uri: str, client: MongoClient[Row], shop: Shop
) -> None:
    """Neither memory nor oplog gives it: its events have no content."""
    id_ = await shop.create()
    after = await token_now(shop)
    await propose(shop, id_, "SECRET")
    gateway = shop.gateway
    archive = gateway.services.live._archives["products"]
    entity = gateway.model.entity("Product")
    await Purging(gateway.mongo, archive, gateway.progress, entity).purge(id_, by="x", why="y")
    await shop.streamed()
    # As a gateway does on a purge.
    gateway.services.proposals.forget()
    async with shop.changes(DRAFTS, id=id_, after=after) as events:
        found = await caught_up(events)
    assert pick(found, "operation", "draft") == [("INSERT", None), ("DELETE", None)]


async def test_a_slow_consumer_resumes_from_its_last_token(
    mongo_uri: str, client: MongoClient[Row]
) -> None:
    """Its subscription ends with a checkpoint event, and the rest is replayed."""
    name = f"slow_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, Settings(backlog_events=5)) as shop:
        id_ = await shop.create()
        comments = shop.database["products.comments"]
        async with shop.changes(COMMENTS, id=id_) as events:
            assert await caught_up(events) == []
            comments.insert_one(stored_comment(id_, "first"))
            (first,) = await next_events(events, 1)
            comments.insert_many([stored_comment(id_, f"{n}") for n in range(20)])
            hub = shop.gateway.hub
            await eventually(lambda: hub.statistics("$comments")["slow_consumers"] == 1)
            seen = [first]
            with pytest.raises(Failed) as caught:
                while True:
                    seen.append(await next_event(events))
        assert caught.value.code == "SLOW_CONSUMER"
        last = caught.value.args[0].extensions["resumeToken"]
        assert (seen[-1]["kind"], seen[-1]["resumeToken"]) == ("CHECKPOINT", last)
        async with shop.changes(COMMENTS, id=id_, after=last) as events:
            seen += await caught_up(events)
        texts = [each["comment"]["text"] for each in seen if each["kind"] == "CHANGE"]
        assert texts == ["first", *map(str, range(20))]
    client.drop_database(name)


async def test_filters_count_towards_the_limits_of_subscriptions(shop: Shop) -> None:
    """The limits are those of subscriptions to documents."""
    where = {"author": {"in": [f"a{n}" for n in range(2000)]}}
    facts = await refused(shop, DRAFTS, where=where)
    assert (facts["code"], facts["limit"]) == ("LIMIT_EXCEEDED", "max_subscription_conditions")


async def test_checkpoint_events_are_sent_while_only_other_types_change(
    mongo_uri: str, client: MongoClient[Row]
) -> None:
    """A client's token stays valid although no event matches."""
    name = f"quiet_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, Settings(quiet_s=0.5)) as shop:
        sample = await shop.create("Sample")
        async with shop.changes(DRAFTS) as events:
            first = await next_event(events)

            async def disturb() -> None:
                while True:
                    await shop.mutate("proposeSample", id=sample, patch={"name": "x"})
                    await shop.mutate("rejectSample", id=sample, draft=1)
                    await asyncio.sleep(0.1)

            disturbing = asyncio.ensure_future(disturb())
            try:
                later = await next_event(events)
            finally:
                disturbing.cancel()
        assert (first["kind"], later["kind"]) == ("CHECKPOINT", "CHECKPOINT")
        assert later["resumeToken"] > first["resumeToken"]
    client.drop_database(name)
