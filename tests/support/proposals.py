"""Subscriptions to drafts and comments of a shop in the test's process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime
from typing import Any

from bson import ObjectId, Timestamp

from tests.support.editing import PATIENCE_S, Row, Shop

DRAFTS = """
subscription ($id: ID, $where: DraftWhere, $after: ResumeToken) {
  productDraftChanges(documentId: $id, where: $where, after: $after) {
    kind operation transition type documentId number replayed resumeToken
    draft { number status author publishedAs decidedBy document { name } }
  }
}
"""
ALL_DRAFTS = """
subscription ($where: DraftWhere, $after: ResumeToken) {
  allDraftChanges(where: $where, after: $after) {
    kind operation transition type documentId number replayed resumeToken
    draft { __typename number status ... on ProductDraft { document { name } } }
  }
}
"""
COMMENTS = """
subscription ($id: ID, $where: CommentWhere, $after: ResumeToken) {
  productCommentChanges(documentId: $id, where: $where, after: $after) {
    kind operation transition type documentId commentId replayed resumeToken
    comment { id text version draft author replyTo }
  }
}
"""
ALL_COMMENTS = """
subscription ($where: CommentWhere, $after: ResumeToken) {
  allCommentChanges(where: $where, after: $after) {
    kind operation transition type documentId commentId replayed resumeToken comment { text }
  }
}
"""
Events = AsyncGenerator[Row, None]


def stored_draft(doc: Any, number: Any, **more: Any) -> Row:
    """Return the record of a product's draft as another program stores it."""
    facts = {"status": "PROPOSED", "basedOn": 1, "basedOnDraft": None, "by": "program"}
    content = {"base": {"_id": doc}, "full": {"_id": doc}, "why": None}
    when = {"moment": Timestamp(1, 1), "at": datetime.now(UTC)}
    return {"_id": ObjectId(), "doc": doc, "number": number, **facts, **content, **when, **more}


def stored_comment(doc: Any, text: Any, **more: Any) -> Row:
    """Return the record of a comment on version 1, as another program stores it."""
    about = {"doc": doc, "version": 1, "draft": None, "replyTo": None}
    said = {"by": "program", "at": datetime.now(UTC), "text": text}
    return {"_id": ObjectId(), **about, **said, **more}


def drafts_that_are_none(doc: Any) -> list[Row]:
    """Return invalid draft records of a document, each with another fault."""
    number = itertools.count(100)
    wrong: list[Row] = [
        {"_id": "text"},
        {"doc": {"$gt": 1}, "_id": 7},
        *({"number": each} for each in ("7", 7.5, True, [3], 0, 2**31)),
        *({"status": each} for each in ("OPEN", None, 5)),
        *({"basedOn": each} for each in (None, "1", [1], 2**40)),
        *({"basedOnDraft": each} for each in ("1", [1], 1000)),
        *({"base": each} for each in ([], None, 5)),
        *({"full": each} for each in ([], None, "x")),
        *({"at": each} for each in (None, "now")),
        *({"moment": each} for each in (None, 5)),
        *({"publishedAs": each} for each in ("1", 2**40)),
        *({"decided": each} for each in ("x", {"at": 5})),
    ]
    bare = [{"_id": ObjectId(), "doc": doc}, {"_id": ObjectId(), "doc": doc, "number": 7}]
    return bare + [stored_draft(doc, next(number)) | each for each in wrong]


def comments_that_are_none(doc: Any) -> list[Row]:
    """Return invalid comment records of a document, each with another fault."""
    wrong: list[Row] = [
        {"_id": "text"},
        *({"version": each} for each in ("1", [1], {}, 2**40)),
        *({"version": None, "draft": each} for each in ("1", [1], {}, 1.5)),
        *({"text": each} for each in (None, 5, ["SECRET"])),
        *({"at": each} for each in (None, "now")),
        *({"replyTo": each} for each in ("x", 5)),
    ]
    return [{"_id": ObjectId(), "doc": doc}, *(stored_comment(doc, "no") | each for each in wrong)]


async def caught_up(events: Events) -> list[Row]:
    """Return the events up to the CHECKPOINT event at the end of the replay."""
    missed = []
    while (event := await next_event(events))["kind"] != "CHECKPOINT" or event["replayed"]:
        if event["kind"] != "CHECKPOINT":
            missed.append(event)
    return missed


async def next_events(events: Events, count: int) -> list[Row]:
    """Return the next events, without checkpoints."""
    return await until(events, lambda found: len(found) == count)


async def until(events: Events, enough: Callable[[list[Row]], bool]) -> list[Row]:
    """Return events, without checkpoints, until `enough` is true."""
    found: list[Row] = []
    while not enough(found):
        event = await next_event(events)
        if event["kind"] != "CHECKPOINT":
            found.append(event)
    return found


async def next_event(events: Events) -> Row:
    return await asyncio.wait_for(anext(events), PATIENCE_S)


async def token_now(shop: Shop) -> str:
    token: str = (await shop.ask("{ resumeToken }"))["resumeToken"]
    return token


async def propose(shop: Shop, id_: str, name: str, **given: Any) -> int:
    """Propose a draft and return its number."""
    result = await shop.mutate("proposeProduct", id=id_, patch={"name": name}, **given)
    number: int = result["draft"]["number"]
    return number
