"""Bounds of what callers may store as drafts and comments.

Counted before each insert, not within its transaction: requests that run at the same time may pass
a bound together, by at most as many records as may run at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import bson

from revstream.model.definition import Entity
from revstream.resolvers.errors import LimitExceeded
from revstream.resolvers.mutations.result import Author
from revstream.resolvers.values.json_value import json_value
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["DEFAULT_LIMITS", "ProposalLimits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalLimits:
    """Limits of the stored drafts and comments, for each type.

    Args:
        drafts_per_document: undecided drafts of one document.
        drafts_per_caller: the same of one caller; all anonymous callers are one.
        draft_bytes_per_caller: BSON bytes of those drafts, base and content together.
        comments_per_document: comments on one document, its versions and its drafts.
        comments_per_caller: comments of one caller.
        text_bytes: UTF-8 bytes of a comment.
    """

    drafts_per_document: int = 100
    drafts_per_caller: int = 1000
    draft_bytes_per_caller: int = 64 * 1024 * 1024
    comments_per_document: int = 10_000
    comments_per_caller: int = 100_000
    text_bytes: int = 10_000

    async def check_draft(
        self, mongo: Mongo, entity: Entity, draft: Document, author: Author
    ) -> int:
        """Return the BSON bytes of a draft that may be stored.

        Raises:
            LimitExceeded: the document or the caller has too many undecided drafts, or too large
                ones.
        """
        name = f"{entity.collection}.drafts"
        size = len(bson.encode({"base": draft["base"], "full": draft["full"]}))
        undecided = {"status": "PROPOSED"}
        of_document = await _sums(mongo, name, {**undecided, "doc": {"$eq": draft["doc"]}})
        mend = "publish or reject some first"
        _check(
            f"{entity.name} {json_value(draft['doc'])}: undecided drafts",
            of_document["n"] + 1,
            self.drafts_per_document,
            mend,
        )
        of_caller = await _sums(mongo, name, {**undecided, "owner": author.owner})
        _check(
            f"{entity.name}: your undecided drafts",
            of_caller["n"] + 1,
            self.drafts_per_caller,
            mend,
        )
        _check(
            f"{entity.name}: bytes of your undecided drafts",
            of_caller["bytes"] + size,
            self.draft_bytes_per_caller,
            mend,
        )
        return size

    async def check_comment(
        self, mongo: Mongo, entity: Entity, key: Any, text: str, author: Author
    ) -> None:
        """Check the limits of a new comment.

        Raises:
            LimitExceeded: The text is too long, or the document or the caller has too many
            comments.
        """
        _check("text: bytes", len(text.encode()), self.text_bytes, "shorten it")
        name = f"{entity.collection}.comments"
        for whose, query, most in (
            (
                f"{entity.name} {json_value(key)}: comments",
                {"doc": {"$eq": key}},
                self.comments_per_document,
            ),
            (f"{entity.name}: your comments", {"owner": author.owner}, self.comments_per_caller),
        ):
            _check(whose, await mongo.count(name, query) + 1, most, "no more can be added")


DEFAULT_LIMITS = ProposalLimits()


async def _sums(mongo: Mongo, name: str, query: Mapping[str, Any]) -> Mapping[str, int]:
    # A program may store anything else there, as a Decimal128, of which no number is made here.
    counted = {"$in": [{"$type": "$bytes"}, ["int", "long"]]}
    sizes = {"$cond": [counted, "$bytes", 0]}
    sums = {"_id": None, "n": {"$sum": 1}, "bytes": {"$sum": sizes}}
    found = await mongo.aggregate(name, [{"$match": query}, {"$group": sums}])
    return found[0] if found else {"n": 0, "bytes": 0}


def _check(what: str, count: int, most: int, mend: str) -> None:
    if count > most:
        raise LimitExceeded(f"{what}: {count:,}, maximum is {most:,}; {mend}")
