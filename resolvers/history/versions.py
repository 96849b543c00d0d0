"""Versions from the archive: by number, as of a moment, and in pages.

Every read is one round trip, for any number of documents, and reads the selected fields only.

Reads as of a moment must wait for it first: `resolvers.history.time_point`. A version that may have
been dropped is `HistoryLost`, as an item of a list, so that the others are returned.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from bson.timestamp import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.access.permissions import Scope
from revstream.resolvers.access.row_filter import ALL_ROWS
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.current.stored_ids import (
    find_meant_ids,
    first_shown_as,
    ids_shown_as,
    read_with_other_ids,
)
from revstream.resolvers.history.as_of.past_collections import PastCollections
from revstream.resolvers.history.changed_paths import read_changes_before
from revstream.resolvers.history.document_states import DocumentState, DocumentStates
from revstream.resolvers.history.row_filtered_pages import visible_by_index
from revstream.resolvers.history.version_filter import VersionFilter
from revstream.resolvers.history.version_pages import VersionPages
from revstream.resolvers.pagination.page import Page
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.pagination.projection import Fields, record_projection
from revstream.streams.archive.horizon import Horizons
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.core.errors import HistoryLost
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.versioning.version import Version

__all__ = ["VersionHistory"]

T = TypeVar("T")


class VersionHistory(PastCollections):
    """Reads of the archives of all entities.

    `fields` are stored names of the document's state, dotted inside of embedded documents; None is
    nothing of the state, and an empty set its `_id`.

    What this process has written is waited for.
    """

    def __init__(
        self, mongo: Mongo, archives: Mapping[str, Archive], own_writes: OwnWrites
    ) -> None:
        super().__init__(mongo, archives)
        self._own_writes = own_writes
        self._horizons = Horizons(mongo)
        self._states = DocumentStates(mongo, own_writes)
        self._pages = VersionPages(mongo)

    def within(self, scope: Scope) -> VersionHistory:
        """Return the service limited to one caller.

        A version is visible if its own content is in the caller's rows. Reads of entities that the
        caller may not read are Forbidden.
        """
        limited = copy.copy(self)
        limited._scope = scope
        return limited

    async def by_number(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]], fields: Fields | None
    ) -> list[Version | HistoryLost | None]:
        """Read versions: n (id, number) -> n versions in that order, None for a number without a
        version.

        If nothing is known of a document, the one whose id of another type looks alike is read.

        Raises:
            ArchiveBehind: One is missing, and the archive has not come so far that it would be
            there.
        """

        async def read(wanted: Sequence[tuple[Any, int]]) -> list[Version | HistoryLost | None]:
            return await self._by_number(entity, wanted, fields)

        async def meant(wanted: Sequence[tuple[Any, int]]) -> list[Any]:
            archive, ids = self._archive(entity), [key for key, _ in wanted]
            return await find_meant_ids(self._mongo, archive, entity, ids, ["versions"])

        return await read_with_other_ids(entity, wanted, read, meant)

    async def _by_number(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]], fields: Fields | None
    ) -> list[Version | HistoryLost | None]:
        rows = self._scope.read_rows(entity)
        if not wanted:
            return []
        await self._own_writes.recorded(entity.collection, [key for key, _ in wanted])
        found = await self._numbered(entity, wanted, rows.widened(fields))
        # The numbers begin with 1.
        missing = [(key, n) for key, n in wanted if n > 0 and (identity(key), n) not in found]
        if missing:
            await self._settled(entity)
            found |= await self._numbered(entity, missing, rows.widened(fields))
        versions = {
            place: Version.from_record(record)
            for place, record in found.items()
            if rows.allow_version(record)
        }
        if rows.limits:
            await self._conceal(entity, versions.values())
            # A dropped version cannot be checked against the caller's rows.
            return [versions.get((identity(key), number)) for key, number in wanted]
        missing = [each for each in wanted if (identity(each[0]), each[1]) not in versions]
        lost = iter(await self._horizons.number_errors(self._archive(entity), missing))
        return [versions.get((identity(key), number)) or next(lost) for key, number in wanted]

    async def _numbered(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]], fields: Fields | None
    ) -> dict[tuple[Any, int], Document]:
        """Records by identity and number."""
        numbers: dict[Any, tuple[Any, set[int]]] = {}
        for key, number in wanted:
            numbers.setdefault(identity(key), (key, set()))[1].add(number)
        # One branch per document; a lookup per version takes twice to five times as long
        # (measured).
        found = await self._archive(entity).find(
            {
                "$or": [
                    {"doc": {"$eq": key}, "v": {"$in": list(vs)}} for key, vs in numbers.values()
                ]
            },
            FindOptions(projection=record_projection(fields)),
        )
        return {(identity(record["doc"]), record["v"]): record for record in found}

    async def as_of(
        self, entity: Entity, wanted: Sequence[tuple[Any, Timestamp]], fields: Fields | None
    ) -> list[DocumentState]:
        """Read versions: n (id, cluster time) -> the versions that were current, in that order.

        None if the document did not exist yet, or was deleted; an error if that is unknown. If the
        document did not exist, the one whose id of another type looks alike is read.
        """
        rows, archive = self._scope.read_rows(entity), self._archive(entity)

        async def read(wanted: Sequence[tuple[Any, Timestamp]]) -> list[DocumentState]:
            states = await self._states.at(archive, rows, wanted, fields)
            await self._conceal(entity, states)
            return states

        async def meant(wanted: Sequence[tuple[Any, Timestamp]]) -> list[Any]:
            asked = [(key, at) for id_, at in wanted for key in ids_shown_as(entity, id_)]
            states = iter(await self._states.at(archive, ALL_ROWS, asked, None))
            return [
                first_shown_as(
                    id_,
                    [
                        (state.document if isinstance(state, Version) else key, key)
                        for key in ids_shown_as(entity, id_)
                        if (state := next(states)) is not None
                    ],
                )
                for id_, _ in wanted
            ]

        return await read_with_other_ids(entity, wanted, read, meant)

    async def _settled(self, entity: Entity) -> None:
        """Return once the archive has come so far that what it lacks was not; called where
        something was not found.
        """
        now = await self._mongo.operation_time()
        await self._own_writes.settled(entity.collection, now)

    async def before(
        self, entity: Entity, tokens: Sequence[str], fields: Fields | None
    ) -> list[Version | HistoryLost | None]:
        """Read versions: n tokens (`Version.previous`) -> their versions in that order, None if
        hidden.
        """
        rows = self._scope.read_rows(entity)
        if not tokens:
            return []
        projection = record_projection(rows.widened(fields))
        found = await self._archive(entity).by_token(tokens, projection=projection)
        if rows.limits:
            seen = {token: each for token, each in found.items() if rows.allow_version(each)}
            versions = [Version.from_record(seen[e]) if e in seen else None for e in tokens]
            await self._conceal(entity, versions)
            return [*versions]
        return [
            Version.from_record(found[token])
            if token in found
            # The version after said that it was there.
            else HistoryLost("the previous version was deleted during the read; send it again")
            for token in tokens
        ]

    async def newest(
        self, entity: Entity, ids: Sequence[Any], fields: Fields | None
    ) -> list[Version | None]:
        """Read the last versions: n ids -> n versions in that order, deletions included.

        Raises:
            ArchiveBehind: One has none, and the archive has not come so far that it would.
        """
        rows = self._scope.read_rows(entity)
        await self._own_writes.recorded(entity.collection, ids)
        projection = record_projection(rows.widened(fields))

        async def read() -> list[Document]:
            wanted = [{"key": key} for key in ids]
            return await self._archive(entity).newest(wanted, limit=1, projection=projection)

        found = await read()
        if len(found) < len(ids):
            await self._settled(entity)
            found = await read()
        versions = visible_by_index(found, rows, len(ids))
        await self._conceal(entity, versions)
        return versions

    async def ends(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]]
    ) -> list[datetime | None]:
        """Read times of replacement: n (id, number) -> n times in that order, None for current
        versions.
        """
        self._scope.read_rows(entity)
        await self._own_writes.recorded(entity.collection, [key for key, _ in wanted])
        return await self._archive(entity).replacement_times(wanted)

    async def changes_before(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]], *, limit: int
    ) -> list[list[Document]]:
        """Read earlier versions: n (id, number) -> the lower ones of each, newest first, at most
        `limit`.

        Only `v`, `op` and `changed` of them, and `prev` and `cut`, which show whether there are
        others.
        """
        rows = self._scope.read_rows(entity)
        return await read_changes_before(
            self._mongo, self._archive(entity), rows, wanted, limit=limit
        )

    async def pages_of(
        self, entity: Entity, ids: Sequence[Any], query: PageQuery[VersionFilter]
    ) -> list[Page[Any]]:
        """N ids -> a page each of the document's versions, newest first, in one command.

        Raises:
            BadUserInput: a cursor of another list.
            ArchiveBehind: one is empty, and the archive has not come so far that it is known to be.
        """
        rows, archive = self._scope.read_rows(entity), self._archive(entity)
        reading = replace(query, facts=rows.facts(query.facts))
        await self._own_writes.recorded(entity.collection, ids)

        async def read() -> list[Page[Any]]:
            return await self._pages.of_documents(archive, entity, rows, ids, reading)

        pages = await read()
        if not all(each.items for each in pages):
            await self._settled(entity)
            pages = await read()
        return await self._ended(entity, pages, query.facts)

    async def trail(self, entity: Entity, query: PageQuery[VersionFilter]) -> Page[Any]:
        """A page of the versions of all documents, newest first: in the order of the stream.

        Raises:
            BadUserInput: a cursor of another list.
            ArchiveBehind: see `read_trail`.
        """
        rows, archive = self._scope.read_rows(entity), self._archive(entity)
        reading = replace(query, facts=rows.facts(query.facts))

        async def read() -> Page[Any]:
            return await self._pages.of_all(archive, entity, rows, reading)

        found = await self.read_trail(entity, read, lambda page: not page.items)
        return (await self._ended(entity, [found], query.facts))[0]

    async def read_trail(
        self, entity: Entity, read: Callable[[], Awaitable[T]], is_empty: Callable[[T], bool]
    ) -> T:
        """Read versions of all documents, again where none are found that may be recorded soon.

        Raises:
            ArchiveBehind: what was there before the archive is not read yet; or nothing is found,
                and the archive has not come so far that it is known to be so.
        """
        await self._own_writes.recorded(entity.collection)
        if not self._own_writes.has_begun(entity.collection):
            # Not all that was there before the archive is known to be in it.
            await self._settled(entity)
        found = await read()
        if is_empty(found):
            await self._settled(entity)
            found = await read()
        return found
