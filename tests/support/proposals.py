"""Subscriptions to drafts and comments of a shop in the test's own process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from streams import tokens
from tests.support.editing import Row, Shop

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
PATIENCE_S = 60.0


async def caught_up(events: Events) -> list[Row]:
    """Return the events up to the CHECKPOINT behind all that was missed."""
    missed = []
    while (event := await next_event(events))["kind"] != "CHECKPOINT" or event["replayed"]:
        if event["kind"] != "CHECKPOINT":
            missed.append(event)
    return missed


async def following(events: Events, count: int) -> list[Row]:
    """Return the next events, without checkpoints."""
    return await until(events, lambda found: len(found) == count)


async def until(events: Events, enough: Callable[[list[Row]], bool]) -> list[Row]:
    """Return events, without checkpoints, until there are enough."""
    found: list[Row] = []
    while not enough(found):
        event = await next_event(events)
        if event["kind"] != "CHECKPOINT":
            found.append(event)
    return found


async def next_event(events: Events) -> Row:
    return await asyncio.wait_for(anext(events), PATIENCE_S)


async def followed(shop: Shop) -> None:
    """Return once the gateway's stream has come to now."""
    now = tokens.moment(await shop.gateway.mongo.operation_time())
    await asyncio.wait_for(shop.gateway.hub.reached(now), PATIENCE_S)


async def token_now(shop: Shop) -> str:
    token: str = (await shop.ask("{ resumeToken }"))["resumeToken"]
    return token


async def propose(shop: Shop, id_: str, name: str, **given: Any) -> int:
    """Return the number of a new draft."""
    result = await shop.mutate("proposeProduct", id=id_, patch={"name": name}, **given)
    number: int = result["draft"]["number"]
    return number
