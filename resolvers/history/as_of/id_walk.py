"""A walk through a collection as of a moment, in id order: the next documents, and of each the
version that stood.

The ids of the next ones are read first, and their versions by them.

Source, with measurements: docs/decisions/0008-as-of.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp

from revstream.resolvers.pagination.page import Window
from revstream.streams.archive.coverage import Coverage, CoverageStore, coverage_stage
from revstream.streams.archive.indexes import DOCUMENT_INDEX, TIME_INDEX, last_version_stages
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions

__all__ = ["IdWalk", "WalkStep"]

# As the index of documents has it in its partialFilterExpression.
_FIRST: Document = {"first": True}


@dataclass(frozen=True, slots=True)
class WalkStep:
    """Result of one step.

    Attributes:
        more: Whether there may be documents after `last`, the id of the last one.
        found: The matching versions that were current, in the walk's order.
        coverage: Read after them.
    """

    more: bool
    last: Any
    found: list[Document]
    coverage: Coverage


class IdWalk:
    """Through the documents that an archive has.

    Args:
        where_id: on the documents' ids alone; nothing else is passed.
        naive: see `Mongo.find`.
    """

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        at: Timestamp,
        *,
        where_id: Mapping[str, Any],
        naive: bool,
    ) -> None:
        self._mongo = mongo
        self._archive = archive
        self._at = at
        self._where_id = where_id
        self._coverages = CoverageStore(mongo)
        self._naive = naive

    async def step(
        self,
        window: Window,
        place: Mapping[str, Any],
        count: int,
        where: Mapping[str, Any],
        projection: Mapping[str, Any] | None,
    ) -> WalkStep:
        """Read the next `count` documents that existed, and their versions that were current.

        Args:
            place: Where the last step ended.
            projection: Of the versions, `op` among it; None: whole versions.
        """
        ids = await self._ids(window, place, count)
        last, more = ids[-1] if ids else None, len(ids) == count
        if not ids:
            return WalkStep(more, last, [], await self._coverages.load(self._archive.collection))
        stages = [{"$match": where}] if where else []
        found, coverage = await self._versions({"doc": {"$in": ids}}, stages, projection)
        places = {identity(each["doc"]): each for each in found if each["op"] != "DELETE"}
        # Each once: while a document is being cut, two of its versions are its first.
        stood = [places.pop(key) for key in map(identity, ids) if key in places]
        return WalkStep(more, last, stood, coverage)

    async def _ids(self, window: Window, place: Mapping[str, Any], count: int) -> list[Any]:
        conditions = [_FIRST, {"at": {"$lte": self._at}}, self._where_id, place]
        passed = await self._mongo.find(
            self._archive.name,
            {"$and": [each for each in conditions if each]},
            FindOptions(
                projection={"_id": 0, "doc": 1},
                sort=window.keys,
                limit=count,
                hint=DOCUMENT_INDEX,
                short=True,
                naive=self._naive,
            ),
        )
        return [each["doc"] for each in passed]

    async def _versions(
        self,
        query: Mapping[str, Any],
        stages: Sequence[Mapping[str, Any]],
        projection: Mapping[str, Any] | None,
    ) -> tuple[list[Document], Coverage]:
        """Read the last versions of documents until then, and the coverage after them."""
        pipeline: list[Mapping[str, Any]] = [
            {"$match": query},
            *last_version_stages(self._at),
            *stages,
        ]
        if projection is not None:
            pipeline.append({"$project": projection})
        pipeline.append(coverage_stage(self._archive.collection, self._at))
        found = await self._mongo.aggregate(
            self._archive.name, pipeline, hint=TIME_INDEX, naive=self._naive
        )
        # Known by its name: MongoDB does not promise the order of a union.
        records = [each["coverage"] for each in found if "coverage" in each]
        versions = [each for each in found if "coverage" not in each]
        return versions, Coverage.from_record(records[0] if records else None)
