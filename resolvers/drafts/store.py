"""Store of drafts: proposed changes, kept in `<collection>.drafts` until they are decided.

A draft has its changes and its base: a version, another draft, or nothing for a new document.
Source: docs/decisions/0014-drafts.md.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from bson import ObjectId

from revstream.model.definition import Entity
from revstream.resolvers.access.permissions import OPEN, Scope
from revstream.resolvers.access.row_filter import RowFilter
from revstream.resolvers.drafts.draft import PROPOSED, REJECTED, WITHOUT_CONTENT, Draft, decided
from revstream.resolvers.drafts.images import ProposalImages
from revstream.resolvers.drafts.indexes import RecordIndexes
from revstream.resolvers.drafts.limits import DEFAULT_LIMITS, ProposalLimits
from revstream.resolvers.drafts.pages import RecordSource, read_page
from revstream.resolvers.drafts.records import RecordParser
from revstream.resolvers.mutations.document_input import DocumentChange
from revstream.resolvers.mutations.expected_version import (
    ExpectedVersions,
    conflict_error,
    not_found_error,
    outside_rows_error,
)
from revstream.resolvers.mutations.idempotency import IdempotencyStore
from revstream.resolvers.mutations.merge_patch import apply_merge
from revstream.resolvers.mutations.result import (
    AlreadyExists,
    Author,
    DocumentNotFound,
    InvalidDocument,
)
from revstream.resolvers.mutations.write_executor import ATTEMPTS, too_many_conflicts
from revstream.resolvers.pagination.page import Page, PageRequest
from revstream.resolvers.values.json_value import json_value
from revstream.streams.archive.horizon import Horizons
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.core.errors import DuplicateKey, Unsuitable
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession
from revstream.streams.versioning.version import HIGHEST_COUNTER

__all__ = ["Drafts", "decide", "decided"]

_INDEXES: tuple[tuple[list[tuple[str, int]], Document], ...] = (
    ([("doc", 1), ("number", 1)], {"unique": True}),
    *(([(field, 1), ("_id", 1)], {}) for field in ("doc", "status", "by", "owner")),
)

# Whatever a program stores as a number must not stop those of proposals.
_COUNTED: Mapping[str, Any] = {
    "$type": ["int", "long"],
    "$not": {"$type": "array"},
    "$lte": HIGHEST_COUNTER,
}


class Drafts:
    """Drafts of all entities.

    Args:
        archives: by collection.

    Attributes:
        parse: a record -> the draft, None for another record.
    """

    def __init__(
        self,
        mongo: Mongo,
        archives: Mapping[str, Archive],
        expected_versions: ExpectedVersions,
        repeats: IdempotencyStore,
        images: ProposalImages,
        limits: ProposalLimits = DEFAULT_LIMITS,
    ) -> None:
        self._mongo = mongo
        self._archives = archives
        self._expected_versions = expected_versions
        self._repeats = repeats
        self._images = images
        self._indexes = RecordIndexes(mongo, _INDEXES)
        self._limits = limits
        self.parse = RecordParser("drafts", Draft.from_record)
        self._scope = OPEN

    def within(self, scope: Scope, expected_versions: ExpectedVersions) -> Drafts:
        """Return the service limited to one caller.

        A draft is visible if both its base and its content are in the caller's rows.
        """
        limited = copy.copy(self)
        limited._scope, limited._expected_versions = scope, expected_versions
        return limited

    async def prepare(self, entities: Iterable[Entity]) -> None:
        """Create indexes where there are drafts; else they are made with the first one."""
        await self._indexes.prepare(map(_name, entities))

    async def page(
        self,
        entities: Sequence[Entity],
        query: Mapping[str, Any],
        request: PageRequest,
        *,
        whole: bool,
        total: bool,
    ) -> Page[tuple[Entity, Draft]]:
        """Read one page of the drafts of all these entities together, the newest first.

        Args:
            query: over records, of `draft_query`, or of one document.
            whole: whether contents are read, too.
        """
        sources = [self._source(each, query, whole) for each in entities]
        return await read_page(
            self._mongo, "drafts", sources, request, newest_first=True, total=total
        )

    def _source(self, entity: Entity, query: Mapping[str, Any], whole: bool) -> RecordSource[Draft]:
        rows = self._scope.read_rows(entity)
        return RecordSource(
            entity=entity,
            collection=_name(entity),
            query=query,
            parse=self.parse,
            projection=None if whole or rows.limits else WITHOUT_CONTENT,
            judge=partial(self.visible, entity) if rows.limits else None,
        )

    async def visible(self, entity: Entity, drafts: Sequence[Draft]) -> list[bool]:
        """Return of n drafts whether each is there for the caller."""
        rows = self._scope.read_rows(entity)
        return [_allowed(rows, each) for each in drafts]

    async def numbered(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]]
    ) -> list[Draft | None]:
        """Read drafts: n (id, number) -> n drafts in the order requested, None for a missing one.
        One read.
        """
        return await self._read(entity, self._scope.read_rows(entity), wanted)

    async def _read(
        self, entity: Entity, rows: RowFilter, wanted: Sequence[tuple[Any, int]]
    ) -> list[Draft | None]:
        query = {"$or": [{"doc": {"$eq": key}, "number": number} for key, number in wanted]}
        found = await self._mongo.find(_name(entity), query) if wanted else []
        drafts = {
            (identity(draft.document), draft.number): draft
            for record in found
            if (draft := self.parse(entity, record)) is not None and _allowed(rows, draft)
        }
        return [drafts.get((identity(key), number)) for key, number in wanted]

    async def propose(
        self,
        entity: Entity,
        key: Any,
        change: DocumentChange,
        author: Author,
        *,
        based_on: int | None = None,
        based_on_draft: int | None = None,
    ) -> Draft:
        """Store a new draft.

        Args:
            based_on, based_on_draft: one of them, or none: the present version.

        Raises:
            DocumentNotFound: No such document, or draft to be based on.
            VersionConflict: No such version to be based on.
            HistoryLost: That version was dropped.
            InvalidDocument: It does not fit the model, or is based on a rejected draft.
            Unsuitable: Records of other programs prevent a number.
            Forbidden: It would take the document out of the caller's rows.
        """
        rows = self._scope.write_rows(entity)

        async def proposing() -> Draft:
            moment = await self._mongo.operation_time()
            based, base = await self._foundation(entity, key, based_on, based_on_draft)
            full = apply_merge(change.merge, base)
            if not rows.allow({**full, "_id": key}):
                raise outside_rows_error(entity, key)
            for demand in change.demands:
                if not _has(full, demand.stored, demand.value):
                    raise InvalidDocument(demand.explain(full), path=demand.path)
            return await self._insert(
                entity,
                {
                    "doc": key,
                    "basedOn": based,
                    "basedOnDraft": based_on_draft,
                    "moment": moment,
                    "base": base,
                    "full": full,
                },
                author,
            )

        return await self._once(entity, author, proposing)

    async def propose_new(self, entity: Entity, document: Document, author: Author) -> Draft:
        """Propose a document that does not exist yet.

        Args:
            document: whole, with its `_id`.

        Raises:
            AlreadyExists: there is a document of that id.
            Forbidden: it would not be among the caller's rows.
        """
        key = document["_id"]
        rows = self._scope.write_rows(entity)

        async def proposing() -> Draft:
            moment = await self._mongo.operation_time()
            if not rows.allow(document):
                raise outside_rows_error(entity, key)
            layout = self._archives[entity.collection].layout
            # Also where the caller does not see it: ids are unique, as `create` says, too.
            if await layout.find({"_id": key}, FindOptions(projection={"_id": 1}, limit=1)):
                raise AlreadyExists(
                    f"{entity.name} {json_value(key)}: exists; propose a change of it", path="id"
                )
            record = {"doc": key, "basedOn": 0, "basedOnDraft": None, "moment": moment}
            content = {"base": {"_id": key}, "full": document}
            return await self._insert(entity, {**record, **content}, author)

        return await self._once(entity, author, proposing)

    async def reject(self, entity: Entity, key: Any, number: int, author: Author) -> Draft:
        """Reject a draft, as its author or as a caller that may publish it.

        Raises:
            DocumentNotFound: No such draft.
            InvalidDocument: It is decided already.
            Forbidden: It is another caller's, and this one may not publish it.
        """
        may_publish = self._scope.may_publish(entity)
        if not may_publish:
            self._scope.write_rows(entity)

        async def rejecting() -> Draft:
            draft = await self.one(entity, key, number)
            if not may_publish and (draft.owner is None or draft.owner != author.owner):
                self._scope.acting("publish").write_rows(entity)

            async def work(writing: WriteSession) -> None:
                values = {"status": REJECTED}
                if not await decide(writing, entity, key, number, author, values):
                    raise decided(await self.one(entity, key, number))

            await self._repeats.once(author, work, {"doc": key, "number": number})
            return await self.one(entity, key, number)

        return await self._once(entity, author, rejecting)

    async def _once(
        self, entity: Entity, author: Author, operation: Callable[[], Awaitable[Draft]]
    ) -> Draft:
        async def from_outcome(outcome: Mapping[str, Any]) -> Draft:
            return await self.one(entity, outcome["doc"], outcome["number"])

        return await self._repeats.run_once(author, operation, from_outcome)

    async def _foundation(
        self, entity: Entity, key: Any, version: int | None, draft: int | None
    ) -> tuple[int, Mapping[str, Any]]:
        """Return the base of a new draft: the number of a version, and the content."""
        last = await self._expected_versions.now(entity, key)
        exists = last is not None and last.full is not None
        if draft is not None:
            earlier = await self.one(entity, key, draft)
            if earlier.status == REJECTED:
                raise InvalidDocument(
                    f"draft {draft}: rejected, expected another; choose one", path="basedOnDraft"
                )
            if exists or (earlier.based_on == 0 and earlier.status == PROPOSED):
                return earlier.published_as or earlier.based_on, earlier.full
        if last is None or last.full is None:
            raise not_found_error(entity, key)
        if version is None or version == last.number:
            return last.number, last.full
        content = await self.content(entity, key, version)
        if content is None:
            archive = self._archives[entity.collection]
            await Horizons(self._mongo).check_number(archive, key, version)
            raise conflict_error(entity, key, version, last.number)
        return version, content

    async def _insert(self, entity: Entity, content: Document, author: Author) -> Draft:
        key = content["doc"]
        record: Document = {
            **content,
            "status": PROPOSED,
            "by": author.by,
            "owner": author.owner,
            "why": author.why,
            "at": datetime.now(UTC),
            "bytes": await self._limits.check_draft(self._mongo, entity, content, author),
        }
        await self._images.keep(_name(entity))
        # Each time, since the database may have been dropped: without a unique index two drafts
        # could get the same number.
        if not await self._indexes.create(_name(entity)):
            raise Unsuitable(
                f"{_name(entity)}: no indexes, because of records of another program; remove these "
                "(see the log), since otherwise two drafts could get the same number"
            )
        number = 0
        for _ in range(ATTEMPTS):
            newest = await self._mongo.find(
                _name(entity),
                {"doc": {"$eq": key}, "number": _COUNTED},
                FindOptions(sort=[("number", -1)], limit=1, projection={"number": 1}),
            )
            # Above the number that was tried: a record that is no draft may have it.
            number = max(newest[0]["number"] if newest else 0, number) + 1
            numbered = {"_id": ObjectId(), **record, "number": number}

            async def work(writing: WriteSession, numbered: Document = numbered) -> None:
                await writing.insert(_name(entity), numbered)

            try:
                await self._repeats.once(author, work, {"doc": key, "number": number})
            except DuplicateKey:
                continue  # another draft has taken the number
            return await self.one(entity, key, number)
        raise too_many_conflicts(entity, key)

    async def one(self, entity: Entity, key: Any, number: int) -> Draft:
        """Read one draft.

        Raises:
            DocumentNotFound: There is none.
        """
        (found,) = await self._read(entity, self._scope.rows(entity), [(key, number)])
        if found is None:
            raise DocumentNotFound(f"draft {number} of {entity.name} {json_value(key)}: not found")
        return found

    async def content(self, entity: Entity, key: Any, number: int) -> Document | None:
        archive = self._archives[entity.collection]
        found = await archive.find({"doc": {"$eq": key}, "v": number}, FindOptions(limit=1))
        if not found or not self._scope.rows(entity).allow_version(found[0]):
            return None
        content: Document | None = found[0]["full"]
        return content


def _allowed(rows: RowFilter, draft: Draft) -> bool:
    # A new document is based on nothing, which no rule is to judge.
    return rows.allow(draft.full) and (draft.is_new or rows.allow(draft.base))


def _name(entity: Entity) -> str:
    return f"{entity.collection}.drafts"


async def decide(
    writing: WriteSession,
    entity: Entity,
    key: Any,
    number: int,
    author: Author,
    values: Document,
    *,
    status: str = PROPOSED,
) -> bool:
    """Decide about a draft of a status; return False where another decision came before."""
    decided = {"by": author.by, "why": author.why, "at": datetime.now(UTC)}
    found = await writing.change(
        _name(entity),
        {"doc": {"$eq": key}, "number": number, "status": status},
        {"$set": {**values, "decided": decided}},
    )
    return found is not None


def _has(document: Mapping[str, Any], stored: Sequence[str], wanted: str | None) -> bool:
    value: Any = document
    for name in stored:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value is not None and wanted in (None, value)
