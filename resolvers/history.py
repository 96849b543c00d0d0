"""The past: versions as the archive has them, by number, as of a moment, and in pages.

Every read is one round trip, whatever the number of documents asked about, and reads the fields of
their states that were asked for and no others.

What is read as of a moment must have been waited for: `resolvers.moments`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from bson.timestamp import Timestamp

from model.entities import Entity
from resolvers.as_of import CollectionAsOf
from resolvers.batches import pages_by_key
from resolvers.filters import Condition
from resolvers.keyset import Keyset
from resolvers.moments import Moment
from resolvers.orders import Order
from resolvers.own_writes import OwnWrites
from resolvers.pages import Page, PageRequest, Window
from resolvers.projections import Fields, record_projection
from resolvers.records import VersionFilter
from streams.archive import Archive
from streams.documents import Document
from streams.events import identity
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

    async def by_number(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]], fields: Fields | None
    ) -> list[Version | None]:
        """n (id, number) -> n versions in the order asked, None where there is no such number."""
        if not wanted:
            return []
        numbers: dict[Any, tuple[Any, set[int]]] = {}
        for key, number in wanted:
            numbers.setdefault(identity(key), (key, set()))[1].add(number)
        await self._own_writes.recorded(entity.collection, [key for key, _ in wanted])
        # One branch per document; a lookup per version takes twice to five times as long
        # (measured).
        found = await self._mongo.find(
            self._archive(entity).name,
            {
                "$or": [
                    {"doc": {"$eq": key}, "v": {"$in": list(vs)}} for key, vs in numbers.values()
                ]
            },
            projection=record_projection(fields),
        )
        versions = {
            (identity(record["doc"]), record["v"]): Version.from_record(record) for record in found
        }
        return [versions.get((identity(key), number)) for key, number in wanted]

    async def as_of(
        self, entity: Entity, wanted: Sequence[tuple[Any, Timestamp]], fields: Fields | None
    ) -> list[Version | None]:
        """n (id, cluster time) -> the versions that stood then, in the order asked.

        None where the document did not exist yet, or was deleted.
        """
        found = await self._archive(entity).newest(
            [{"key": key, "at": at} for key, at in wanted],
            limit=1,
            projection=record_projection(fields),
        )
        versions = {
            record["wanted"]: Version.from_record(record)
            for record in found
            if record["op"] != "DELETE"
        }
        return [versions.get(n) for n in range(len(wanted))]

    async def before(
        self, entity: Entity, tokens: Sequence[str], fields: Fields | None
    ) -> list[Version | None]:
        """n tokens (`Version.previous`) -> the versions that they are of, in the order asked."""
        if not tokens:
            return []
        found = await self._archive(entity).by_token(tokens, projection=record_projection(fields))
        return [Version.from_record(found[token]) if token in found else None for token in tokens]

    async def newest(
        self, entity: Entity, ids: Sequence[Any], fields: Fields | None
    ) -> list[Version | None]:
        """n ids -> their last versions, deletions included, in the order asked."""
        await self._own_writes.recorded(entity.collection, ids)
        found = await self._archive(entity).newest(
            [{"key": key} for key in ids], limit=1, projection=record_projection(fields)
        )
        versions = {record["wanted"]: Version.from_record(record) for record in found}
        return [versions.get(n) for n in range(len(ids))]

    async def changes_before(
        self, entity: Entity, wanted: Sequence[tuple[Any, int]], *, limit: int
    ) -> list[list[Document]]:
        """n (id, number) -> for each the versions numbered lower, newest first, at most `limit`.

        Only `v`, `op` and `changed` of them.
        """
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
                        {"$project": {"_id": 0, "v": 1, "op": 1, "changed": 1}},
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
    ) -> list[Page[Version]]:
        """n ids -> a page each of the document's versions, newest first, in one command.

        Raises:
            BadUserInput: a cursor of another list.
        """
        keyset = Keyset(f"versions of one {entity.name}", (("v", -1),), uniform=True)
        await self._own_writes.recorded(entity.collection, ids)
        return await pages_by_key(
            self._mongo,
            self._archive(entity).name,
            "doc",
            ids,
            query={} if where is None else where.query,
            window=Window(keyset, page),
            projection=record_projection(fields),
            make=Version.from_record,
            total=total,
        )

    async def trail(
        self,
        entity: Entity,
        *,
        where: VersionFilter | None,
        page: PageRequest,
        fields: Fields | None,
        total: bool = False,
    ) -> Page[Version]:
        """A page of the versions of all documents, newest first: in the order of the stream.

        Raises:
            BadUserInput: a cursor of another list.
        """
        keyset = Keyset(f"versions of all {entity.name}", (("_id", -1),), uniform=True)
        window = Window(keyset, page)
        query = {} if where is None else where.query
        name = self._archive(entity).name
        await self._own_writes.recorded(entity.collection)
        reading = self._mongo.find(
            name,
            window.limited_to(query),
            projection=window.projected(record_projection(fields)),
            sort=window.keys,
            limit=window.limit,
        )
        if total:
            rows, count = await asyncio.gather(reading, self._mongo.count(name, query))
        else:
            rows, count = await reading, None
        return window.page(rows, Version.from_record, total=count)

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
    ) -> Page[Version]:
        """A page of the versions that stood at a moment, of the documents that matched then.

        Raises:
            BadUserInput: an order that cannot be, a cursor of another list.
            TimeLimit: the read took longer than it may.
        """
        reading = CollectionAsOf(
            self._mongo, self._archive(entity), entity, moment.at, where=where, order=order
        )
        return await reading.page(page, fields, total=total)

    def _archive(self, entity: Entity) -> Archive:
        return self._archives[entity.collection]
