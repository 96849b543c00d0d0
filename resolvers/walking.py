"""A walk through a collection as of a moment, in id order: the next documents, and of each the
version that stood.

The ids of the next ones are read first, and their versions by them. How far the first step went is
remembered: the same page as of another moment, as somebody asks for who looks back and forth, is
one read of the versions up to there. What such a read finds counts only where the step cannot have
found anything else; else the step is made as if nothing were remembered.

Source, with measurements: docs/decisions/0008-as-of.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson.int64 import Int64
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

from resolvers.pages import Window
from streams.archive import DOCUMENTS, Archive, last_of_each
from streams.documents import Document
from streams.events import identity
from streams.horizons import Horizons, horizon_stage
from streams.mongo import Mongo

__all__ = ["Passed", "Reaches", "Walk"]

# As the index of documents has it in its partialFilterExpression.
_FIRST: Document = {"first": True}
_THERE: Document = {"op": {"$ne": "DELETE"}}
# Without a word on the documents, 6.0.5 reads all of their versions.
_ALL: Document = {"doc": {"$gte": MinKey()}}
# Of which Python and MongoDB have the same order.
_ORDERED = frozenset({str, int, Int64, ObjectId})


@dataclass(frozen=True, slots=True)
class Passed:
    """What a step came by.

    Attributes:
        more: whether there may be documents behind `last`, the id of the last one. found: the
            versions that stood then, of those that were there and matched; in the walk's order.
            horizon: read behind them.
    """

    more: bool
    last: Any
    found: list[Document]
    horizon: str


@dataclass(frozen=True, slots=True)
class _Reach:
    """Where a first step ended, and at which moment. `whole`: there was nothing behind it."""

    last: Any
    at: Timestamp
    whole: bool


_Known = tuple[str, bool, int]
Reaches = dict[_Known, _Reach]
"""By collection, whether from its end, and size of the step: 2,000 for a collection at most."""


class Walk:
    """Through the documents that an archive has.

    Args:
        where_id: on the documents' ids alone; nothing else is passed.
        reaches: of all walks of this process.
        naive: see `Mongo.find`.
    """

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        at: Timestamp,
        *,
        where_id: Mapping[str, Any],
        reaches: Reaches,
        naive: bool,
    ) -> None:
        self._mongo = mongo
        self._archive = archive
        self._at = at
        self._where_id = where_id
        self._horizons = Horizons(mongo)
        self._reaches = reaches
        self._naive = naive

    async def step(
        self,
        window: Window,
        place: Mapping[str, Any],
        count: int,
        where: Mapping[str, Any],
        projection: Mapping[str, Any] | None,
    ) -> Passed:
        """The next `count` documents that existed by then, and the versions of theirs that stood.

        Args:
            place: what lies behind the last step.
            projection: of the versions that are found, `op` among it; None: as they are.
        """
        known = None
        if not (place or where or self._where_id):
            known = (self._archive.name, window.keys[0][1] < 0, count)
            if (reach := self._reaches.get(known)) is not None:
                passed = await self._step_to(known, reach, projection)
                if passed is not None:
                    return passed
        ids = await self._ids(window, place, count)
        last, more = ids[-1] if ids else None, len(ids) == count
        if known is not None and (not ids or type(last) in _ORDERED):
            self._reaches[known] = _Reach(last, self._at, whole=not more)
        if not ids:
            return Passed(more, last, [], await self._horizons.of(self._archive.collection))
        matched = {"$match": {"$and": [_THERE, where] if where else [_THERE]}}
        found, horizon = await self._versions({"doc": {"$in": ids}}, [matched], projection)
        places = {identity(each["doc"]): each for each in found}
        # Each once: while a document is being cut, two of its versions are its first.
        stood = [places.pop(key) for key in map(identity, ids) if key in places]
        return Passed(more, last, stood, horizon)

    async def _ids(self, window: Window, place: Mapping[str, Any], count: int) -> list[Any]:
        conditions = [_FIRST, {"at": {"$lte": self._at}}, self._where_id, place]
        passed = await self._mongo.find(
            self._archive.name,
            {"$and": [each for each in conditions if each]},
            projection={"_id": 0, "doc": 1},
            sort=window.keys,
            limit=count,
            hint=DOCUMENTS,
            short=True,
            naive=self._naive,
        )
        return [each["doc"] for each in passed]

    async def _step_to(
        self, known: _Known, reach: _Reach, projection: Mapping[str, Any] | None
    ) -> Passed | None:
        """None where a step might have come by others; then nothing is remembered any more."""
        _, descending, count = known
        # Of other types those behind the last one are found, too.
        beyond = {"$lt" if descending else "$gt": reach.last}
        query: Document = _ALL if reach.whole else {"doc": {"$not": beyond}}
        most = 2 * count
        found, horizon = await self._versions(query, [{"$limit": most}], projection)
        ids = [each["doc"] for each in found]
        kinds = set(map(type, ids if reach.whole else [*ids, reach.last]))
        exact = len(found) < most and (not kinds or (len(kinds) == 1 and kinds <= _ORDERED))
        gone = not reach.whole and len(found) < count and self._at >= reach.at
        if not exact or gone:
            # Too many have come in between; or too few are left, now and not only then.
            self._reaches.pop(known, None)
        if not exact:
            return None
        found.sort(key=_id_of, reverse=descending)
        stood = [each for each in found if each["op"] != "DELETE"]
        return Passed(not reach.whole, reach.last, stood, horizon)

    async def _versions(
        self,
        query: Mapping[str, Any],
        stages: Sequence[Mapping[str, Any]],
        projection: Mapping[str, Any] | None,
    ) -> tuple[list[Document], str]:
        """The last versions of documents by then, and the horizon behind them."""
        pipeline: list[Mapping[str, Any]] = [{"$match": query}, *last_of_each(self._at), *stages]
        if projection is not None:
            pipeline.append({"$project": projection})
        pipeline.append(horizon_stage(self._archive.collection))
        found = await self._mongo.aggregate(self._archive.name, pipeline, naive=self._naive)
        horizon = found.pop()["horizon"] if found and "horizon" in found[-1] else ""
        return found, horizon


def _id_of(record: Document) -> Any:
    return record["doc"]
