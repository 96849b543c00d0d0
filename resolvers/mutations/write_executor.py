"""Execution of single writes: retries, comparison with the expected version, error translation.

Source: docs/decisions/0012-writes.md.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from bson.raw_bson import RawBSONDocument

from revstream.model.definition import Entity, Model
from revstream.resolvers.access.permissions import OPEN, Scope
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.mutations.expected_version import ExpectedVersions, not_found_error
from revstream.resolvers.mutations.idempotency import IdempotencyStore
from revstream.resolvers.mutations.result import AlreadyExists, Author, InvalidDocument, Written
from revstream.resolvers.values.field_diff import changed_fields
from revstream.resolvers.values.json_value import json_value
from revstream.streams.archive.store import Archive
from revstream.streams.core.errors import DatabaseError, DuplicateKey, Unavailable
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.layouts.core.stored_version import ConcurrentWrite, VersionTooLarge
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.driver.error_translation import OF_INDEX, TOO_LARGE
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession
from revstream.streams.versioning.version import LastVersion

__all__ = [
    "ATTEMPTS",
    "Attempt",
    "NoMatchingDocument",
    "WriteExecutor",
    "already_exists_error",
    "problem_of_document",
    "too_many_conflicts",
]

Attempt = Callable[
    [WriteSession, LastVersion | None, int | None], Awaitable[RawBSONDocument | None]
]

# Maximum number of attempts: concurrent writers may change the document between read and write.
ATTEMPTS = 20
# Layouts that compare let only one of n concurrent writers succeed at a time.
_MOST_OVERTAKEN = 500
_STAND_BACK_S = 0.002
# BSONObjectTooLarge, and the errors of updates whose result would be too large.
_TOO_LARGE = frozenset({TOO_LARGE, 17419, 17420})
_VALIDATOR = 121


def _added(entity: Entity) -> str:
    """Return the names of the fields that revstream adds to a document."""
    return ", ".join(["_change", *([entity.version] if entity.version else [])])


class NoMatchingDocument(Exception):
    """No document matches the write's conditions; aborts the transaction."""


class WriteExecutor:
    """Execution of writes for all entities.

    Args:
        archives: by collection.
    """

    def __init__(
        self,
        model: Model,
        archives: Mapping[str, Archive],
        own_writes: OwnWrites,
        expected_versions: ExpectedVersions,
        repeats: IdempotencyStore,
    ) -> None:
        self._model = model
        self._archives = archives
        self._own_writes = own_writes
        self._expected_versions = expected_versions
        self._repeats = repeats
        self._scope = OPEN

    def within(self, scope: Scope, expected_versions: ExpectedVersions) -> WriteExecutor:
        """Return a copy for one caller; `expected_versions` must be limited to the same caller."""
        limited = copy.copy(self)
        limited._scope, limited._expected_versions = scope, expected_versions
        return limited

    async def commit(
        self,
        entity: Entity,
        key: Any,
        change: Document,
        author: Author,
        work: Callable[[WriteSession], Awaitable[RawBSONDocument | None]],
        number: int | None,
        *,
        transaction: bool = False,
    ) -> Written:
        """Make one write of one document; refusals by the server become `WriteRefused` errors."""
        outcome = {"doc": key, "change": change["id"]}
        try:
            document, at = await self._repeats.once(author, work, outcome, transaction=transaction)
        except DuplicateKey as exc:
            raise self.exists(entity, exc) from exc
        except DatabaseError as exc:
            problem = problem_of_document(entity, exc)
            if problem is None:
                raise
            raise InvalidDocument(f"{entity.name} {json_value(key)} {problem}", path="") from exc
        except VersionTooLarge as exc:
            raise InvalidDocument(f"{entity.name} {json_value(key)} {exc}", path="") from exc
        self._own_writes.note(entity.collection, key, at)
        written = Written(key=key, at=at, change=change["id"], document=document, number=number)
        self._expected_versions.note(entity, written)
        return written

    def exists(self, entity: Entity, exc: DuplicateKey) -> AlreadyExists:
        """Return the error for a value that a unique index refuses."""
        if exc.fields == ("_id",):
            return already_exists_error(entity)
        fields = [self.layout(entity).document_path(each) for each in exc.fields]
        paths = changed_fields(entity, self._model, fields) or [", ".join(fields)]
        problem = (
            f"{' and '.join(paths)}: in use by another {entity.name}, expected a unique value; "
            "choose another"
        )
        return AlreadyExists(problem, path=paths[0])

    async def compared(
        self,
        entity: Entity,
        key: Any,
        expected: int | None,
        change: Document,
        author: Author,
        attempt: Attempt,
        explain: Callable[[], Awaitable[None]] | None = None,
        *,
        transaction: bool = False,
    ) -> Written:
        """Attempt a write on the current document, or on exactly the expected version."""
        last: LastVersion | None = None
        number: int | None = None

        async def work(writing: WriteSession) -> RawBSONDocument | None:
            return await attempt(writing, last, number)

        async def commit() -> Written:
            return await self.commit(
                entity, key, change, author, work, number, transaction=transaction
            )

        for count in range(ATTEMPTS):
            if expected is not None:
                last = await self._expected_versions.at(entity, key, expected, look=count > 0)
                number = last.number + 1
            try:
                return await self.not_overtaken(entity, key, commit)
            except NoMatchingDocument:
                rows = self._scope.write_rows(entity)
                if not await self.there(entity, rows.limited({"_id": key})):
                    raise not_found_error(entity, key) from None
                # Preconditions apply to the expected version: first check that it is the current
                # one.
                if explain is not None and (expected is None or count > 0):
                    await explain()
        raise too_many_conflicts(entity, key)

    async def not_overtaken(
        self, entity: Entity, key: Any, write: Callable[[], Awaitable[Written]]
    ) -> Written:
        """Write, and retry while concurrent writers are faster."""
        for count in range(_MOST_OVERTAKEN):
            try:
                return await write()
            except ConcurrentWrite:
                # Random delay, so that concurrent writers do not retry at the same time.
                await asyncio.sleep(random.uniform(0, _STAND_BACK_S * min(count + 1, ATTEMPTS)))
        raise too_many_conflicts(entity, key, _MOST_OVERTAKEN)

    def layout(self, entity: Entity) -> Layout:
        return self._archives[entity.collection].layout

    async def there(self, entity: Entity, query: Mapping[str, Any]) -> bool:
        return bool(
            await self.layout(entity).find(query, FindOptions(projection={"_id": 1}, limit=1))
        )


def problem_of_document(entity: Entity, exc: DatabaseError) -> str | None:
    """Return the reason why MongoDB refuses a document; None for other errors.

    MongoDB's own message is not used: it may quote fields that the caller may not read.
    """
    if exc.number in _TOO_LARGE:
        return "would be larger than 16 MB, the maximum of MongoDB"
    if exc.number == _VALIDATOR:
        return (
            f"would be refused by the validator of the collection {entity.collection!r}, "
            f"which must also allow the fields of revstream: {_added(entity)} "
            "(docs/reference/footprint.md)"
        )
    refused = OF_INDEX.get(exc.number or 0)
    return None if refused is None else f"has a value that an index does not support, {refused}"


def already_exists_error(entity: Entity) -> AlreadyExists:
    """Return the error for an id that is in use."""
    return AlreadyExists(
        f"id: in use by another {entity.name}, expected a new one; choose another", path="id"
    )


def too_many_conflicts(entity: Entity, key: Any, attempts: int = ATTEMPTS) -> Unavailable:
    """Return the error for a document that other writers change too often."""
    return Unavailable(
        f"{entity.name} {json_value(key)}: changed by others during each of {attempts} attempts "
        "to write it, which is the maximum; nothing was written; try again"
    )
