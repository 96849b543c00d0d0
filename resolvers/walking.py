"""A walk through a collection as of a moment, in id order: the next documents, and of each the
version that stood.

The ids of the next ones are read first, and their versions by them. Which ones they were is
remembered (`resolvers.successors`): a page of documents that were passed before, as of whatever
moment, is one read of the versions up to the last of them. What such a read finds counts only
where the step cannot have found anything else; else the step is made as if nothing were remembered.

Source, with measurements: docs/decisions/0008-as-of.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson.timestamp import Timestamp

from resolvers.pages import Window
from resolvers.successors import ORDERED, Direction, Reach, Start, Successors
from streams.archive import Archive
from streams.archive_indexes import ALL, DOCUMENTS, MOMENTS, last_of_each
from streams.documents import Document
from streams.events import identity
from streams.horizons import Horizons, horizon_stage
from streams.mongo import Mongo

__all__ = ["Passed", "Place", "Walk"]

# As the index of documents has it in its partialFilterExpression.
_FIRST: Document = {"first": True}
# Steps whose ids are read at once where one page after the other is.
_AHEAD = 5
_MOST_AHEAD = 500


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
class Place:
    """Where a step begins.

    Attributes:
        query: what lies behind it. start: its id; None where `query` has another end as well.
        guess: whether what is remembered is about what was there then.
    """

    query: Mapping[str, Any]
    start: Start | None
    guess: bool = True

    @classmethod
    def first(cls, window: Window) -> Place:
        return cls(window.query, window.start)

    def behind(self, window: Window, passed: Passed, count: int) -> Place:
        """Once a step of so many documents was made from here."""
        start = None if self.start is None else (passed.last,)
        query = window.behind({"doc": passed.last})
        return Place(query, start, guess=4 * len(passed.found) >= count)


class Walk:
    """Through the documents that an archive has.

    Args:
        where_id: on the documents' ids alone; nothing else is passed.
        successors: of all walks of this process.
        naive: see `Mongo.find`.
    """

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        at: Timestamp,
        *,
        where_id: Mapping[str, Any],
        successors: Successors,
        naive: bool,
    ) -> None:
        self._mongo = mongo
        self._archive = archive
        self._at = at
        self._where_id = where_id
        self._horizons = Horizons(mongo)
        self._successors = successors
        self._naive = naive

    async def step(
        self,
        window: Window,
        place: Place,
        count: int,
        where: Mapping[str, Any],
        projection: Mapping[str, Any] | None,
    ) -> Passed:
        """The next `count` documents that existed by then, and the versions of theirs that stood.

        Args:
            projection: of the versions that are found, `op` among it; None: as they are.
        """
        direction = self._archive.name, window.keys[0][1] < 0
        start, wanted = place.start, count
        if start is not None and place.guess and not (where or self._where_id):
            reach = self._successors.reach(direction, start, count)
            if reach.known == count:
                passed = await self._step_to(direction, start, reach, projection)
                if passed is not None:
                    return passed
            elif reach.known and start:
                # It goes on where a page ended, and will again.
                wanted = max(count, min(_AHEAD * count, _MOST_AHEAD))
        ids = await self._ids(window, place.query, wanted)
        if start is not None and not self._where_id:
            ended = len(ids) < wanted
            self._successors.learn(direction, start, ids, self._at, ended=ended)
        del ids[count:]
        last, more = ids[-1] if ids else None, len(ids) == count
        if not ids:
            return Passed(more, last, [], await self._horizons.of(self._archive.collection))
        stages = [{"$match": where}] if where else []
        found, horizon = await self._versions({"doc": {"$in": ids}}, stages, projection)
        places = {identity(each["doc"]): each for each in found if each["op"] != "DELETE"}
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
        self,
        direction: Direction,
        start: Start,
        reach: Reach,
        projection: Mapping[str, Any] | None,
    ) -> Passed | None:
        """None where a step might have come by others."""
        query = _between(start, reach, descending=direction[1])
        most = 2 * reach.known
        found, horizon = await self._versions(query, [{"$limit": most}], projection)
        ids = [each["doc"] for each in found]
        kinds = set(map(type, [*start, *ids, *([] if reach.whole else [reach.last])]))
        if len(found) == most or len(kinds) > 1 or not kinds <= ORDERED:
            return None
        found.sort(key=_id_of, reverse=direction[1])
        if reach.whole or len(found) != reach.known:
            ids = [each["doc"] for each in found]
            self._successors.learn(direction, start, ids, self._at, ended=reach.whole)
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
        found = await self._mongo.aggregate(
            self._archive.name, pipeline, hint=MOMENTS, naive=self._naive
        )
        # Known by its name: MongoDB does not promise the order of a union.
        horizons = [each["horizon"] for each in found if "horizon" in each]
        versions = [each for each in found if "horizon" not in each]
        return versions, "".join(horizons)


def _between(start: Start, reach: Reach, *, descending: bool) -> Document:
    """Records of the documents behind `start`, as far as is known."""
    behind, upto = ("$lt", "$gte") if descending else ("$gt", "$lte")
    # A bound alone holds for its own type; those of others are found, too, before and behind.
    if reach.whole:
        return {"doc": {"$not": {upto: start[0]}}} if start else ALL
    if start:
        return {"doc": {behind: start[0], upto: reach.last}}
    return {"doc": {"$not": {behind: reach.last}}}


def _id_of(record: Document) -> Any:
    return record["doc"]
