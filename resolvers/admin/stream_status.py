"""Status of the listeners of a deployment, in any process: `Query.streams`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from revstream.streams.archive.coverage import CoverageStore, Gap
from revstream.streams.coordination.checkpoint import Checkpoint, Checkpoints
from revstream.streams.coordination.lease import Holder, Leases
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.recording.set_aside import SetAsideEvents

__all__ = ["FirstReading", "Status", "StreamStatus"]


@dataclass(frozen=True, slots=True)
class FirstReading:
    """Progress of a first reading: documents read, of about how many; None before it begins."""

    documents: int
    estimated_total: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """Status of one listener.

    Attributes:
        state: "recording", "reading" (a first reading), "working" (of other listeners) or "waiting"
            (no process has the lease).
        lag_s: age of the oldest change that is not archived or handled (see
            `ArchiveProgress.lag_s`); 0 without one; None if it never ran.
        reading: None after the first reading.
        trouble: why it makes no progress, or, of a recorder, that events were set aside; else None.
    """

    name: str
    collection: str
    state: str
    owner: str | None = None
    fence: int | None = None
    resume_token: str | None = None
    at: datetime | None = None
    lag_s: float | None = None
    reading: FirstReading | None = None
    trouble: str | None = None
    gaps: Sequence[Gap] = ()


class Status:
    """`partitions`: those of all collections, in the order shown. `others`: the names of other
    listeners, and the collections that they follow.
    """

    def __init__(
        self,
        partitions: Sequence[Partition],
        others: Sequence[tuple[str, str]],
        leases: Leases,
        checkpoints: Checkpoints,
        progress: ArchiveProgress,
        set_aside: SetAsideEvents,
        coverages: CoverageStore,
    ) -> None:
        self._partitions = partitions
        self._others = others
        self._leases = leases
        self._checkpoints = checkpoints
        self._progress = progress
        self._set_aside = set_aside
        self._coverages = coverages

    async def gaps(self, collections: Sequence[str]) -> list[Sequence[Gap]]:
        """N collections -> for each the windows of its history that were lost, the oldest first."""
        found = await self._coverages.gaps(collections)
        return [found.get(each, ()) for each in collections]

    async def unrecorded(self) -> list[str]:
        """The names of the recorders that no process runs."""
        names = [each.name for each in self._partitions]
        holders = await self._leases.holders(names)
        return [name for name in names if name not in holders or not holders[name].live]

    async def statuses(self) -> list[StreamStatus]:
        """Read the status of all listeners: four reads, and one per collection that is recorded
        elsewhere.
        """
        names = [each.name for each in self._partitions] + [name for name, _ in self._others]
        leases = await self._leases.holders(names)
        checkpoints = await self._checkpoints.load_all(names)
        collections = {each.collection for each in self._partitions}
        for name in collections:
            await self._progress.position(name)
        aside = await self._set_aside.troubles()
        gaps = await self._coverages.gaps(collections)
        found = []
        for partition in self._partitions:
            checkpoint = checkpoints.get(partition.name)
            status = _status(partition.name, partition.collection, checkpoint, leases, "recording")
            if checkpoint is not None:
                token = max(checkpoint.token, self._progress.partition_position(partition))
                baseline = checkpoint.baseline
                if not baseline.done:
                    reading = FirstReading(baseline.read, baseline.total or None)
                    state = "reading" if status.owner else status.state
                    status = replace(status, state=state, reading=reading)
                status = _standing(status, token, self._progress.lag_s(partition))
                trouble = checkpoint.trouble or aside.get(partition.collection)
                status = replace(status, trouble=trouble)
            status = replace(status, gaps=gaps.get(partition.collection, ()))
            found.append(status)
        for name, collection in self._others:
            checkpoint = checkpoints.get(name)
            status = _status(name, collection, checkpoint, leases, "working")
            if checkpoint is not None:
                lag_s = self._progress.lag_after_s(collection, checkpoint.token)
                status = _standing(status, checkpoint.token, lag_s)
                status = replace(status, trouble=checkpoint.trouble)
            found.append(status)
        return found


def _status(
    name: str,
    collection: str,
    checkpoint: Checkpoint | None,
    leases: Mapping[str, Holder],
    state: str,
) -> StreamStatus:
    holder = leases.get(name)
    if checkpoint is None or holder is None:
        return StreamStatus(name=name, collection=collection, state="waiting")
    return StreamStatus(
        name=name,
        collection=collection,
        state=state if holder.live else "waiting",
        owner=holder.holder if holder.live else None,
        fence=holder.fencing_token,
    )


def _standing(status: StreamStatus, token: str, lag_s: float) -> StreamStatus:
    at = resume_tokens.cluster_time(token).as_datetime()
    return replace(status, resume_token=token, at=at, lag_s=lag_s)
