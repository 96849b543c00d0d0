"""SEPARATE layout: current documents in the collection, previous versions in another one.

The application writes both; previous versions are `{docId, v, …}`, unique on both.

A write first inserts the current version into the previous ones, and then changes the current
document, compared with exactly that content. A deletion inserts it there and removes the document;
it takes a number, as in the archive. Applications may insert a deletion's version themselves;
otherwise a deletion before recording began is unknown, unless it was the last.

A crash between the two steps leaves a previous version that is also current. No read returns it
twice, and the next write continues from there. Removing it is safe only while no write has just
inserted it: `recover` looks twice, and removes only what did not change in between. A write gives
up
after half of that time (by the database's clock, in the command that changes the current document),
and inserts a version again that it had found there already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import ChangeEvent, identity
from revstream.streams.layouts.core.interface import SETTLE_S
from revstream.streams.layouts.core.plain_collection import PlainCollectionLayout
from revstream.streams.layouts.core.stored_version import (
    ConcurrentWrite,
    LayoutFieldNames,
    LogicalWrite,
    StoredVersion,
    decode_element,
    encode_element,
    is_exact_id,
    version_number,
    whole_number,
    written_time,
)
from revstream.streams.layouts.self_versioned.engine import SelfVersionedLayout, Stages
from revstream.streams.layouts.self_versioned.version_rows import (
    VersionRows,
    last_id_element,
    match_after,
    trim_to_exact_id,
)
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import RAW, Document
from revstream.streams.mongo.find_options import NO_OPTIONS, FindOptions
from revstream.streams.mongo.transactions import WriteSession, write
from revstream.streams.raw_bson.diff import is_same
from revstream.streams.raw_bson.fields import iterate_elements
from revstream.streams.versioning.version import without_reserved

__all__ = ["SeparateLayout"]


class SeparateLayout(PlainCollectionLayout, SelfVersionedLayout):
    """Layout with the previous versions in a collection of their own."""

    removes = True

    def __init__(self, mongo: Mongo, collection: str, names: LayoutFieldNames) -> None:
        super().__init__(mongo, collection, names)
        self.beside = (names.previous,)
        self.rows = VersionRows(mongo, names.previous, names, [names.document, names.deleted])

    async def create_indexes(self) -> None:
        await self.rows.prepare()

    def current_stages(
        self,
        query: Mapping[str, Any],
        options: FindOptions = NO_OPTIONS,
    ) -> Stages:
        raise AssertionError("documents are read as they are stored")

    # the past

    def _kept(self, document: RawBSONDocument) -> StoredVersion:
        """Return the version of a current document."""
        raw = bytes(document.raw)
        key = dict(iterate_elements(raw))[b"_id"]
        return StoredVersion(
            key=decode_element(key),
            number=version_number(document.get(self.names.number), key),
            # Unchanged bytes: a write compares all of them.
            content=RawBSONDocument(raw, RAW),
            wall=written_time(document, self.names.at),
        )

    async def _current(
        self, keys: Sequence[Any], *, at: Timestamp | None = None
    ) -> dict[Any, StoredVersion]:
        unique = {identity(each): each for each in keys}
        query = {"_id": {"$in": list(unique.values())}}
        found = await self.mongo.find(self.collection, query, FindOptions(at=at, raw=True))
        return {identity(kept.key): kept for kept in map(self._kept, found)}

    async def versions(
        self, wanted: Sequence[tuple[Any, int]]
    ) -> dict[tuple[Any, int], StoredVersion]:
        # Current documents first: one that is replaced meanwhile is among the previous ones by
        # then.
        current = await self._current([key for key, _ in wanted]) if wanted else {}
        found = {
            (name, each.number): each for name, each in current.items() if each.number is not None
        }
        asked = {(identity(key), number): (key, number) for key, number in wanted}
        found = {place: each for place, each in found.items() if place in asked}
        missing = [each for place, each in asked.items() if place not in found]
        for each in map(self.rows.to_version, await self.rows.find_exact(missing)):
            found[identity(each.key), each.number or 0] = each
        return found

    async def history(self, key: Any, *, at: Timestamp | None = None) -> list[StoredVersion]:
        current = (await self._current([key], at=at)).get(identity(key))
        previous = [self.rows.to_version(each) for each in await self.rows.find_all(key, at=at)]
        return _merge_versions(previous, current)

    async def before(self, wanted: Sequence[tuple[Any, int]]) -> list[StoredVersion | None]:
        return await self.rows.before(wanted)

    async def read(
        self, after: tuple[Any] | None, *, size: int, at: Timestamp
    ) -> tuple[list[StoredVersion], bool]:
        names = self.names
        few: Document = {"$limit": size + 1}
        row = {"_id": 0, "k": f"${names.document}", "n": f"${names.number}", "p": _ALL}
        document = {"_id": 0, "k": "$_id", "n": f"${names.number}", "c": _ALL}
        place = None if after is None else encode_element("k", after[0])
        while True:
            previous: Stages = [*self.rows.in_order(place), few, {"$project": row}]
            pipeline: Stages = [
                *match_after("_id", place),
                {"$sort": {"_id": 1}},
                few,
                {"$project": document},
                # The first rows of both; together they contain the first of all.
                {"$unionWith": {"coll": names.previous, "pipeline": previous}},
                {"$sort": {"k": 1, "n": 1}},
                few,
            ]
            found, end = await self.rows.read_at(
                pipeline, size=size, at=at, collection=self.collection
            )
            exact = found if end else trim_to_exact_id(found, "k")
            versions = await self._versions_of(exact, end=end, at=at)
            if versions or end:
                return versions, end
            # Rows without a number or an id are no versions.
            place = last_id_element(exact or found, "k")

    async def _versions_of(
        self, rows: Sequence[RawBSONDocument], *, end: bool, at: Timestamp
    ) -> list[StoredVersion]:
        """Return the versions of documents from rows of both collections.

        Args:
            end: Whether no rows follow; otherwise the last document may have more.
        """
        documents: dict[Any, tuple[list[StoredVersion], list[StoredVersion]]] = {}
        last = None
        for row in rows:
            # Decoded, it might be the id of another document.
            if not is_exact_id(last_id_element([row], "k")):
                continue
            is_current = "c" in row
            kept = self._kept(row["c"]) if is_current else self.rows.to_version(row["p"])
            last = kept.key
            documents.setdefault(identity(last), ([], []))[is_current].append(kept)
        tail: list[StoredVersion] = []
        if rows and not end:
            del documents[identity(last)]
            tail = await self.history(last, at=at)
        whole = [
            each
            for previous, current in documents.values()
            for each in _merge_versions(previous, current[0] if current else None)
        ]
        return whole + tail

    # the stream

    def interpret_event(self, event: ChangeEvent) -> LogicalWrite | None:
        earlier = None if event.before is None else self._kept(event.before)
        # Without a pre-image the archive has the previous state. The last of the previous versions
        # may belong to a later write by now, or be that of the deletion.
        said = partial(
            LogicalWrite,
            key=event.key,
            before=earlier,
            asks_before=False,
            existed=event.operation != "insert",
        )
        if event.operation == "delete":
            gone = StoredVersion(key=event.key, number=None, content=None)
            return said(number=None, version=gone)
        number = None
        if event.update is not None:
            number = whole_number((event.update.get("updatedFields") or {}).get(self.names.number))
            if number is None:
                # A write that does not increment the number has no version.
                return None
        if event.after is None:
            return said(number=number, version=None)
        made = self._kept(event.after)
        if made.number is None or (earlier is not None and earlier.number == made.number):
            return None
        return said(number=made.number, version=made)

    # writing

    async def last(self, key: Any) -> StoredVersion | None:
        current = (await self._current([key])).get(identity(key))
        if current is not None:
            return current
        row = await self.rows.last(key)
        last = None if row is None else self.rows.to_version(row)
        if last is None or last.content is None:
            return last
        return StoredVersion(key=key, number=(last.number or 0) + 1, content=None)

    async def write(
        self, writing: WriteSession, last: StoredVersion | None, made: StoredVersion
    ) -> None:
        if last is None or last.content is None:
            assert made.content is not None
            if await writing.insert_unless(self.collection, made.content, ["_id"]) is None:
                raise ConcurrentWrite
            return
        found = await self._put(writing, last)
        compared: list[Any] = [{"$eq": ["$$ROOT", {"$literal": last.content}]}]
        if not writing.in_transaction:
            # The cluster time is the primary's clock, or slightly ahead of it.
            began = datetime.fromtimestamp(writing.cluster_time.time, UTC)
            compared.append({"$lt": ["$$NOW", began + timedelta(seconds=SETTLE_S / 2)]})
        query = {"_id": made.key, self.names.number: last.number, "$expr": {"$and": compared}}
        if made.content is None:
            changed = await writing.remove(self.collection, query)
        else:
            replacing = [{"$replaceWith": {"$literal": made.content}}]
            changed = await writing.change(self.collection, query, replacing)
        if changed is None:
            raise ConcurrentWrite
        if found and not writing.in_transaction:
            writing.main_write_time = writing.cluster_time
            # `recover` in another process may just have removed it.
            await writing.insert_unless(
                self.names.previous, self.rows.to_row(last), self.rows.unique
            )

    async def _put(self, writing: WriteSession, last: StoredVersion) -> bool:
        """Insert a version into the previous ones. Returns True if it was there already.

        Raises:
            ConcurrentWrite: Another version with the number is there.
        """
        assert last.number is not None
        row = self.rows.to_row(last)
        # In a transaction a failed insert would abort it.
        if not writing.in_transaction or not await self._put_before(last):
            if await writing.insert_unless(self.names.previous, row, self.rows.unique) is not None:
                return False
            if writing.in_transaction or not await self._put_before(last):
                raise ConcurrentWrite
        return True

    async def _put_before(self, last: StoredVersion) -> bool:
        assert last.number is not None
        assert last.content is not None
        found = await self.rows.find_exact([(last.key, last.number)])
        if not found:
            return False
        kept = self.rows.to_version(found[0])
        if kept.content is not None and is_same(
            without_reserved(kept.content), without_reserved(last.content)
        ):
            return True
        # Left by a crashed application, and different from the current version; unless the current
        # version has changed since it was read.
        current = (await self._current([last.key])).get(identity(last.key))
        content = None if current is None else current.content
        if content is not None and is_same(content, last.content):
            await self._drop([{"_id": found[0]["_id"]}])
        return False

    async def count_unfinished(self) -> int:
        return len(await self._find_unfinished())

    async def recover(self, *, settle_s: float = SETTLE_S) -> int:
        first = await self._find_unfinished()
        if not first:
            return 0
        await asyncio.sleep(settle_s)
        second = await self._find_unfinished()
        still = [each for name, each in second.items() if first.get(name) == each]
        names = self.names
        await self._drop(
            {names.document: {"$eq": key}, names.number: {"$gte": current}}
            for key, _, _, current in still
        )
        return len(still)

    async def _find_unfinished(self) -> dict[Any, tuple[Any, Any, Any, Any]]:
        """Return documents whose last previous version is not below the current one.

        By `identity`: the document's `_id`, that version's `_id`, its number, and the current
        number.
        """
        names = self.names
        found = await self.mongo.aggregate(
            names.previous,
            [
                {"$sort": {names.document: -1, names.number: -1}},
                {"$group": {"_id": f"${names.document}", "last": {"$first": "$$ROOT"}}},
                {"$project": {"row": "$last._id", "v": f"$last.{names.number}"}},
                {
                    "$lookup": {
                        "from": self.collection,
                        "localField": "_id",
                        "foreignField": "_id",
                        "pipeline": [{"$project": {"v": f"${names.number}"}}],
                        "as": "current",
                    }
                },
                {"$unwind": "$current"},
                {"$match": {"$expr": {"$gte": ["$v", "$current.v"]}}},
            ],
        )
        return {
            identity(each["_id"]): (each["_id"], each["row"], each["v"], each["current"]["v"])
            for each in found
        }

    async def _drop(self, queries: Iterable[Document]) -> None:
        """Delete the previous versions that match any of these queries."""
        either = list(queries)

        async def work(writing: WriteSession) -> int:
            return await writing.remove_all(self.names.previous, {"$or": either})

        if either:
            await write(self.mongo, work)


_ALL = "$$ROOT"


def _merge_versions(
    previous: Sequence[StoredVersion], current: StoredVersion | None
) -> list[StoredVersion]:
    """Return all versions of a document; its removal is the last if it no longer exists.

    Rows without a number are left out.
    """
    previous = [each for each in previous if each.number is not None]
    if current is not None and current.number is None:
        return previous
    if current is None:
        if not previous or previous[-1].content is None:
            return list(previous)
        return [*previous, StoredVersion(key=previous[-1].key, number=None, content=None)]
    number = current.number or 0
    return [*(each for each in previous if (each.number or 0) < number), current]
