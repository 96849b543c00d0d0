"""Writes to one document: each one atomic operation, counted, attributed, and compared with the
version that the client expects.

Guarantees: what is overwritten with an expected version is that version's content and nothing
newer, whoever has written in between, counting or not. Without it the write is atomic all the same.
A number is the archive's: where it is not known at once, `number` waits for the recorder.
Source: docs/decisions/0012-writes.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from model.entities import Entity, Model
from resolvers.alterations import Alteration, attribution
from resolvers.changes import changed_fields
from resolvers.outcomes import (
    AlreadyExists,
    Author,
    DocumentNotFound,
    InvalidDocument,
    Written,
)
from resolvers.own_writes import OwnWrites
from resolvers.repeats import Repeats
from resolvers.standing import Standing, exactly, not_found
from resolvers.values import json_value, whole_number
from streams import tokens
from streams.archive import Archive
from streams.deletions import Deletions
from streams.documents import DECODED, RAW, Document
from streams.errors import ArchiveBehind, DatabaseError, DuplicateKey, Unavailable
from streams.mongo import Mongo
from streams.progress import Progress
from streams.refusals import TOO_LARGE
from streams.versions import CHANGE_FIELD
from streams.writing import Writing

__all__ = ["ATTEMPTS", "Beside", "Writes", "restless"]

Attempt = Callable[[Writing, Mapping[str, Any], int | None], Awaitable[RawBSONDocument | None]]
Beside = Callable[[Writing, int], Awaitable[None]]

# Others may keep writing between the look at a document and the write that compares with it.
ATTEMPTS = 20
# BSONObjectTooLarge, and what an update is told whose result would be.
_TOO_LARGE = frozenset({TOO_LARGE, 17419, 17420})
_VALIDATOR = 121


class _Missed(Exception):
    """No document is there, or it is not as it was asked for: the transaction is undone."""


class Writes:
    """Of all entities.

    Args:
        archives: by collection.
    """

    def __init__(
        self,
        mongo: Mongo,
        model: Model,
        archives: Mapping[str, Archive],
        progress: Progress,
        own_writes: OwnWrites,
        standing: Standing,
        repeats: Repeats,
    ) -> None:
        self._mongo = mongo
        self._model = model
        self._archives = archives
        self._progress = progress
        self._own_writes = own_writes
        self._repeats = repeats
        self._standing = standing

    async def create(
        self, entity: Entity, key: Any, document: Document, author: Author, *, fresh: bool
    ) -> Written:
        """Args:
        fresh: the `_id` was made up, so that no document ever had it.

        Raises:
            AlreadyExists: that `_id`, or a value of a unique field.
            InvalidDocument.
        """
        change = attribution(author)
        count: Document = {} if entity.version is None else {entity.version: 1}
        whole = {"_id": key, **document, **count, CHANGE_FIELD: change}

        async def insert(writing: Writing) -> RawBSONDocument:
            await writing.insert(entity.collection, whole)
            return RawBSONDocument(bson.encode(whole, codec_options=DECODED), RAW)

        async def creation() -> Written:
            return await self.commit(entity, key, change, author, insert, 1 if fresh else None)

        return await self.once(entity, author, creation)

    async def alter(
        self,
        entity: Entity,
        key: Any,
        alteration: Alteration,
        expected: int | None,
        author: Author,
        *,
        beside: Beside | None = None,
    ) -> Written:
        """Change a document that is there.

        Args:
            beside: what else to write in the same transaction, given the number of the version;
                for writes that are compared.

        Raises:
            DocumentNotFound, VersionConflict, AlreadyExists, InvalidDocument.
        """
        change = attribution(
            author,
            restoredFrom=alteration.restored_from,
            draft=alteration.draft,
            op=alteration.operation,
        )

        async def attempt(
            writing: Writing, query: Mapping[str, Any], number: int | None
        ) -> RawBSONDocument:
            demanded = [each.query for each in alteration.demands]
            found = await writing.change(
                entity.collection,
                {"$and": [query, *demanded]} if demanded else query,
                alteration.pipeline(entity, change, number),
            )
            if found is None:
                raise _Missed
            if beside is not None:
                assert number is not None
                await beside(writing, number)
            return found

        async def explain() -> None:
            for demand in alteration.demands:
                if not await self._there(entity, {"$and": [{"_id": key}, demand.query]}):
                    raise InvalidDocument(demand.problem, path=demand.path)

        async def altering() -> Written:
            return await self._compared(
                entity,
                key,
                expected,
                change,
                author,
                attempt,
                explain,
                transaction=beside is not None,
            )

        return await self.once(entity, author, altering)

    async def delete(
        self, entity: Entity, key: Any, expected: int | None, author: Author
    ) -> Written:
        """Raises:
        DocumentNotFound, VersionConflict.
        """
        change = attribution(author)
        # One operation where there is nothing to tell; who and why need a second one.
        attributed = any(each is not None for each in (author.by, author.why, author.repeat))

        async def attempt(
            writing: Writing, query: Mapping[str, Any], _number: int | None
        ) -> RawBSONDocument | None:
            if await writing.remove(entity.collection, query) is None:
                raise _Missed
            if attributed:
                await Deletions.add(writing, entity.collection, key, change)
            return None

        async def deletion() -> Written:
            return await self._compared(
                entity, key, expected, change, author, attempt, transaction=attributed
            )

        return await self.once(entity, author, deletion)

    async def number(self, entity: Entity, written: Written) -> int:
        """The number of the version that a write made; waits for the recorder where it must.

        Where the recorder does not come to it in time, what the document itself says, as in reads
        of the present.

        Raises:
            ArchiveBehind: not within the bound, and the document does not say.
        """
        if written.number is not None:
            return written.number
        try:
            await self._progress.wait(entity.collection, tokens.moment(written.at))
        except ArchiveBehind:
            carried = _carried(entity, written.document)
            if carried is None:
                raise
            return carried
        found = await self._archives[entity.collection].newest(
            [{"key": written.key, "at": written.at}], limit=1, projection={"v": 1}
        )
        return int(found[0]["v"])

    async def once(
        self, entity: Entity, author: Author, operation: Callable[[], Awaitable[Written]]
    ) -> Written:
        """The first result, if this mutation was made before."""

        async def again(outcome: Mapping[str, Any]) -> Written:
            return await self._first(entity, outcome)

        return await self._repeats.first(author, operation, again)

    async def commit(
        self,
        entity: Entity,
        key: Any,
        change: Document,
        author: Author,
        work: Callable[[Writing], Awaitable[RawBSONDocument | None]],
        number: int | None,
        *,
        transaction: bool = False,
    ) -> Written:
        """Make one write of one document; refusals of the server become outcomes."""
        outcome = {"doc": key, "change": change["id"]}
        try:
            document, at = await self._repeats.once(author, work, outcome, transaction=transaction)
        except DuplicateKey as exc:
            raise self.exists(entity, exc) from exc
        except DatabaseError as exc:
            if exc.number in _TOO_LARGE:
                problem = "would exceed the 16 MB of a document"
            elif exc.number == _VALIDATOR:
                problem = f"would not pass the validator of the collection {entity.collection!r}"
            else:
                raise
            raise InvalidDocument(f"{entity.name} {json_value(key)} {problem}", path="") from exc
        self._own_writes.note(entity.collection, key, at)
        written = Written(key=key, at=at, change=change["id"], document=document, number=number)
        self._standing.note(entity, written)
        return written

    def exists(self, entity: Entity, exc: DuplicateKey) -> AlreadyExists:
        """What a unique index has refused."""
        if exc.fields == ("_id",):
            return AlreadyExists(f"a {entity.name} with this id is there already", path="id")
        paths = changed_fields(entity, self._model, exc.fields) or [", ".join(exc.fields)]
        named = " and ".join(paths)
        return AlreadyExists(f"another {entity.name} has this {named} already", path=paths[0])

    async def _compared(
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
        """Attempt it on the document, or on exactly the version expected."""
        query: Mapping[str, Any] = {"_id": key}
        number = None if expected is None else expected + 1

        async def work(writing: Writing) -> RawBSONDocument | None:
            return await attempt(writing, query, number)

        for count in range(ATTEMPTS):
            if expected is not None:
                standing = await self._standing.at(entity, key, expected, look=count > 0)
                query = exactly(key, standing)
            try:
                return await self.commit(
                    entity, key, change, author, work, number, transaction=transaction
                )
            except _Missed:
                if not await self._there(entity, {"_id": key}):
                    raise not_found(entity, key) from None
                # What is asked of the document is asked of the version expected: first see whether
                # that is what is there.
                if explain is not None and (expected is None or count > 0):
                    await explain()
        raise restless(entity, key)

    async def _there(self, entity: Entity, query: Mapping[str, Any]) -> bool:
        found = await self._mongo.find(entity.collection, query, projection={"_id": 1}, limit=1)
        return bool(found)

    async def _first(self, entity: Entity, outcome: Mapping[str, Any]) -> Written:
        """What a write that was made before has left, from the archive."""
        key, change = outcome["doc"], outcome["change"]
        now = await self._mongo.operation_time()
        await self._progress.wait(entity.collection, tokens.moment(now))
        found = await self._mongo.find(
            self._archives[entity.collection].name,
            {"doc": {"$eq": key}, "change.id": change},
            sort=[("v", -1)],
            limit=1,
            raw=True,
        )
        if not found:
            raise DocumentNotFound(
                f"{entity.name} {json_value(key)}: this mutation was made before, "
                "and its version is not in the archive any more"
            )
        record = found[0]
        return Written(
            key=key,
            at=record["at"],
            change=change,
            document=record.get("full"),
            number=int(record["v"]),
        )


def restless(entity: Entity, key: Any) -> Unavailable:
    return Unavailable(
        f"{entity.name} {json_value(key)} was changed {ATTEMPTS} times while this write was "
        "compared with it; nothing was written, try again"
    )


def _carried(entity: Entity, document: RawBSONDocument | None) -> int | None:
    if document is None or entity.version is None:
        return None
    return whole_number(document.get(entity.version))
