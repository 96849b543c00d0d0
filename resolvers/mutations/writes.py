"""Writes to one document: each one atomic operation, counted, attributed, and compared with the
version that the client expects.

Guarantees: what is overwritten with an expected version is that version's content and nothing
newer, whoever has written in between, counting or not. Without it the write is atomic all the same.
A number is the archive's: where it is not known at once, `made.number` waits for the recorder.
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
from revstream.resolvers.mutations.document_input import WritePrecondition
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
from revstream.resolvers.mutations.written_version import WrittenVersions
from revstream.streams.archive.store import Archive
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.transactions import WriteSession, has_names_once
from revstream.streams.recording.versions.delete_attribution import DeleteAttributions
from revstream.streams.versioning.version import CHANGE_FIELD, LastVersion

__all__ = ["BeforeInsert", "DocumentWrites", "ExtraWrite", "skip_preparation"]

ExtraWrite = Callable[[WriteSession, int], Awaitable[None]]
BeforeInsert = Callable[[str], Awaitable[None]]


async def skip_preparation(collection: str) -> None:
    """Leave the first insert to create a collection as it comes."""


class DocumentWrites:
    """Of all entities.

    Args:
        archives: by collection.

    Attributes:
        before_insert: sees to it that a collection is there as the model asks for, before the first
            document is inserted.
        commits: makes each write.
        made: what writes have made.
    """

    def __init__(
        self,
        mongo: Mongo,
        model: Model,
        archives: Mapping[str, Archive],
        progress: ArchiveProgress,
        own_writes: OwnWrites,
        standing: ExpectedVersions,
        repeats: IdempotencyStore,
        before_insert: BeforeInsert = skip_preparation,
    ) -> None:
        self.before_insert = before_insert
        self.commits = WriteExecutor(model, archives, own_writes, standing, repeats)
        self.made = WrittenVersions(mongo, archives, progress)
        self._repeats = repeats
        self._scope = OPEN

    def within(self, scope: Scope, standing: ExpectedVersions) -> DocumentWrites:
        """The same for one caller: a document outside of his rows is not found, and none is taken
        out of them.

        Args:
            standing: within the same.
        """
        limited = copy.copy(self)
        limited._scope = scope
        limited.commits = self.commits.within(scope, standing)
        limited.made = self.made.within(scope)
        return limited

    async def create(
        self, entity: Entity, key: Any, document: Document, author: Author, *, fresh: bool
    ) -> Written:
        """Args:
        fresh: the `_id` was made up, so that no document ever had it.

        Raises:
            AlreadyExists: that `_id`, or a value of a unique field.
            InvalidDocument.
            Forbidden: it would not be among the caller's rows.
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
        """Write a document that is not there; `whole` is all of it but its `_id`. Raises as
        `create`.

        Args:
            beside: what else to write in the same transaction; `number` must be known then.
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
        """Change a document that is there.

        Args:
            beside: what else to write in the same transaction, given the number of the version;
                for writes that are compared.

        Raises:
            DocumentNotFound, VersionConflict, AlreadyExists, InvalidDocument.
            Forbidden: it would take the document out of the caller's rows.
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
            writing: WriteSession, standing: LastVersion | None, number: int | None
        ) -> RawBSONDocument:
            # A counter that was copied goes on from where it is: it never goes back.
            counted = None if standing is not None and standing.offset else number
            found = await layout.alter(
                writing,
                key,
                alteration.pipeline(entity, change, counted),
                expected=standing,
                demands=[*(each.query for each in demands), *_limits(rows)],
            )
            if found is None:
                raise NoMatchingDocument
            if rows.limits and not rows.allow({**decode_content(found), "_id": key}):
                # Undone: it is in a transaction.
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
                    raise InvalidDocument(demand.problem, path=demand.path)

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
        """Raises:
        DocumentNotFound, VersionConflict.
        """
        rows = self._scope.write_rows(entity)
        change = attribution(author, entity, key)
        layout = self.commits.layout(entity)
        # One operation where there is nothing to tell; who and why need a second one.
        attributed = layout.removes and (
            entity.fence is not None
            or any(each is not None for each in (author.by, author.why, author.repeat))
        )

        async def attempt(
            writing: WriteSession, standing: LastVersion | None, _number: int | None
        ) -> RawBSONDocument | None:
            fence = await _fence_of(writing, entity, key)
            if not await layout.remove(
                writing, key, change, expected=standing, demands=_limits(rows)
            ):
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
        """The first result, if this mutation was made before."""

        async def from_outcome(outcome: Mapping[str, Any]) -> Written:
            return await self.made.before(entity, outcome)

        return await self._repeats.first(author, operation, from_outcome)


async def _fence_of(writing: WriteSession, entity: Entity, key: Any) -> Any:
    """The fencing token that a document has, as a transaction sees it."""
    if entity.fence is None:
        return None
    found = await writing.find(entity.collection, {"_id": key}, limit=1)
    return found[0].get(entity.fence.stored) if found else None


_NAMES_ONCE = WritePrecondition(
    path="",
    problem="the stored document has a field twice: expected each once; store it anew without that",
    query={"$expr": has_names_once("$$ROOT")},
)
"""See `has_names_once`."""


def _limits(rows: RowFilter) -> Sequence[Mapping[str, Any]]:
    return [rows.query] if rows.limits else []
