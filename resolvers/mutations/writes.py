"""Writes of one document: each is atomic, counted, attributed, and compared with the expected
version.

Guarantees: a write with an expected version overwrites exactly that version's content, even if
other writers do not increment the version field. Without an expected version the write is atomic
too. Version numbers are those of the archive: if one is not known at once, `made.number` waits for
the recorder.
Source: docs/decisions/0012-writes.md.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from bson.raw_bson import RawBSONDocument

from revstream.model.definition import Entity, Model
from revstream.resolvers.access.permissions import OPEN, Scope
from revstream.resolvers.access.row_filter import RowFilter
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.mutations.expected_version import (
    ExpectedVersions,
    decode_content,
    outside_rows_error,
)
from revstream.resolvers.mutations.idempotency import IdempotencyStore
from revstream.resolvers.mutations.result import Author, InvalidDocument, Written
from revstream.resolvers.mutations.update_pipeline import DocumentUpdate, attribution
from revstream.resolvers.mutations.write_executor import (
    NoMatchingDocument,
    WriteExecutor,
    already_exists_error,
)
from revstream.resolvers.mutations.write_precondition import WritePrecondition
from revstream.resolvers.mutations.written_version import WrittenVersions
from revstream.streams.archive.store import Archive
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession, has_names_once
from revstream.streams.recording.versions.delete_attribution import DeleteAttributions
from revstream.streams.versioning.version import CHANGE_FIELD, LastVersion

__all__ = ["BeforeInsert", "DocumentWrites", "ExtraWrite", "skip_preparation"]

ExtraWrite = Callable[[WriteSession, int], Awaitable[None]]
BeforeInsert = Callable[[str], Awaitable[None]]


async def skip_preparation(collection: str) -> None:
    """Do nothing before the first insert into a collection."""


class DocumentWrites:
    """Writes of documents of all entities.

    Args:
        archives: by collection.

    Attributes:
        before_insert: prepares a collection as the model requires, before the first insert.
        commits: executes each write.
        made: reads the versions that writes have created.
    """

    def __init__(
        self,
        mongo: Mongo,
        model: Model,
        archives: Mapping[str, Archive],
        progress: ArchiveProgress,
        own_writes: OwnWrites,
        expected_versions: ExpectedVersions,
        repeats: IdempotencyStore,
        before_insert: BeforeInsert = skip_preparation,
    ) -> None:
        self.before_insert = before_insert
        self.commits = WriteExecutor(model, archives, own_writes, expected_versions, repeats)
        self.made = WrittenVersions(mongo, archives, progress)
        self._repeats = repeats
        self._scope = OPEN

    def within(self, scope: Scope, expected_versions: ExpectedVersions) -> DocumentWrites:
        """Return a copy for one caller: documents outside its rows do not exist, and none may leave
        them.

        Args:
            expected_versions: limited to the same caller.
        """
        limited = copy.copy(self)
        limited._scope = scope
        limited.commits = self.commits.within(scope, expected_versions)
        limited.made = self.made.within(scope)
        return limited

    async def create(
        self, entity: Entity, key: Any, document: Document, author: Author, *, fresh: bool
    ) -> Written:
        """Create a document.

        Args:
            fresh: True if the `_id` was generated, so that no document ever had it.

        Raises:
            AlreadyExists: the `_id`, or a value of a unique field, is in use.
            InvalidDocument: MongoDB refuses the document.
            Forbidden: the document would be outside the caller's rows.
        """
        change = attribution(author, entity, key)
        whole = {**document, CHANGE_FIELD: change}
        if entity.version is not None:
            whole[entity.version] = 1

        async def creation() -> Written:
            return await self.insert(entity, key, whole, change, author, 1 if fresh else None)

        return await self.once(entity, author, creation)

    async def insert(
        self,
        entity: Entity,
        key: Any,
        whole: Document,
        change: Document,
        author: Author,
        number: int | None,
        *,
        beside: ExtraWrite | None = None,
    ) -> Written:
        """Insert a document. Raises as `create`.

        Args:
            whole: the document without its `_id`.
            beside: further writes in the same transaction; requires `number`.
        """
        if not self._scope.write_rows(entity).allow({**whole, "_id": key}):
            raise outside_rows_error(entity, key)
        await self.before_insert(entity.collection)

        async def insert(writing: WriteSession) -> RawBSONDocument:
            made = await self.commits.layout(entity).create(writing, key, whole)
            if made is None:
                raise already_exists_error(entity)
            if beside is not None:
                assert number is not None
                await beside(writing, number)
            return made

        async def commit() -> Written:
            return await self.commits.commit(
                entity, key, change, author, insert, number, transaction=beside is not None
            )

        return await self.commits.not_overtaken(entity, key, commit)

    async def alter(
        self,
        entity: Entity,
        key: Any,
        alteration: DocumentUpdate,
        expected: int | None,
        author: Author,
        *,
        beside: ExtraWrite | None = None,
    ) -> Written:
        """Change an existing document.

        Args:
            beside: further writes in the same transaction, with the number of the version; requires
                `expected`.

        Raises:
            DocumentNotFound: no such document.
            VersionConflict: the document is at another version.
            AlreadyExists: another document has a value of a unique field.
            InvalidDocument: a precondition does not hold, or MongoDB refuses the document.
            Forbidden: the document would leave the caller's rows.
        """
        rows = self._scope.write_rows(entity)
        change = attribution(
            author,
            entity,
            key,
            restoredFrom=alteration.restored_from,
            draft=alteration.draft,
            op=alteration.operation,
        )

        layout = self.commits.layout(entity)
        demands = [*alteration.demands, _NAMES_ONCE]

        async def attempt(
            writing: WriteSession, last: LastVersion | None, number: int | None
        ) -> RawBSONDocument:
            # A copied counter continues from its stored value: it never decreases.
            counted = None if last is not None and last.offset else number
            found = await layout.alter(
                writing,
                key,
                alteration.pipeline(entity, change, counted),
                expected=last,
                demands=[*(each.query for each in demands), *_limits(rows)],
            )
            if found is None:
                raise NoMatchingDocument
            if rows.limits and not rows.allow({**decode_content(found), "_id": key}):
                # The transaction is aborted.
                raise outside_rows_error(entity, key)
            if beside is not None:
                assert number is not None
                await beside(writing, number)
            return found

        async def explain() -> None:
            for demand in demands:
                if not await self.commits.there(
                    entity, rows.limited({"$and": [{"_id": key}, demand.query]})
                ):
                    named = FindOptions(projection={".".join(demand.stored) or "_id": 1})
                    there = await layout.find(rows.limited({"_id": key}), named)
                    problem = demand.explain(there[0] if there else {})
                    raise InvalidDocument(problem, path=demand.path)

        async def altering() -> Written:
            return await self.commits.compared(
                entity,
                key,
                expected,
                change,
                author,
                attempt,
                explain,
                transaction=beside is not None or rows.limits,
            )

        return await self.once(entity, author, altering)

    async def delete(
        self, entity: Entity, key: Any, expected: int | None, author: Author
    ) -> Written:
        """Delete a document.

        Raises:
            DocumentNotFound: no such document.
            VersionConflict: the document is at another version.
        """
        rows = self._scope.write_rows(entity)
        change = attribution(author, entity, key)
        layout = self.commits.layout(entity)
        # A second write stores the attribution; without one a single operation suffices.
        attributed = layout.removes and (
            entity.fence is not None
            or any(
                each is not None
                for each in (author.by, author.why, author.traceparent, author.repeat)
            )
        )

        async def attempt(
            writing: WriteSession, last: LastVersion | None, _number: int | None
        ) -> RawBSONDocument | None:
            fence = await _fence_of(writing, entity, key)
            if not await layout.remove(writing, key, change, expected=last, demands=_limits(rows)):
                raise NoMatchingDocument
            if attributed:
                await DeleteAttributions.add(writing, entity.collection, key, change, fence=fence)
            return None

        async def deletion() -> Written:
            return await self.commits.compared(
                entity, key, expected, change, author, attempt, transaction=attributed
            )

        return await self.once(entity, author, deletion)

    async def once(
        self, entity: Entity, author: Author, operation: Callable[[], Awaitable[Written]]
    ) -> Written:
        """Execute a mutation, or return the result of its first execution."""

        async def from_outcome(outcome: Mapping[str, Any]) -> Written:
            return await self.made.before(entity, outcome)

        return await self._repeats.run_once(author, operation, from_outcome)


async def _fence_of(writing: WriteSession, entity: Entity, key: Any) -> Any:
    """Return the fence value of a document, as the transaction sees it."""
    if entity.fence is None:
        return None
    found = await writing.find(entity.collection, {"_id": key}, limit=1)
    return found[0].get(entity.fence.stored) if found else None


_NAMES_ONCE = WritePrecondition(
    path="",
    problem="the stored document: a field occurs twice, expected each once; replace the document",
    query={"$expr": has_names_once("$$ROOT")},
)
"""Precondition that no field name occurs twice; see `has_names_once`."""


def _limits(rows: RowFilter) -> Sequence[Mapping[str, Any]]:
    return [rows.query] if rows.limits else []
