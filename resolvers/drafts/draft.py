"""One draft, and the statuses that it may have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import Timestamp

from streams.documents import Document

__all__ = ["PROPOSED", "PUBLISHED", "REJECTED", "Draft"]

PROPOSED, PUBLISHED, REJECTED = "PROPOSED", "PUBLISHED", "REJECTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """`number`: of the document's drafts, from 1. `moment`: when it was proposed, in the stream's
    terms. `based_on`: a version, 0 where the document is new. `base`, `full`: what it is based on,
    and what it makes of it; empty where they were not read. `owner`: the caller that proposed it,
    None for anonymous ones; others may have the same name (`by`).
    `decided_…`: the caller that published or rejected it, why and when.
    """

    document: Any
    number: int
    status: str
    based_on: int
    based_on_draft: int | None
    by: str | None
    owner: str | None
    why: str | None
    at: datetime
    moment: Timestamp
    base: Document
    full: Document
    published_as: int | None
    decided_by: str | None
    decided_why: str | None
    decided_at: datetime | None

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Draft:
        decided = record.get("decided") or {}
        return cls(
            document=record["doc"],
            number=record["number"],
            status=record["status"],
            based_on=record["basedOn"],
            based_on_draft=record["basedOnDraft"],
            by=record["by"],
            owner=record.get("owner", record["by"]),
            why=record["why"],
            at=record["at"],
            moment=record["moment"],
            base=record.get("base", {}),
            full=record.get("full", {}),
            published_as=record.get("publishedAs"),
            decided_by=decided.get("by"),
            decided_why=decided.get("why"),
            decided_at=decided.get("at"),
        )
