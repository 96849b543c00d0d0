"""The past: versions as the archive has them, by number, as of a moment, and in pages.

Every read is one round trip, whatever the number of documents asked about, and reads the fields of
their states that were asked for and no others.

What is read as of a moment must have been waited for: `resolvers.moments`. A version that may have
been dropped is `HistoryLost`: in a list in its place, so that it is no error of the others.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from bson.timestamp import Timestamp

from model.entities import Entity
from resolvers.as_of import CollectionAsOf
from resolvers.batches import pages_by_key
from resolvers.ends import with_ends
from resolvers.filters import Condition
from resolvers.keyset import Keyset
from resolvers.moments import Moment
from resolvers.orders import Order
from resolvers.own_writes import OwnWrites
from resolvers.pages import Page, PageRequest, Window
from resolvers.projections import ENDED, EVERY_FACT, Fields, record_projection
from resolvers.records import VersionFilter
from resolvers.rows import Rows
from resolvers.scopes import OPEN, Scope
from resolvers.sifting import Sifting
from streams.archive import Archive
from streams.documents import Document
from streams.errors import HistoryLost
from streams.events import identity
from streams.horizons import Horizons
from streams.layouts.as_stored import by_field
from streams.mongo import Mongo
from streams.versions import Version

__all__ = ["History"]


class History:
    """Reads of the archives of all entities.

    `fields` are stored names of the document's state, dotted inside of embedded documents; None is
    nothing of the state, and an empty set its `_id`.

    What this process has written is waited for.

    Args:
        archives: by collection.
    """

    def __init__(
        self, mongo: Mongo, archives: Mapping[str, Archive], own_writes: OwnWrites
    ) -> None:
        self._mongo = mongo
        self._archives = archives
        self._own_writes = own_writes
        self._horizons = Horizons(mongo)
        self._scope = OPEN

    def within(self, scope: Scope) -> History:
        """The same for one caller: versions whose own content is among the rows that are there for
        him. Reads of entities that he may not read are Forbidden."""
        limited = copy.copy(self)
        limited._scope = scope
        return limited

    async def by_number(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]], fields: Fields | None
    ) -> list[Version | HistoryLost | None]:
        """n (id, number) -> n versions in the order asked, None where there never was such a
        number."""
        rows = self._scope.read_rows(entity)
        if not wanted:
            return []
        numbers: dict[Any, tuple[Any, set[int]]] = {}
        for key, number in wanted:
            numbers.setdefault(identity(key), (key, set()))[1].add(number)
        await self._own_writes.recorded(entity.collection, [key for key, _ in wanted])
        # One branch per document; a lookup per version takes twice to five times as long
        # (measured).
        found = await self._archive(entity).find(
            {
                "$or": [
                    {"doc": {"$eq": key}, "v": {"$in": list(vs)}} for key, vs in numbers.values()
                ]
            },
            projection=record_projection(rows.widened(fields)),
        )
        versions = {
            (identity(record["doc"]), record["v"]): Version.from_record(record)
            for record in found
            if rows.allow_version(record)
        }
        if rows.limits:
            # Of what is dropped nobody can say whether it was there for the caller.
            return [versions.get((identity(key), number)) for key, number in wanted]
        missing = [each for each in wanted if (identity(each[0]), each[1]) not in versions]
        lost = iter(await self._horizons.lost_numbers(self._archive(entity), missing))
        return [versions.get((identity(key), number)) or next(lost) for key, number in wanted]

    async def as_of(
        self, entity: Entity, wanted: Sequence[tuple[Any, Timestamp]], fields: Fields | None
    ) -> list[Version | HistoryLost | None]:
        """n (id, cluster time) -> the versions that stood then, in the order asked.

        None where the document did not exist yet, or was deleted.
        """
        rows = self._scope.read_rows(entity)
        found = await self._archive(entity).newest(
            [{"key": key, "at": at} for key, at in wanted],
            limit=1,
            projection=record_projection(rows.widened(fields)),
        )
        if rows.limits:
            return _by_index(found, rows, len(wanted))
        versions = {record["wanted"]: Version.from_record(record) for record in found}
        missing = [each for n, each in enumerate(wanted) if n not in versions]
        lost = iter(await self._horizons.lost_at(self._archive(entity), missing))
        standing = [versions.get(n) or next(lost) for n in range(len(wanted))]
        return [
            None if isinstance(each, Version) and each.operation == "DELETE" else each
            for each in standing
        ]

    async def before(
        self, entity: Entity, tokens: Sequence[str], fields: Fields | None
    ) -> list[Version | HistoryLost | None]:
        """n tokens (`Version.previous`) -> the versions that they are of, in the order asked; None
        where one is not there for the caller."""
        rows = self._scope.read_rows(entity)
        if not tokens:
            return []
        projection = record_projection(rows.widened(fields))
        found = await self._archive(entity).by_token(tokens, projection=projection)
        if rows.limits:
            seen = {token: each for token, each in found.items() if rows.allow_version(each)}
            return [Version.from_record(seen[each]) if each in seen else None for each in tokens]
        return [
            Version.from_record(found[token])
            if token in found
            # The version after said that it was there.
            else HistoryLost("the version before was dropped a moment ago")
            for token in tokens
        ]

    async def newest(
        self, entity: Entity, ids: Sequence[Any], fields: Fields | None
    ) -> list[Version | None]:
        """n ids -> their last versions, deletions included, in the order asked."""
        rows = self._scope.read_rows(entity)
        await self._own_writes.recorded(entity.collection, ids)
        projection = record_projection(rows.widened(fields))
        found = await self._archive(entity).newest(
            [{"key": key} for key in ids], limit=1, projection=projection
        )
        return [*_by_index(found, rows, len(ids))]

    async def ends(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]]
    ) -> list[datetime | None]:
        """n (id, number) of versions -> when each was replaced, in the order asked; None where it
        was not."""
        self._scope.read_rows(entity)
        await self._own_writes.recorded(entity.collection, [key for key, _ in wanted])
        return await self._archive(entity).ends(wanted)

    async def changes_before(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]], *, limit: int
    ) -> list[list[Document]]:
        """n (id, number) -> for each the versions numbered lower, newest first, at most `limit`.

        Only `v`, `op` and `changed` of them, and `prev` and `cut`, which tell whether there were
        others.
        """
        self._scope.read_rows(entity)
        names = ("v", "op", "changed", "prev", "cut")
        archive = self._archive(entity)
        rows = [{"n": n, "key": key, "v": number} for n, (key, number) in enumerate(wanted)]
        found: list[list[Document]] = [[] for _ in wanted]
        pipeline: list[Document] = [
            {"$documents": {"$literal": rows}},
            {
                "$lookup": {
                    "from": archive.name,
                    "localField": "key",
                    "foreignField": "doc",
                    "let": {"v": "$v"},
                    "pipeline": [
                        {"$match": {"$expr": {"$lt": ["$v", "$$v"]}}},
                        {"$sort": {"v": -1}},
                        {"$limit": limit},
                        {"$project": {"_id": 0, **dict.fromkeys(names, 1)}},
                    ],
                    "as": "found",
                }
            },
            {"$unwind": "$found"},
            {"$unset": ["key", "v"]},
        ]
        for row in await self._mongo.aggregate(None, pipeline) if rows else ():
            found[row["n"]].append(row["found"])
        return found

    async def pages_of(
        self,
        entity: Entity,
        ids: Sequence[Any],
        *,
        where: VersionFilter | None,
        page: PageRequest,
        fields: Fields | None,
        total: bool = False,
        facts: Fields = EVERY_FACT,
        shown: bool = False,
    ) -> list[Page[Any]]:
        """n ids -> a page each of the document's versions, newest first, in one command.

        Args:
            facts: see `record_projection`.
            shown: they are shown, and nothing else: records, of which `Version.from_record` makes
                versions, and their dates need not say that they are in UTC.

        Raises:
            BadUserInput: a cursor of another list.
        """
        rows, make = self._scope.read_rows(entity), _made(shown)
        keyset = Keyset(f"versions of one {entity.name}", (("v", -1),), uniform=True)
        await self._own_writes.recorded(entity.collection, ids)
        archive = self._archive(entity)
        sifting = Sifting(archive, entity, rows)
        if rows.limits and await archive.has_packed():
            reads = (
                sifting.page(
                    {"doc": {"$eq": key}},
                    where,
                    Window(keyset, page),
                    fields,
                    total=total,
                    make=make,
                )
                for key in ids
            )
            return await self._ended(entity, await asyncio.gather(*reads), facts)
        query = sifting.query({} if where is None else where.query)
        if len(ids) == 1 and ids[0] is not None and not total:
            window = Window(keyset, page)
            own = {"doc": {"$eq": ids[0]}}
            # A third of what the lookup costs that many take.
            found = await archive.find(
                window.limited_to({"$and": [own, query]} if query else own),
                projection=record_projection(fields, facts),
                sort=window.keys,
                limit=window.limit,
                short=True,
                naive=shown,
            )
            return await self._ended(entity, [window.page(found, make)], facts)
        pages = await pages_by_key(
            self._mongo,
            by_field(archive.name, "doc"),
            ids,
            query=query,
            window=Window(keyset, page),
            projection=record_projection(fields, facts),
            make=make,
            total=total,
            filled=archive.contents.filled,
        )
        return await self._ended(entity, pages, facts)

    async def trail(
        self,
        entity: Entity,
        *,
        where: VersionFilter | None,
        page: PageRequest,
        fields: Fields | None,
        total: bool = False,
        facts: Fields = EVERY_FACT,
        shown: bool = False,
    ) -> Page[Any]:
        """A page of the versions of all documents, newest first: in the order of the stream.

        Args:
            facts: see `record_projection`.
            shown: see `pages_of`.

        Raises:
            BadUserInput: a cursor of another list.
        """
        rows, make = self._scope.read_rows(entity), _made(shown)
        keyset = Keyset(f"versions of all {entity.name}", (("_id", -1),), uniform=True)
        window = Window(keyset, page)
        archive = self._archive(entity)
        sifting = Sifting(archive, entity, rows)
        await self._own_writes.recorded(entity.collection)
        if rows.limits and await archive.has_packed():
            page_ = await sifting.page({}, where, window, fields, total=total, make=make)
            return (await self._ended(entity, [page_], facts))[0]
        query = sifting.query({} if where is None else where.query)
        reading = archive.find(
            window.limited_to(query),
            projection=window.projected(record_projection(fields, facts)),
            sort=window.keys,
            limit=window.limit,
            short=True,
            naive=shown,
        )
        if total:
            found, count = await asyncio.gather(reading, self._mongo.count(archive.name, query))
        else:
            found, count = await reading, None
        return (await self._ended(entity, [window.page(found, make, total=count)], facts))[0]

    async def collection_as_of(
        self,
        entity: Entity,
        moment: Moment,
        *,
        where: Condition | None,
        order: Order | None,
        page: PageRequest,
        fields: Fields | None,
        total: bool = False,
        facts: Fields = EVERY_FACT,
        shown: bool = False,
    ) -> Page[Any]:
        """A page of the versions that stood at a moment, of the documents that matched then.

        Args:
            facts: see `record_projection`.
            shown: see `pages_of`.

        Raises:
            BadUserInput: an order that cannot be, a cursor of another list.
            HistoryLost: versions of then were dropped.
            TimeLimit: the read took longer than it may.
        """
        rows = self._scope.read_rows(entity)
        reading = CollectionAsOf(
            self._mongo,
            self._archive(entity),
            entity,
            moment.at,
            where=rows.narrowed(where),
            order=order,
            facts=facts,
            shown=shown,
        )
        read = await reading.page(page, fields, total=total)
        return (await self._ended(entity, [read], facts))[0]

    async def _ended(
        self, entity: Entity, pages: Sequence[Page[Any]], facts: Fields
    ) -> list[Page[Any]]:
        if ENDED not in facts:
            return list(pages)
        return await with_ends(self._archive(entity), pages)

    def _archive(self, entity: Entity) -> Archive:
        return self._archives[entity.collection]


def _made(shown: bool) -> Callable[[Document], Any] | None:
    return None if shown else Version.from_record


def _by_index(found: Sequence[Document], rows: Rows, count: int) -> list[Any]:
    """Those that are there for the caller, in the order in which they were wanted."""
    versions = {
        record["wanted"]: Version.from_record(record)
        for record in found
        if rows.allow_version(record)
    }
    return [versions.get(n) for n in range(count)]
