"""Recording of a collection that arrived as a whole, by a rename or `$out`.

Its documents are recorded at the position of the event, so that subscribers get them in the order
of the archive.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from revstream.streams.changefeed.event import ChangeEvent, is_exact
from revstream.streams.coordination.checkpoint import Baseline
from revstream.streams.layouts.core.snapshot_scan import position_after_last
from revstream.streams.recording.commit_pipeline import CommitPipeline
from revstream.streams.recording.coverage_writer import ARRIVED, CoverageWriter
from revstream.streams.recording.version_builder import VersionBuilder
from revstream.streams.recording.versions.snapshot_chunk import SnapshotChunk

__all__ = ["CollectionArrival", "advance_baseline"]

ReadChunk = Callable[[Baseline, ChangeEvent], Awaitable[SnapshotChunk]]


class CollectionArrival:
    """Arrivals of one recorder."""

    def __init__(
        self,
        builder: VersionBuilder,
        pipeline: CommitPipeline,
        coverage: CoverageWriter,
        read: ReadChunk,
    ) -> None:
        self._builder = builder
        self._pipeline = pipeline
        self._coverage = coverage
        self._read = read

    async def record(self, event: ChangeEvent, former: Baseline) -> Baseline:
        """Read all documents, and record them after the deletions at the event.

        Args:
            former: Progress of the snapshot before the arrival.

        Returns: a complete baseline.
        """
        baseline, later = Baseline(doubt=former.doubt), False
        number = await self._builder.mass_deletions.last_number(event.token) + 1
        while not baseline.done:
            chunk = await self._read(baseline, event)
            if not (chunk.is_exact or later):
                later = True
                await self._coverage.open_gap(event.token, ARRIVED)
            batch = await self._builder.build_from_chunk(chunk, number)
            number += len(batch.records)
            await self._pipeline.write(batch)
            baseline = advance_baseline(baseline, chunk, number)
        if not (former.done or former.doubt):
            await self._coverage.mark_replaced(event)
        await self._coverage.mark_complete(chunk, lost=later or bool(baseline.doubt))
        return baseline


def advance_baseline(baseline: Baseline, chunk: SnapshotChunk, number: int) -> Baseline:
    """Return the snapshot's progress after a chunk; `number` is the number of records so far."""
    found = chunk.keys
    read = baseline.read + (len(found) if chunk.versions is not None else len(chunk.documents))
    beyond = baseline.beyond
    if chunk.documents:
        beyond = None if is_exact(chunk.documents[-1]) else position_after_last(chunk.documents)
    return replace(
        baseline,
        done=chunk.end,
        started=bool(found) or baseline.started,
        after=found[-1] if found else baseline.after,
        beyond=beyond,
        documents=number,
        read=read,
        total=read if chunk.end else max(baseline.total, read + 1),
    )
