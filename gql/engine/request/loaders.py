"""Data loaders of one response: a constant number of commands, however many documents it has.

Guarantees: lookups of the same turn of the event loop with the same fields are one call of the
resolvers; data that was read for a response is not read again. One `Loaders` serves one response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

from bson import Timestamp
from strawberry.dataloader import DataLoader

from revstream.gql.engine.request.services import Services
from revstream.model.definition import Entity
from revstream.resolvers.current.batcher import BatchLoader
from revstream.resolvers.drafts.comments import Subject
from revstream.resolvers.drafts.draft import Draft
from revstream.resolvers.history.as_of.referring_documents import WantedReferrers
from revstream.resolvers.history.document_states import DocumentState
from revstream.resolvers.history.time_point import TimePoint
from revstream.streams.changefeed.event import PLAIN_KEY_TYPES, identity
from revstream.streams.core.errors import ArchiveBehind, HistoryLost
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version

__all__ = ["Loaders"]

Fields = frozenset[str]


K = TypeVar("K")
T = TypeVar("T")


class Loaders:
    """Loaders of one response.

    Args:
        services: with batched reads: a list of keys -> a list of results, in the same order.
    """

    def __init__(self, services: Services) -> None:
        self._current = services.current
        self._history = services.history
        self._moments = services.moments
        self._editing = services.editing
        # Taken before any read: a number must not be of a version newer than the content.
        self._seen = services.current.read_positions()
        self._documents: dict[Hashable, asyncio.Future[Sequence[Document | None]]] = {}
        self._loaders: dict[Hashable, DataLoader[Any, Any]] = {}
        self._pools: dict[Hashable, BatchLoader[Any, Any]] = {}

    def close(self) -> None:
        """Discard the data, once the response is complete.

        Reads refer to their loaders: without this, the data lives until the garbage collector runs.
        """
        self._documents.clear()
        self._loaders.clear()
        self._pools.clear()

    async def document(self, entity: Entity, id_: Any, fields: Fields) -> Document | None:
        """Return a current document, or None."""
        key = entity.name, fields, identity(id_)
        reading = self._documents.get(key)
        if reading is None:
            reading = self._documents[key] = self._many(entity, [id_], fields)
        # Shielded: other fields still need the result when execution cancels one of them.
        return (await asyncio.shield(reading))[0]

    async def documents(
        self, entity: Entity, ids: Sequence[Any], fields: Fields
    ) -> Sequence[Document | None]:
        """Return current documents, in the order of the ids; None for missing ones."""
        return await self._many(entity, ids, fields)

    def _many(
        self, entity: Entity, ids: Sequence[Any], fields: Fields
    ) -> asyncio.Future[Sequence[Document | None]]:
        async def read(ids: Sequence[Any]) -> Sequence[Document | None]:
            return await self._current.by_ids(entity, ids, fields)

        return self._pooled(("documents", entity.name, fields), ids, read)

    async def numbers(self, entity: Entity, documents: Sequence[Document]) -> Sequence[int | None]:
        """Return the version numbers of current documents; None for one without a version.

        The documents must have been read with their version field.
        """

        async def read(documents: Sequence[Document]) -> Sequence[int | None]:
            return await self._current.numbers(entity, documents, self._seen[entity.collection])

        known = self.known_numbers(entity, documents)
        unknown = [each for each, number in zip(documents, known, strict=True) if number is None]
        if not unknown:
            return known
        read_numbers = iter(await self._pooled(("numbers", entity.name), unknown, read))
        return [next(read_numbers) if number is None else number for number in known]

    def known_numbers(self, entity: Entity, documents: Sequence[Document]) -> Sequence[int | None]:
        """Return the version numbers that are known without a read; None for others."""
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
        """Return the version at a cluster time, or None; waits until the archive has reached it."""
        loader = self._states_loader(entity, fields)
        # Shielded: other fields still need the result when execution cancels one of them.
        found: Version | None = await asyncio.shield(loader.load((id_, at)))
        return found

    def keep_states(
        self,
        entity: Entity,
        at: Timestamp,
        fields: Fields | None,
        states: Iterable[tuple[Any, Version | None]],
    ) -> None:
        """Keep versions that were read before, by id, for `version_at`."""
        loader = self._states_loader(entity, fields)
        for id_, state in states:
            # The loader takes keys that are hashable.
            if id_.__class__ in PLAIN_KEY_TYPES:
                loader.prime((id_, at), state)

    def _states_loader(self, entity: Entity, fields: Fields | None) -> DataLoader[Any, Any]:
        async def load(
            wanted: list[tuple[Any, Timestamp]],
        ) -> Sequence[DocumentState]:
            latest = max(moment for _, moment in wanted)
            await self._moments.reached(entity, TimePoint(at=latest))
            return await self._history.as_of(entity, wanted, fields)

        return self._loader(("at", entity.name, fields), load, _id_and)

    async def referring_at(
        self,
        kind: Hashable,
        at: Timestamp,
        keys: Sequence[Any],
        entity: Entity,
        read: Callable[[list[WantedReferrers]], Awaitable[Sequence[T]]],
    ) -> T:
        """Load a page of the documents that referred to one document at a cluster time.

        Args:
            kind: equal for documents whose pages are read together.
            keys: the ids of the document.
            entity: of the referring documents; waits until its archive has reached the time.
            read: n documents and times -> one result for each, in the same order.
        """

        async def load(wanted: list[WantedReferrers]) -> Sequence[T]:
            await self._moments.reached(entity, TimePoint(at=max(each.at for each in wanted)))
            return await read(wanted)

        key = WantedReferrers(keys, at)
        return await self._load(
            ("referring", kind), key, load, lambda each: (each.at, *map(identity, each.keys))
        )

    async def version_before(
        self, entity: Entity, token: str, fields: Fields | None
    ) -> Version | None:
        """Return the previous version.

        Args:
            token: `Version.previous` of the version after it.
        """

        async def load(tokens: list[str]) -> Sequence[Version | HistoryLost | None]:
            return await self._history.before(entity, tokens, fields)

        return await self._load(("before", entity.name, fields), token, load)

    async def version_ended(self, entity: Entity, id_: Any, number: int) -> datetime | None:
        """Return the time at which a version was replaced; None if it is the newest."""

        async def load(wanted: list[tuple[Any, int]]) -> Sequence[datetime | None]:
            return await self._history.ends(entity, wanted)

        return await self._load(("ended", entity.name), (id_, number), load, _id_and)

    async def draft(self, entity: Entity, id_: Any, number: int) -> Draft | None:
        async def load(wanted: list[tuple[Any, int]]) -> Sequence[Draft | None]:
            return await self._editing.drafts.numbered(entity, wanted)

        return await self._load(("draft", entity.name), (id_, number), load, _id_and)

    async def for_subject(
        self,
        kind: Hashable,
        subject: Subject,
        read: Callable[[list[Subject]], Awaitable[Sequence[T]]],
    ) -> T:
        """Load data of one version or draft, together with that of the others in a list.

        Args:
            kind: equal for subjects whose data is read together.
            read: subjects -> one result for each, in the same order.
        """
        return await self._load(("subjects", kind), subject, read, _id_and)

    async def moment(self, entity: Entity, time: datetime | None, token: str | None) -> TimePoint:
        """Return the resolved TimePoint, once the archive has reached it."""
        if token is not None:
            # A token needs no read.
            return await self._moments.resolve(entity, time=time, token=token)

        async def load(times: list[datetime | None]) -> Sequence[TimePoint]:
            return await asyncio.gather(
                *(self._moments.resolve(entity, time=each) for each in times)
            )

        return await self._load(("moment", entity.name), time, load)

    async def for_document(
        self, kind: Hashable, id_: Any, read: Callable[[list[Any]], Awaitable[Sequence[T]]]
    ) -> T:
        """Load data of one document: a page of its history, its blame, its back references.

        Args:
            kind: equal for documents whose data is read together.
            read: ids -> one result for each, in the same order.
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
        loader = self._loader(kind, load, cache_key)
        # Shielded: see `version_at`.
        found: T = await asyncio.shield(loader.load(key))
        return found

    def _loader(
        self,
        kind: Hashable,
        load: Callable[[list[Any]], Awaitable[Sequence[Any]]],
        cache_key: Callable[[Any], Hashable] | None,
    ) -> DataLoader[Any, Any]:
        loader = self._loaders.get(kind)
        if loader is None:
            loader = DataLoader(load_fn=_with_errors(load), cache_key_fn=cache_key)
            self._loaders[kind] = loader
        return loader


def _with_errors(
    load: Callable[[list[K]], Awaitable[Sequence[T | Exception]]],
) -> Callable[[list[K]], Awaitable[Sequence[T | Exception]]]:
    """Return errors as results of the keys, instead of raising them.

    The traceback of a raised error has the loader's frame, which refers to the futures that keep
    the error.
    """

    async def found(keys: list[K]) -> Sequence[T | Exception]:
        try:
            return await load(keys)
        except Exception as exc:
            return [exc] * len(keys)

    return found


def _id_and(key: tuple[Any, ...]) -> Hashable:
    return identity(key[0]), key[1:]
