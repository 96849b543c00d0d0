"""How the listeners of this deployment are doing, whichever process holds them: `Query.streams`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from streams import tokens
from streams.checkpoints import Checkpoints
from streams.lease import Leases
from streams.progress import Progress

__all__ = ["Status", "StreamStatus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """`state`: "recording", "reading" (the first reading of what was there before) or "waiting"
    (nobody holds it).

    `lag_s`: the age of the oldest change that is not yet archived; 0 where there is none; None
    where it never ran.
    """

    name: str
    collection: str
    state: str
    owner: str | None = None
    fence: int | None = None
    resume_token: str | None = None
    at: datetime | None = None
    lag_s: float | None = None


class Status:
    """`listeners`: their names and collections, in the order shown."""

    def __init__(
        self,
        listeners: Sequence[tuple[str, str]],
        leases: Leases,
        checkpoints: Checkpoints,
        progress: Progress,
    ) -> None:
        self._listeners = listeners
        self._leases = leases
        self._checkpoints = checkpoints
        self._progress = progress

    async def statuses(self) -> list[StreamStatus]:
        """Two reads, whatever the number of listeners."""
        names = [name for name, _ in self._listeners]
        leases = await self._leases.holders(names)
        checkpoints = await self._checkpoints.load_all(names)
        found = []
        for name, collection in self._listeners:
            holder = leases.get(name)
            checkpoint = checkpoints.get(name)
            if checkpoint is None:
                found.append(StreamStatus(name=name, collection=collection, state="waiting"))
                continue
            token = await self._progress.position(collection)
            state = "recording" if checkpoint.baseline.done else "reading"
            found.append(
                StreamStatus(
                    name=name,
                    collection=collection,
                    state=state if holder and holder.live else "waiting",
                    owner=holder.holder if holder and holder.live else None,
                    fence=holder.fencing_token if holder else None,
                    resume_token=token,
                    at=tokens.cluster_time(token).as_datetime(),
                    lag_s=self._progress.lag_s(collection),
                )
            )
        return found
