"""Read together what many fields of one response ask for one by one: a constant number of commands,
however many documents.

Guarantees: what is asked for in the same turn of the loop, with the same fields to read, is one
call of the resolvers; what was read once in a response is not read again. One `Loaders` serves one
response and is then thrown away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from bson import Timestamp
from strawberry.dataloader import DataLoader

from revstream.model.definition import Entity
from revstream.resolvers.current.batcher import BatchLoader
from revstream.resolvers.current.documents import Current
from revstream.resolvers.drafts.comments import Subject
from revstream.resolvers.drafts.draft import Draft
from revstream.resolvers.drafts.store import Drafts
from revstream.resolvers.history.document_states import DocumentState
from revstream.resolvers.history.time_point import TimePoint, TimePointResolver
from revstream.resolvers.history.versions import VersionHistory
from revstream.streams.changefeed.event import identity
from revstream.streams.core.errors import ArchiveBehind, HistoryLost
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version

__all__ = ["Loaders"]

Fields = frozenset[str]


class Proposals(Protocol):
    """Where drafts and comments are."""

    @property
    def drafts(self) -> Drafts: ...


K = TypeVar("K")
T = TypeVar("T")


class Loaders:
    """Args:
    current, history, moments, proposals: the batched reads, list in, list out, in the same order.
    """

    def __init__(
        self,
        current: Current,
        history: VersionHistory,
        moments: TimePointResolver,
        proposals: Proposals,
    ) -> None:
        self._current = current
        self._history = history
        self._moments = moments
        self._proposals = proposals
        # Before anything is read: a number may not be of a version newer than the content.
        self._seen = current.seen()
        self._documents: dict[Hashable, asyncio.Future[Sequence[Document | None]]] = {}
        self._loaders: dict[Hashable, DataLoader[Any, Any]] = {}
        self._pools: dict[Hashable, BatchLoader[Any, Any]] = {}

    def close(self) -> None:
        """Forget what was read, once the response is made. Reads refer to their loaders: without
        this, all of it stays until the garbage collector has found it."""
        self._documents.clear()
        self._loaders.clear()
        self._pools.clear()

    async def document(self, entity: Entity, id_: Any, fields: Fields) -> Document | None:
        """A current document, or None."""
        key = entity.name, fields, identity(id_)
        reading = self._documents.get(key)
        if reading is None:
            reading = self._documents[key] = self._many(entity, [id_], fields)
        # Several fields wait for one result: where execution gives up one of them, the others still
        # want it.
        return (await asyncio.shield(reading))[0]

    async def documents(
        self, entity: Entity, ids: Sequence[Any], fields: Fields
    ) -> Sequence[Document | None]:
        """Many current documents, or None, in the order asked."""
        return await self._many(entity, ids, fields)

    def _many(
        self, entity: Entity, ids: Sequence[Any], fields: Fields
    ) -> asyncio.Future[Sequence[Document | None]]:
        async def read(ids: Sequence[Any]) -> Sequence[Document | None]:
            return await self._current.by_ids(entity, ids, fields)

        return self._pooled(("documents", entity.name, fields), ids, read)

    async def numbers(self, entity: Entity, documents: Sequence[Document]) -> Sequence[int | None]:
        """The version numbers of current documents, read with their version field; None of those
        that are not in the archive."""

        async def read(documents: Sequence[Document]) -> Sequence[int | None]:
            return await self._current.numbers(entity, documents, self._seen[entity.collection])

        known = self.known_numbers(entity, documents)
        unknown = [each for each, number in zip(documents, known, strict=True) if number is None]
        if not unknown:
            return known
        told = iter(await self._pooled(("numbers", entity.name), unknown, read))
        return [next(told) if number is None else number for number in known]

    def known_numbers(self, entity: Entity, documents: Sequence[Document]) -> Sequence[int | None]:
        """Those that can be told without asking; None of the others."""
        return self._current.known_numbers(entity, documents, self._seen[entity.collection])

    async def version_numbered(
        self, entity: Entity, id_: Any, number: int, fields: Fields | None
    ) -> Version | None:
        async def load(wanted: list[tuple[Any, int]]) -> Sequence[Version | HistoryLost | None]:
            return await self._history.by_number(entity, wanted, fields)

        return await self._load(("numbered", entity.name, fields), (id_, number), load, _id_and)

    async def version_at(
        self, entity: Entity, id_: Any, at: Timestamp, fields: Fields | None
    ) -> Version | None:
        """The version that stood at a moment, once the archive has reached it; None where there was
        no document."""

        async def load(
            wanted: list[tuple[Any, Timestamp]],
        ) -> Sequence[DocumentState]:
            latest = max(moment for _, moment in wanted)
            await self._moments.reached(entity, TimePoint(at=latest))
            return await self._history.as_of(entity, wanted, fields)

        return await self._load(("at", entity.name, fields), (id_, at), load, _id_and)

    async def version_before(
        self, entity: Entity, token: str, fields: Fields | None
    ) -> Version | None:
        """Args:
        token: `Version.previous` of the version after.
        """

        async def load(tokens: list[str]) -> Sequence[Version | HistoryLost | None]:
            return await self._history.before(entity, tokens, fields)

        return await self._load(("before", entity.name, fields), token, load)

    async def version_ended(self, entity: Entity, id_: Any, number: int) -> datetime | None:
        """When a version was replaced; None where it was not."""

        async def load(wanted: list[tuple[Any, int]]) -> Sequence[datetime | None]:
            return await self._history.ends(entity, wanted)

        return await self._load(("ended", entity.name), (id_, number), load, _id_and)

    async def draft(self, entity: Entity, id_: Any, number: int) -> Draft | None:
        async def load(wanted: list[tuple[Any, int]]) -> Sequence[Draft | None]:
            return await self._proposals.drafts.numbered(entity, wanted)

        return await self._load(("draft", entity.name), (id_, number), load, _id_and)

    async def of_subjects(
        self,
        kind: Hashable,
        subject: Subject,
        read: Callable[[list[Subject]], Awaitable[Sequence[T]]],
    ) -> T:
        """Load for one version or draft what is read for all those of a list together.

        Args:
            kind: equal for all that are asked the same.
            read: subjects -> one for each, in the same order.
        """
        return await self._load(("subjects", kind), subject, read, _id_and)

    async def moment(self, entity: Entity, time: datetime | None, token: str | None) -> TimePoint:
        """The moment that a TimePoint means, once the archive has reached it."""
        if token is not None:
            # For which nothing is read.
            return await self._moments.of(entity, time=time, token=token)

        async def load(times: list[datetime | None]) -> Sequence[TimePoint]:
            return await asyncio.gather(*(self._moments.of(entity, time=each) for each in times))

        return await self._load(("moment", entity.name), time, load)

    async def together(
        self, kind: Hashable, id_: Any, read: Callable[[list[Any]], Awaitable[Sequence[T]]]
    ) -> T:
        """What belongs to one document: a page of its history, its blame, who refers to it.

        Args:
            kind: equal for all documents that are asked the same.
            read: ids -> one for each, in the same order.
        """
        return await self._load(("together", kind), id_, read, identity)

    def _pooled(
        self,
        kind: Hashable,
        keys: Sequence[K],
        read: Callable[[Sequence[K]], Awaitable[Sequence[T]]],
    ) -> asyncio.Future[Sequence[T]]:
        pool = self._pools.get(kind)
        if pool is None:
            pool = self._pools[kind] = BatchLoader(read)
        return pool.ask(keys)

    async def _load(
        self,
        kind: Hashable,
        key: K,
        load: Callable[[list[K]], Awaitable[Sequence[T | HistoryLost | ArchiveBehind]]],
        cache_key: Callable[[K], Hashable] | None = None,
    ) -> T:
        loader = self._loaders.get(kind)
        if loader is None:
            loader = DataLoader(load_fn=_with_errors(load), cache_key_fn=cache_key)
            self._loaders[kind] = loader
        # Several fields wait for one result: where execution gives up one of them, the others still
        # want it.
        found: T = await asyncio.shield(loader.load(key))
        return found


def _with_errors(
    load: Callable[[list[K]], Awaitable[Sequence[T | Exception]]],
) -> Callable[[list[K]], Awaitable[Sequence[T | Exception]]]:
    """Return the error for each key, where it would be raised: raised, its traceback has the frame
    of the loader, which refers to the futures that keep it."""

    async def found(keys: list[K]) -> Sequence[T | Exception]:
        try:
            return await load(keys)
        except Exception as exc:
            return [exc] * len(keys)

    return found


def _id_and(key: tuple[Any, ...]) -> Hashable:
    return identity(key[0]), key[1:]
