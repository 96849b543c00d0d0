"""States of single documents at moments, as far as they are known.

A document whose first version is not an insert existed before it. A moment in a window of lost
history is known only for documents that were written in it after the loss.
Source: docs/decisions/0041-coverage.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeAlias

from bson.timestamp import Timestamp

from revstream.resolvers.access.row_filter import RowFilter
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.pagination.projection import Fields, record_projection
from revstream.streams.archive.coverage import UNLIMITED, Coverage, CoverageStore
from revstream.streams.archive.horizon import Horizons
from revstream.streams.archive.store import Archive
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind, HistoryLost
from revstream.streams.mongo.database import Mongo
from revstream.streams.versioning.version import Version

__all__ = ["DocumentState", "DocumentStates"]

DocumentState: TypeAlias = "Version | HistoryLost | ArchiveBehind | None"
"""None where there was no document; an error where that is not known."""


class DocumentStates:
    """Reads of all archives; remembers of each collection which intervals are known."""

    def __init__(self, mongo: Mongo, own_writes: OwnWrites) -> None:
        self._horizons = Horizons(mongo)
        self._coverages = CoverageStore(mongo)
        self._own_writes = own_writes
        self._known: dict[str, tuple[str, Coverage]] = {}

    async def at(
        self,
        archive: Archive,
        rows: RowFilter,
        wanted: Sequence[tuple[Any, Timestamp]],
        fields: Fields | None,
    ) -> list[DocumentState]:
        """Read states: n (id, cluster time) that the archive has reached -> n states, in that
        order.
        """
        if not wanted:
            return []
        found, coverage = await asyncio.gather(
            archive.newest(
                [{"key": key, "at": at} for key, at in wanted],
                limit=1,
                projection=record_projection(rows.widened(fields)),
            ),
            self._coverage(archive.collection, max(at for _, at in wanted)),
        )
        versions = {
            record["wanted"]: Version.from_record(record)
            for record in found
            if rows.allow_version(record)
        }
        missing = [each for n, each in enumerate(wanted) if n not in versions]
        lost: Sequence[HistoryLost | ArchiveBehind | None]
        if rows.limits:
            # The same answer for each, so that it does not reveal documents of others.
            lost = [coverage.error_at(archive.collection, at) for _, at in missing]
        else:
            lost = await self._horizons.errors_at(archive, missing, coverage)
        unknown = iter(lost)
        states: list[DocumentState] = []
        for n, (_, at) in enumerate(wanted):
            version = versions.get(n)
            if version is None:
                states.append(next(unknown))
                continue
            refusal = coverage.gap_error(archive.collection, at, stood=version.at)
            present = None if version.operation == "DELETE" else version
            states.append(present if refusal is None else refusal)
        return states

    async def _coverage(self, collection: str, at: Timestamp) -> Coverage:
        """Return the known intervals of a collection, as far as a moment.

        A window that is lost later begins after the archive's present end: the result stays valid
        for moments up to there.
        """
        upto, known = self._known.get(collection, ("", UNLIMITED))
        if resume_tokens.token_from_time(at) > upto:
            upto = self._own_writes.known_position(collection)
            known = await self._coverages.load(collection)
            if known.open_gap is None and self._own_writes.is_complete(collection):
                self._known[collection] = upto, known
        return known
