"""Draft: a proposed change of one document, and its statuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.drafts.records import InvalidRecord, document_id, text_or_none, value_of
from revstream.resolvers.mutations.result import InvalidDocument
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["PROPOSED", "PUBLISHED", "REJECTED", "WITHOUT_CONTENT", "Draft", "decided"]

PROPOSED, PUBLISHED, REJECTED = "PROPOSED", "PUBLISHED", "REJECTED"
_STATUSES = frozenset({PROPOSED, PUBLISHED, REJECTED})

_FACTS = ("doc", "number", "status", "basedOn", "basedOnDraft", "by", "owner", "why", "at")
# Of the contents, only enough to check that they are documents.
WITHOUT_CONTENT = dict.fromkeys(
    (*_FACTS, "moment", "publishedAs", "decided", "base._id", "full._id"), 1
)
"""A projection of records, where neither `base` nor `full` is looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """`number`: of the document's drafts, from 1. `moment`: when it was proposed, in the stream's
    terms. `based_on`: a version, 0 where the document is new. `base`, `full`: what it is based on,
    and what it makes of it; with the `_id` alone where they were not read. `owner`: the caller that
    proposed it, None for anonymous ones; others may have the same name (`by`).
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

    @property
    def is_new(self) -> bool:
        """Return whether it proposes a new document, by itself."""
        return self.based_on == 0 and self.based_on_draft is None

    @classmethod
    def from_record(cls, entity: Entity, record: Mapping[str, Any]) -> Draft:
        """Parse a stored record.

        Raises:
            InvalidRecord: It is not a draft.
        """
        document, number = document_id(entity, record), value_of(record, "number", int)
        status = value_of(record, "status", str)
        based_on_draft = value_of(record, "basedOnDraft", int, None)
        decided = value_of(record, "decided", Mapping, None) or {}
        if number < 1:
            raise InvalidRecord(f"number: {number}, minimum is 1")
        if status not in _STATUSES:
            raise InvalidRecord(f"status: unknown, expected {' or '.join(sorted(_STATUSES))}")
        if based_on_draft is not None and based_on_draft >= number:
            raise InvalidRecord(f"basedOnDraft: {based_on_draft}, expected a draft before {number}")
        return cls(
            document=document,
            number=number,
            status=status,
            based_on=value_of(record, "basedOn", int),
            based_on_draft=based_on_draft,
            by=text_or_none(record, "by"),
            owner=record.get("owner", record.get("by")),
            why=text_or_none(record, "why"),
            at=value_of(record, "at", datetime),
            moment=value_of(record, "moment", Timestamp),
            base={**value_of(record, "base", Mapping), "_id": document},
            full={**value_of(record, "full", Mapping), "_id": document},
            published_as=value_of(record, "publishedAs", int, None),
            decided_by=text_or_none(decided, "by"),
            decided_why=text_or_none(decided, "why"),
            decided_at=value_of(decided, "at", datetime, None),
        )


def decided(draft: Draft) -> InvalidDocument:
    what = "rejected" if draft.status == REJECTED else f"published as version {draft.published_as}"
    return InvalidDocument(f"draft {draft.number} was {what} already", path="draft")
