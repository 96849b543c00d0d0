"""Comments on versions and drafts, in threads, stored in `<collection>.comments`.

Comments have no versions, and they stay when the document is deleted.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from bson import ObjectId

from revstream.model.definition import Entity
from revstream.resolvers.access.permissions import OPEN, Scope
from revstream.resolvers.access.row_filter import RowFilter
from revstream.resolvers.drafts.images import ProposalImages
from revstream.resolvers.drafts.indexes import RecordIndexes
from revstream.resolvers.drafts.limits import DEFAULT_LIMITS, ProposalLimits
from revstream.resolvers.drafts.pages import RecordSource, read_page
from revstream.resolvers.drafts.records import (
    InvalidRecord,
    RecordParser,
    document_id,
    text_or_none,
    value_of,
)
from revstream.resolvers.drafts.store import Drafts
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.mutations.expected_version import decode_content
from revstream.resolvers.mutations.idempotency import IdempotencyStore
from revstream.resolvers.mutations.result import Author
from revstream.resolvers.pagination.page import Page, PageRequest
from revstream.resolvers.pagination.projection import record_projection
from revstream.resolvers.values.json_value import json_value
from revstream.streams.archive.horizon import Horizons
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import HistoryLost
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession

__all__ = ["Comment", "Comments", "Subject"]

_INDEXES: tuple[tuple[list[tuple[str, int]], Document], ...] = (
    ([("doc", 1), ("version", 1), ("draft", 1)], {}),
    *(([(field, 1), ("_id", 1)], {}) for field in ("doc", "by", "owner")),
)

Subject = tuple[Any, str, int]
"""A commented version or draft: a document's `_id`, "version" or "draft", and its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    id: str
    document: Any
    version: int | None
    draft: int | None
    by: str | None
    at: datetime
    text: str
    reply_to: str | None

    @classmethod
    def from_record(cls, entity: Entity, record: Mapping[str, Any]) -> Comment:
        """Parse a stored record.

        Raises:
            InvalidRecord: It is not a comment.
        """
        if (record.get("version") is None) == (record.get("draft") is None):
            raise InvalidRecord("version and draft: both or neither, expected one of them")
        reply_to = value_of(record, "replyTo", ObjectId, None)
        return cls(
            id=str(record["_id"]),
            document=document_id(entity, record),
            version=value_of(record, "version", int, None),
            draft=value_of(record, "draft", int, None),
            by=text_or_none(record, "by"),
            at=value_of(record, "at", datetime),
            text=value_of(record, "text", str),
            reply_to=None if reply_to is None else str(reply_to),
        )


class Comments:
    """Comments on documents of all entities.

    Args:
        archives: by collection.

    Attributes:
        parse: a record -> the comment, None for another record.
    """

    def __init__(
        self,
        mongo: Mongo,
        archives: Mapping[str, Archive],
        progress: ArchiveProgress,
        drafts: Drafts,
        repeats: IdempotencyStore,
        images: ProposalImages,
        limits: ProposalLimits = DEFAULT_LIMITS,
    ) -> None:
        self._mongo = mongo
        self._archives = archives
        self._progress = progress
        self._drafts = drafts
        self._repeats = repeats
        self._images = images
        self._indexes = RecordIndexes(mongo, _INDEXES)
        self._limits = limits
        self.parse = RecordParser("comments", Comment.from_record)
        self._scope = OPEN

    def within(self, scope: Scope, drafts: Drafts) -> Comments:
        """Return the service limited to one caller.

        A caller can comment on visible versions and drafts only. Reading comments starts from a
        version or a draft, which is checked there.

        Args:
            drafts: limited to the same caller.
        """
        limited = copy.copy(self)
        limited._scope, limited._drafts = scope, drafts
        return limited

    async def prepare(self, entities: Iterable[Entity]) -> None:
        """Create indexes where there are comments; else they are made with the first one."""
        await self._indexes.prepare(map(_name, entities))

    async def on(
        self, entity: Entity, subjects: Sequence[Subject], request: PageRequest, *, total: bool
    ) -> list[Page[tuple[Entity, Comment]]]:
        """N subjects -> one page of the comments on each, the oldest first."""
        self._scope.read_rows(entity)
        sources = [
            RecordSource(
                entity=entity,
                collection=_name(entity),
                query={"doc": {"$eq": key}, kind: number},
                parse=self.parse,
            )
            for key, kind, number in subjects
        ]
        return await asyncio.gather(
            *(self._page([each], request, newest_first=False, total=total) for each in sources)
        )

    async def page(
        self,
        entities: Sequence[Entity],
        query: Mapping[str, Any],
        request: PageRequest,
        *,
        total: bool,
    ) -> Page[tuple[Entity, Comment]]:
        """Read one page of the comments on all these entities' documents together, the newest
        first.

        Args:
            query: over records, of `draft_query`, or of one document.
        """
        sources = [self._source(each, query) for each in entities]
        return await self._page(sources, request, newest_first=True, total=total)

    async def _page(
        self,
        sources: Sequence[RecordSource[Comment]],
        request: PageRequest,
        *,
        newest_first: bool,
        total: bool,
    ) -> Page[tuple[Entity, Comment]]:
        return await read_page(
            self._mongo, "comments", sources, request, newest_first=newest_first, total=total
        )

    def _source(self, entity: Entity, query: Mapping[str, Any]) -> RecordSource[Comment]:
        rows = self._scope.read_rows(entity)
        return RecordSource(
            entity=entity,
            collection=_name(entity),
            query=query,
            parse=self.parse,
            judge=partial(self.visible, entity) if rows.limits else None,
        )

    async def visible(self, entity: Entity, comments: Sequence[Comment]) -> list[bool]:
        """Return of n comments whether each is there for the caller: where its version or draft
        is.
        """
        rows = self._scope.read_rows(entity)
        if not rows.limits:
            return [True] * len(comments)
        versions = {
            (identity(each.document), each.version): (each.document, each.version)
            for each in comments
            if each.draft is None and each.version is not None
        }
        drafts = [(each.document, each.draft) for each in comments if each.draft is not None]
        shown = await self._shown_versions(entity, list(versions.values()), rows)
        found = await self._drafts.numbered(entity, drafts)
        shown_drafts = {
            (identity(key), number)
            for (key, number), draft in zip(drafts, found, strict=True)
            if draft is not None
        }
        return [
            (identity(each.document), each.version) in shown
            if each.draft is None
            else (identity(each.document), each.draft) in shown_drafts
            for each in comments
        ]

    async def _shown_versions(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]], rows: RowFilter
    ) -> set[tuple[Any, int]]:
        """Return those of n (id, number) that are there for the caller, by identity."""
        if not wanted:
            return set()
        found = await self._archives[entity.collection].find(
            {"$or": [{"doc": {"$eq": key}, "v": number} for key, number in wanted]},
            FindOptions(projection=record_projection(rows.widened(None))),
        )
        return {(identity(r["doc"]), r["v"]) for r in found if rows.allow_version(r)}

    async def add(
        self,
        entity: Entity,
        key: Any,
        text: str,
        author: Author,
        *,
        version: int | None = None,
        draft: int | None = None,
        reply_to: str | None = None,
    ) -> Comment:
        """Add a comment.

        Args:
            version, draft: the subject; one of them, or none for a reply, which has that of its
            parent.

        Raises:
            BadUserInput: There is no such version, draft or comment, or no text.
            HistoryLost: The version was dropped; or the comment exists and is purged.
        """
        self._scope.check_comment(entity)

        async def commenting() -> Comment:
            about = await self._subject(entity, key, version, draft, reply_to)
            if not text.strip():
                raise BadUserInput(
                    "text: empty, expected the text of the comment; write one", argument="text"
                )
            await self._limits.check_comment(self._mongo, entity, key, text, author)
            record: Document = {
                "_id": ObjectId(),
                "doc": key,
                **about,
                "by": author.by,
                "owner": author.owner,
                "at": datetime.now(UTC),
                "text": text,
            }

            await self._images.keep(_name(entity))
            # Each time, since the database may have been dropped.
            await self._indexes.create(_name(entity))

            async def work(writing: WriteSession) -> Comment:
                # As it is stored, so that a repetition is answered with the same.
                stored = decode_content(await writing.insert(_name(entity), record))
                return Comment.from_record(entity, stored)

            return (await self._repeats.once(author, work, {"comment": record["_id"]}))[0]

        async def from_outcome(outcome: Mapping[str, Any]) -> Comment:
            found = await self._mongo.find(
                _name(entity), {"_id": outcome["comment"]}, FindOptions(limit=1)
            )
            comment = self.parse(entity, found[0]) if found else None
            if comment is None:
                raise HistoryLost(
                    f"{entity.name} {json_value(key)}: the comment of this idempotency key was "
                    "created and then removed by a purge; use a new key for a new comment"
                )
            await self._check_subject(entity, key, comment.version, comment.draft)
            return comment

        return await self._repeats.run_once(author, commenting, from_outcome)

    async def _subject(
        self,
        entity: Entity,
        key: Any,
        version: int | None,
        draft: int | None,
        reply_to: str | None,
    ) -> Document:
        """Return the fields of the record that name its subject."""
        if reply_to is not None:
            answered = await self._answered(entity, key, reply_to)
            about = {"version": answered.version, "draft": answered.draft}
            for name, number in (("version", version), ("draft", draft)):
                expected = about[name]
                if number is not None and number != expected:
                    raise BadUserInput(
                        f"{name}: {number}, expected {expected or 'none'}, as for comment "
                        f"{reply_to}; remove the argument",
                        argument=name,
                    )
            return {**about, "replyTo": ObjectId(answered.id)}
        if (version is None) == (draft is None):
            given = "none" if version is None else "version and draft"
            raise BadUserInput(
                f"arguments version, draft and replyTo: {given}, expected exactly one"
            )
        await self._check_subject(entity, key, version, draft)
        return {"version": version, "draft": draft, "replyTo": None}

    async def _answered(self, entity: Entity, key: Any, reply_to: str) -> Comment:
        """Return the parent comment if the caller may see its subject.

        For others the error does not reveal that the comment exists.
        """
        problem = BadUserInput(
            f"replyTo: {reply_to!r}, expected a comment on {entity.name} {json_value(key)}; take "
            "an id from its comments",
            argument="replyTo",
        )
        found = []
        if ObjectId.is_valid(reply_to):
            query = {"_id": ObjectId(reply_to), "doc": {"$eq": key}}
            found = await self._mongo.find(_name(entity), query, FindOptions(limit=1))
        answered = self.parse(entity, found[0]) if found else None
        if answered is None:
            raise problem
        try:
            await self._check_subject(entity, key, answered.version, answered.draft)
        except BadUserInput as exc:
            raise problem from exc
        return answered

    async def _check_subject(
        self, entity: Entity, key: Any, version: int | None, draft: int | None
    ) -> None:
        what = f"{entity.name} {json_value(key)}"
        if draft is not None:
            if (await self._drafts.numbered(entity, [(key, draft)]))[0] is None:
                raise BadUserInput(
                    f"draft: {draft}, expected the number of a draft of {what}", argument="draft"
                )
            return
        if await self._is_there(entity, key, version):
            return
        # It may have been written a moment ago.
        now = await self._mongo.operation_time()
        await self._progress.wait_complete(entity.collection, resume_tokens.token_from_time(now))
        if not await self._is_there(entity, key, version):
            assert version is not None
            if not self._scope.read_rows(entity).limits:
                archive = self._archives[entity.collection]
                await Horizons(self._mongo).check_number(archive, key, version)
            raise BadUserInput(
                f"version: {version}, expected the number of a version of {what}",
                argument="version",
            )

    async def _is_there(self, entity: Entity, key: Any, version: int | None) -> bool:
        rows = self._scope.read_rows(entity)
        found = await self._archives[entity.collection].find(
            {"doc": {"$eq": key}, "v": version},
            FindOptions(projection=record_projection(rows.widened(None)), limit=1),
        )
        return bool(found) and rows.allow_version(found[0])


def _name(entity: Entity) -> str:
    return f"{entity.collection}.comments"
