"""CURRENT_FLAG: each version is a document `{docId, v, …}`, unique on both, and the current one has
`current: true`.

A write inserts the new version with its flag, and then takes the flags of older ones away. In
between, and after a crash there, two are flagged: whoever reads leaves out those above which there
is another one. Taking a flag away from a version that has a flagged one above it is right at any
time and may be done by anybody, twice too: so what a crash has left need not be told apart from an
update under way. The next write of the document mends it, and `recover`.
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
from revstream.streams.mongo.transactions import WriteSession, write

__all__ = ["CurrentFlagLayout"]

_NEWER = "__newer"


class CurrentFlagLayout(DocumentPerVersionLayout):
    # One that is left out because there is a newer one must not have been read before that came.
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
        sort: Sequence[tuple[str, int]],
        limit: int,
    ) -> Stages:
        early, exact = rewrite_query(query, self._renamed)
        stages: Stages = [{"$match": {"$and": [self._flagged, early]} if early else self._flagged}]
        if sort:
            stages.append({"$sort": {self._renamed(path): order for path, order in sort}})
        stages += self._alone()
        if not exact:
            stages.append({"$match": query})
        if limit:
            stages.append({"$limit": limit})
        return stages

    @property
    def _flagged(self) -> Document:
        flagged = {self.names.current: True, self.names.deleted: {"$ne": True}}
        return {**flagged, **valid_id_query(self.names.document)}

    def _alone(self) -> Stages:
        """Without those above which there is another flagged one; as documents."""
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
        return lookup, self.current_stages({}, (), 0)

    async def write(
        self, writing: WriteSession, last: StoredVersion | None, made: StoredVersion
    ) -> None:
        row = self.rows.to_row(made, **{self.names.current: True})
        if await writing.insert_unless(self.collection, row, self.rows.unique) is None:
            raise ConcurrentWrite
        # What stands behind this write must not stand behind others' that come before the next.
        writing.main_write_time = writing.cluster_time
        assert made.number is not None
        await self._lower(writing, made.key, made.number)

    async def _lower(self, writing: WriteSession, key: Any, number: int) -> None:
        """Take the flags of the versions below a number away."""
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
        """Documents of which several versions are flagged, and the number of the last one."""
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
