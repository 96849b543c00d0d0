"""Archive horizon: from where on a collection's history is complete, and exactly, a document's.

A collection's horizon is the token of the last version that replaced one deleted by retention: from
there on no version is missing. It is stored before the first of them is deleted. So a reader that
loads the horizon after its read either read every version or gets an error. Purges do not move it:
purged versions are missing, and the document's own mark says so. Source:
docs/decisions/0016-retention.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from bson import Timestamp

from revstream.streams.archive.coverage import COLLECTION, Coverage, TimeMark, history_lost_error
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity, possible_ids
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind, HistoryLost
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.versioning.truncation_mark import TruncationMark, is_born

__all__ = ["Horizons", "RetentionProgress", "check_horizon", "checked_results"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetentionProgress:
    """Progress of retention: versions replaced up to `token` obey the rule `keep`."""

    keep: str
    token: str


class Horizons:
    """Horizons of all collections; read each time, since another process may just have deleted
    versions.
    """

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo

    async def load(self, collection: str) -> str:
        """Return the token; "" where retention has deleted nothing yet."""
        found = await self._mongo.find(
            COLLECTION, {"_id": collection}, FindOptions(limit=1, naive=True)
        )
        return found[0].get("token", "") if found else ""

    async def advance(self, collection: str, token: str) -> None:
        """Allow the deletion of versions replaced up to a token; the horizon never goes back."""
        await self._mongo.find_one_and_update(
            COLLECTION,
            {"_id": collection},
            {"$max": {"token": token}, "$currentDate": {"at": True}},
            upsert=True,
        )

    async def load_progress(self, collection: str) -> RetentionProgress | None:
        found = await self._mongo.find(COLLECTION, {"_id": collection}, FindOptions(limit=1))
        place = found[0].get("place") if found else None
        return None if place is None else RetentionProgress(**place)

    async def save_progress(self, collection: str, place: RetentionProgress) -> None:
        await self._mongo.find_one_and_update(
            COLLECTION,
            {"_id": collection},
            {"$set": {"place": {"keep": place.keep, "token": place.token}}},
            upsert=True,
        )

    async def check_after_read(self, collection: str, position: str) -> None:
        """Check, after a read of what follows a token, that no version was missing.

        Raises:
            HistoryLost: Versions after the token were deleted.
        """
        token = await self.load(collection)
        if position < token:
            raise _before_horizon_error(
                collection, token, _when(resume_tokens.cluster_time(position))
            )

    async def errors_at(
        self,
        archive: Archive,
        wanted: Sequence[tuple[Any, Timestamp]],
        coverage: Coverage,
    ) -> list[HistoryLost | ArchiveBehind | None]:
        """N (`_id`, time) without a version -> n errors; None where it is known that no document
        existed.

        A first version other than an INSERT says that the document existed before it.
        """
        firsts = await self._firsts(archive, [key for key, _ in wanted])
        return [
            self._error_at(archive, key, at, firsts.get(identity(key)), coverage)
            for key, at in wanted
        ]

    def _error_at(
        self,
        archive: Archive,
        key: Any,
        at: Timestamp,
        first: _FirstVersion | None,
        coverage: Coverage,
    ) -> HistoryLost | ArchiveBehind | None:
        name = f"{archive.collection}/{key}"
        if first is not None and at < first.at:
            if first.cut is not None and first.cut.since <= at:
                return _truncated_error(archive, key, first, "an earlier time was requested")
            born = first.born if first.cut is None else first.cut.born
            if not (born or coverage.is_found_after_gap(first.at)):
                return history_lost_error(name, TimeMark(first.at, first.wall), "was not recorded")
        if coverage.begun is not None and at < coverage.begun.at:
            return history_lost_error(name, coverage.begun, "was not recorded")
        return coverage.gap_error(archive.collection, at)

    async def number_errors(
        self, archive: Archive, wanted: Sequence[tuple[Any, int]]
    ) -> list[HistoryLost | None]:
        """N (`_id`, number) that were not found -> n errors; None where no such version can have
        been deleted.

        Between the lowest and the highest deleted number, not every number was necessarily in use.
        """
        firsts = await self._firsts(archive, [key for key, _ in wanted])
        return [
            _truncated_error(archive, key, first, f"version {number} was requested")
            if (first := firsts.get(identity(key))) is not None
            and first.cut is not None
            and first.cut.number <= number < first.number
            else None
            for key, number in wanted
        ]

    async def check_number(self, archive: Archive, key: Any, number: int) -> None:
        """Check a version that was not found.

        Raises:
            HistoryLost: It may have been deleted.
        """
        (lost,) = await self.number_errors(archive, [(key, number)])
        if lost is not None:
            raise lost

    async def _firsts(self, archive: Archive, keys: Iterable[Any]) -> dict[Any, _FirstVersion]:
        """Return the first versions of these documents, by identity."""
        wanted = {identity(key): key for key in keys}
        if not wanted:
            return {}
        found = await self._mongo.find(
            archive.name,
            {"doc": {"$in": possible_ids([*wanted.values()])}, "first": True},
            FindOptions(
                projection=dict.fromkeys(("doc", "v", "at", "wall", "op", "gap", "born", "cut"), 1)
            ),
        )
        return {
            identity(each["doc"]): _FirstVersion(
                token=each["_id"],
                number=each["v"],
                at=each["at"],
                wall=each["wall"],
                born=is_born(each),
                cut=TruncationMark.from_record(each.get("cut")),
            )
            for each in found
        }


def check_horizon(collection: str, at: Timestamp, coverage: Coverage) -> None:
    """Refuse a time at which not all is known.

    Raises:
        HistoryLost: Versions current then were deleted, or never recorded.
        ArchiveBehind: The time is in a gap whose end is not known yet.
    """
    token = coverage.horizon
    if token and at < resume_tokens.cluster_time(token):
        raise _before_horizon_error(collection, token, "an earlier time")
    refusal = coverage.error_at(collection, at)
    if refusal is not None:
        raise refusal


def checked_results(
    collection: str, results: Iterable[tuple[Timestamp, T]], coverage: Coverage
) -> list[T | HistoryLost | ArchiveBehind]:
    """N (time, result of a read) -> the result, or the error of a time at which not all is known.

    Args:
        coverage: loaded after the reads.
    """
    checked: list[T | HistoryLost | ArchiveBehind] = []
    for at, result in results:
        try:
            check_horizon(collection, at, coverage)
            checked.append(result)
        except (HistoryLost, ArchiveBehind) as exc:
            checked.append(exc)
    return checked


@dataclass(frozen=True, slots=True)
class _FirstVersion:
    """First version of a document; `born`: the document did not exist before."""

    token: str
    number: int
    at: Timestamp
    wall: datetime
    born: bool
    cut: TruncationMark | None


def _before_horizon_error(collection: str, token: str, asked: str) -> HistoryLost:
    return HistoryLost(
        f"history of {collection}: {asked} was requested, minimum is "
        f"{_when(resume_tokens.cluster_time(token))}; older versions were deleted by retention "
        "(keep)",
        oldestResumeToken=token,
    )


def _truncated_error(archive: Archive, key: Any, first: _FirstVersion, asked: str) -> HistoryLost:
    assert first.cut is not None
    purge = first.cut.purge
    how = (
        "were deleted by retention (keep)"
        if purge is None
        else f"were deleted, the last time by a purge on {purge.at:%F}"
    )
    return HistoryLost(
        f"{archive.collection}/{key}: {first.cut.versions} versions before version {first.number} "
        f"of {_when(first.at)} {how}, and {asked}",
        oldestResumeToken=first.token,
        oldestVersion=first.number,
    )


def _when(at: Timestamp) -> str:
    return f"{at.as_datetime():%F %T}Z"
