"""Common base of the layouts that store versions themselves.

A document's state is its last version, and a write is compared by that version's number. A write
reads the last version, lets the server compute the next one from it, and stores that under the next
number; the second of two concurrent writes raises `ConcurrentWrite`.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import bson
from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import ChangeEvent, identity
from revstream.streams.core.log_throttle import LogThrottle
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.layouts.core.sort_key import sort_key_expressions
from revstream.streams.layouts.core.stored_version import (
    ABOVE_ALL,
    LayoutFieldNames,
    LogicalWrite,
    StoredVersion,
    encode_element,
)
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED, RAW, Document
from revstream.streams.mongo.find_options import NO_OPTIONS, FindOptions
from revstream.streams.mongo.transactions import Pipeline, WriteSession
from revstream.streams.raw_bson.diff import is_same
from revstream.streams.raw_bson.fields import document_from_elements, iterate_elements
from revstream.streams.versioning.version import CHANGE_FIELD, LastVersion, without_reserved

__all__ = ["SelfVersionedLayout", "Stages"]

Stages = list[Document]


class SelfVersionedLayout(Layout):
    """Layout whose collection stores versions itself."""

    def __init__(self, mongo: Mongo, collection: str, names: LayoutFieldNames) -> None:
        super().__init__(mongo, collection)
        self.names = names
        self._prepared = False
        self._lost = LogThrottle(
            logging.getLogger(__name__), "version not found in its layout: skipped"
        )

    async def prepare(self, *, create: bool = True) -> bool:
        where = {self.collection, *self.beside}
        if not create and await self.mongo.existing(where) != where:
            return False
        await self.create_indexes()
        self._prepared = True
        return True

    async def create_indexes(self) -> None:
        """Create the layout's indexes, and a missing collection with them."""

    # what an adapter says of itself

    @abstractmethod
    def current_stages(
        self,
        query: Mapping[str, Any],
        options: FindOptions = NO_OPTIONS,
    ) -> Stages:
        """Return stages over the collection that yield the matching current documents.

        Args:
            options: only `sort` and `limit` are part of the stages.
        """

    @abstractmethod
    def interpret_event(self, event: ChangeEvent) -> LogicalWrite | None:
        """Return the document write that a change event means; None if it changes no document."""

    @abstractmethod
    async def last(self, key: Any) -> StoredVersion | None:
        """Return the last version of a document, deletions included."""

    @abstractmethod
    async def before(self, wanted: Sequence[tuple[Any, int]]) -> list[StoredVersion | None]:
        """Return for each (`_id`, number) the last version below that number, None where there is
        none.
        """

    @abstractmethod
    async def read(
        self, after: tuple[Any] | None, *, size: int, at: Timestamp
    ) -> tuple[list[StoredVersion], bool]:
        """Return the versions of documents after an `_id`, and whether they are the last.

        They are in the order of `_id` and number: about `size` of them, and all of each document.
        """

    @abstractmethod
    async def write(
        self, writing: WriteSession, last: StoredVersion | None, made: StoredVersion
    ) -> None:
        """Store a version after the last one, if that still is the last.

        Raises:
            ConcurrentWrite: It no longer is.
            VersionTooLarge: The version does not fit.
        """

    # the present

    async def find(
        self,
        query: Mapping[str, Any],
        options: FindOptions = NO_OPTIONS,
    ) -> list[Any]:
        shown = dict(options.projection or {})
        stages = self.current_stages(query, options)
        # A projection that is no plain field asks for the server's sort key.
        placing = [name for name, each in shown.items() if isinstance(each, Mapping)]
        if placing:
            stages.append({"$set": dict.fromkeys(placing, sort_key_expressions(options.sort))})
        if shown:
            stages.append({"$project": {**shown, **dict.fromkeys(placing, 1)}})
        return await self.mongo.aggregate(
            self.collection, stages, at=options.at, snapshot=self.snapshot, raw=options.raw
        )

    async def count(self, query: Mapping[str, Any], *, at: Timestamp | None = None) -> int:
        stages = [*self.current_stages(query), {"$count": "n"}]
        found = await self.mongo.aggregate(self.collection, stages, at=at, snapshot=self.snapshot)
        return int(found[0]["n"]) if found else 0

    async def aggregate(
        self,
        query: Mapping[str, Any],
        stages: Sequence[Mapping[str, Any]],
        *,
        at: Timestamp | None = None,
    ) -> list[Document]:
        pipeline = [*self.current_stages(query), *stages]
        return await self.mongo.aggregate(
            self.collection, pipeline, at=at, snapshot=self.snapshot, in_memory=True
        )

    def pages(
        self, query: Mapping[str, Any], *, size: int, at: Timestamp
    ) -> AsyncGenerator[list[Document]]:
        stages = self.current_stages(query, FindOptions(sort=[("_id", 1)]))
        return self.mongo.aggregate_pages(self.collection, stages, size=size, at=at)

    def lookup_stages(self, field: str) -> tuple[Document, list[Document]]:
        # Stages that do not depend on the key run once for all keys: the server caches their
        # result.
        matching: Document = {"$match": {"$expr": {"$in": [f"${field}", "$$keys"]}}}
        keys = {"$cond": [{"$isArray": "$key"}, "$key", ["$key"]]}
        stages = self.current_stages({})
        return {"from": self.collection, "let": {"keys": keys}}, [*stages, matching]

    async def scan_current(
        self, *, size: int, at: Timestamp
    ) -> AsyncGenerator[tuple[list[RawBSONDocument], bool]]:
        after: tuple[Any] | None = None
        end = False
        while not end:
            versions, end = await self.read(after, size=size, at=at)
            lasts = {identity(each.key): each for each in versions}
            found = [each.content for each in lasts.values() if each.content is not None]
            if found or end:
                yield found, end
            after = None if end else (versions[-1].key,)

    # the stream

    async def translate(
        self, events: Sequence[ChangeEvent], *, before: bool = False
    ) -> list[ChangeEvent]:
        meant = [self.interpret_event(each) if each.is_write else None for each in events]
        missing = [
            (each.key, each.number)
            for each in meant
            if each is not None and each.version is None and each.number is not None
        ]
        found = await self.versions(missing) if missing else {}
        asking = [each for each in meant if before and each is not None and each.asks_before]
        wanted = [(e.key, ABOVE_ALL if e.number is None else e.number) for e in asking]
        earlier = iter(await self.before(wanted) if wanted else [])
        made: list[ChangeEvent] = []
        for event, each in zip(events, meant, strict=True):
            if not event.is_write:
                made.append(event)
            if each is None:
                continue
            known = next(earlier) if before and each.asks_before else each.before
            version = each.version or found.get((identity(each.key), each.number or 0))
            if version is None:
                self._lost.note(collection=self.collection, key=str(each.key), number=each.number)
                continue
            write = _event_from_version(
                event, version, known, known_before=before, existed=each.existed
            )
            if write is not None:
                made.append(write)
        return made

    # writing

    async def create(
        self, writing: WriteSession, key: Any, content: Mapping[str, Any]
    ) -> RawBSONDocument | None:
        last = await self.last(key)
        if last is not None and last.content is not None:
            return None
        whole = RawBSONDocument(bson.encode({"_id": key, **content}, codec_options=DECODED), RAW)
        return await self._write_content(writing, key, last, whole)

    async def alter(
        self,
        writing: WriteSession,
        key: Any,
        pipeline: Pipeline,
        *,
        expected: LastVersion | None = None,
        demands: Sequence[Mapping[str, Any]] = (),
    ) -> RawBSONDocument | None:
        last = await self.last(key)
        if last is None or last.content is None or not _matches_expected(last.content, expected):
            return None
        made = await self._apply(last.content, demands, pipeline)
        return await self._write_content(writing, key, last, made[0]) if made else None

    async def remove(
        self,
        writing: WriteSession,
        key: Any,
        change: Document,
        *,
        expected: LastVersion | None = None,
        demands: Sequence[Mapping[str, Any]] = (),
    ) -> bool:
        last = await self.last(key)
        if last is None or last.content is None or not _matches_expected(last.content, expected):
            return False
        if demands and not await self._apply(last.content, demands, ()):
            return False
        made = StoredVersion(key=key, number=(last.number or 0) + 1, content=None, change=change)
        await self._write(writing, last, made)
        return True

    async def _apply(
        self, content: RawBSONDocument, demands: Sequence[Mapping[str, Any]], pipeline: Pipeline
    ) -> list[RawBSONDocument]:
        """Return the document that the server computes with a pipeline; empty if a demand is not
        met.
        """
        stages: list[Mapping[str, Any]] = [{"$documents": {"$literal": [content]}}]
        stages += [{"$match": each} for each in demands]
        return await self.mongo.aggregate(None, [*stages, *pipeline], raw=True)

    async def _write_content(
        self, writing: WriteSession, key: Any, last: StoredVersion | None, content: RawBSONDocument
    ) -> RawBSONDocument:
        """Store a content as the version after the last one."""
        number = 1 if last is None else (last.number or 0) + 1
        fields = [encode_element("_id", key), encode_element(self.names.number, number)]
        own = {b"_id", self.names.number.encode()}
        if self.names.at is not None:
            fields.append(encode_element(self.names.at, datetime.now(UTC)))
            own.add(self.names.at.encode())
        fields += [each for name, each in iterate_elements(bytes(content.raw)) if name not in own]
        whole = RawBSONDocument(document_from_elements(fields), RAW)
        await self._write(writing, last, StoredVersion(key=key, number=number, content=whole))
        return whole

    async def _write(
        self, writing: WriteSession, last: StoredVersion | None, made: StoredVersion
    ) -> None:
        # Without the unique index nothing is compared. If that index is on a collection of previous
        # versions, the first version is not in it.
        if not self._prepared and not (last is None and self.beside):
            await self.prepare()
        await self.write(writing, last, made)


def _event_from_version(
    event: ChangeEvent,
    version: StoredVersion,
    earlier: StoredVersion | None,
    *,
    known_before: bool,
    existed: bool | None,
) -> ChangeEvent | None:
    """Return the write of a document that an event means; None for a deletion of nothing."""
    if existed is None:
        existed = earlier is not None and earlier.content is not None
    if version.content is None:
        operation = "delete"
        if known_before and not existed:
            return None
    elif known_before:
        operation = "update" if existed else "insert"
    else:
        # A caller that knows the previous versions corrects this.
        operation = "insert" if version.number is not None and version.number <= 1 else "update"
    return replace(
        event,
        operation=operation,
        key=version.key,
        after=version.content,
        before=earlier.content if earlier is not None else None,
        update=None,
        kept=version.number,
        deletion=version.change if version.content is None else None,
    )


def _matches_expected(content: RawBSONDocument, expected: LastVersion | None) -> bool:
    """Return whether a document has the content of the expected version."""
    if expected is None:
        return True
    if expected.full is None or not is_same(without_reserved(content), expected.full):
        return False
    # The author of the last change distinguishes two states that are otherwise equal.
    return is_same({"": content.get(CHANGE_FIELD)}, {"": expected.change})
