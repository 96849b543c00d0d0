"""CURRENT_FLAG layout: versions as in DOCUMENT_PER_VERSION; the current one has `current: true`.

A write inserts the new version with its flag, and then removes the flags of older ones. In between,
and after a crash there, two versions are flagged; readers ignore a flagged version below another
one. Removing the flag of a version below another flagged one is correct at any time, for any
process, and may be repeated: so a crash need not be distinguished from a running update. The next
write of the document repairs it, and so does `recover`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from revstream.streams.layouts.core.interface import SETTLE_S
from revstream.streams.layouts.core.query_rewrite import replace_first_name, rewrite_query
from revstream.streams.layouts.core.stored_version import (
    ConcurrentWrite,
    StoredVersion,
    valid_id_query,
)
from revstream.streams.layouts.self_versioned.document_per_version import DocumentPerVersionLayout
from revstream.streams.layouts.self_versioned.engine import Stages
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import NO_OPTIONS, FindOptions
from revstream.streams.mongo.transactions import WriteSession, write

__all__ = ["CurrentFlagLayout"]

_NEWER = "__newer"


class CurrentFlagLayout(DocumentPerVersionLayout):
    # A version that is ignored because of a newer one must not be read before that one exists.
    """Layout that flags the current version of each document."""

    snapshot = True

    def _own(self) -> tuple[str, ...]:
        return (*super()._own(), self.names.current)

    async def create_indexes(self) -> None:
        await super().create_indexes()
        names = self.names
        await self.mongo.create_index(
            self.collection,
            [(names.document, 1), (names.number, -1)],
            partialFilterExpression={names.current: True},
            collation={"locale": "simple"},
        )

    def index_fields(self, fields: Sequence[str]) -> tuple[list[str], Document] | None:
        flagged = {"partialFilterExpression": {self.names.current: True}}
        return [self._renamed(each) for each in fields], flagged

    def _renamed(self, path: str) -> str:
        return replace_first_name(path, "_id", self.names.document) or path

    def current_stages(
        self,
        query: Mapping[str, Any],
        options: FindOptions = NO_OPTIONS,
    ) -> Stages:
        early, exact = rewrite_query(query, self._renamed)
        stages: Stages = [{"$match": {"$and": [self._flagged, early]} if early else self._flagged}]
        if options.sort:
            stages.append({"$sort": {self._renamed(path): order for path, order in options.sort}})
        stages += self._alone()
        if not exact:
            stages.append({"$match": query})
        if options.limit:
            stages.append({"$limit": options.limit})
        return stages

    @property
    def _flagged(self) -> Document:
        flagged = {self.names.current: True, self.names.deleted: {"$ne": True}}
        return {**flagged, **valid_id_query(self.names.document)}

    def _alone(self) -> Stages:
        """Return stages that drop versions below another flagged one, and produce documents."""
        names = self.names
        return [
            {
                "$lookup": {
                    "from": self.collection,
                    "localField": names.document,
                    "foreignField": names.document,
                    "let": {"v": f"${names.number}"},
                    "pipeline": [
                        {
                            "$match": {
                                names.current: True,
                                "$expr": {"$gt": [f"${names.number}", "$$v"]},
                            }
                        },
                        {"$limit": 1},
                        {"$project": {"_id": 1}},
                    ],
                    "as": _NEWER,
                }
            },
            {"$match": {_NEWER: {"$size": 0}}},
            {"$set": {"_id": f"${names.document}"}},
            {"$unset": [*self.own, _NEWER]},
        ]

    def lookup_stages(self, field: str) -> tuple[Document, list[Document]]:
        lookup = {"from": self.collection, "localField": "key", "foreignField": field}
        return lookup, self.current_stages({})

    async def write(
        self, writing: WriteSession, last: StoredVersion | None, made: StoredVersion
    ) -> None:
        row = self.rows.to_row(made, **{self.names.current: True})
        if await writing.insert_unless(self.collection, row, self.rows.unique) is None:
            raise ConcurrentWrite
        # Changes after this write must not come after those of other writers in between.
        writing.main_write_time = writing.cluster_time
        assert made.number is not None
        await self._lower(writing, made.key, made.number)

    async def _lower(self, writing: WriteSession, key: Any, number: int) -> None:
        """Remove the flags of the versions below a number."""
        names = self.names
        older = {names.document: {"$eq": key}, names.current: True, names.number: {"$lt": number}}
        await writing.change_all(self.collection, older, {"$unset": {names.current: ""}})

    async def count_unfinished(self) -> int:
        return len(await self._flagged_twice())

    async def recover(self, *, settle_s: float = SETTLE_S) -> int:
        found = await self._flagged_twice()
        for each in found:

            async def lower(writing: WriteSession, each: Document = each) -> None:
                await self._lower(writing, each["_id"], each["last"])

            await write(self.mongo, lower)
        return len(found)

    async def _flagged_twice(self) -> list[Document]:
        """Return documents with several flagged versions, and the number of the last one."""
        names = self.names
        return await self.mongo.aggregate(
            self.collection,
            [
                {"$match": {names.current: True}},
                {
                    "$group": {
                        "_id": f"${names.document}",
                        "flags": {"$sum": 1},
                        "last": {"$max": f"${names.number}"},
                    }
                },
                {"$match": {"flags": {"$gt": 1}}},
            ],
        )
