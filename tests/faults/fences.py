"""Monitor of leases and checkpoints: values that only grow must never decrease."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

__all__ = ["FenceMonitor"]

EVERY_S = 0.2


@dataclass
class FenceMonitor:
    """Samples leases and checkpoints while everything else runs.

    Attributes:
        leases: the newest lease seen, by leased task.
        renewed: the time of the last observed renewal, on `time.monotonic`.
        changes: (seconds, leased task, fencing token, holder) at each change of holder.
        findings: values that decreased.
    """

    client: AsyncMongoClient[dict[str, Any]]
    database: str
    listeners: tuple[str, ...]
    leases: dict[str, dict[str, Any]] = field(default_factory=dict)
    checkpoints: dict[str, dict[str, Any]] = field(default_factory=dict)
    renewed: dict[str, float] = field(default_factory=dict)
    changes: list[tuple[float, str, int, str]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    samples: int = 0

    def lag_s(self) -> float:
        """Return the lag of the archive by the newest checkpoints that could be read.

        Checkpoints are saved every few seconds at least.
        """
        times = [each["at"].time for each in self.checkpoints.values()]
        return max(0.0, time.time() - min(times)) if times else 0.0

    async def run(self) -> None:
        """Sample forever."""
        while True:
            with suppress(PyMongoError):
                await self.sample()
            await asyncio.sleep(EVERY_S)

    async def sample(self) -> None:
        """Read with linearizable concern: a former primary may answer a majority read with stale
        data.
        """
        database = self.client[self.database]
        for name in self.listeners:
            for collection, newest in (
                ("revstream.leases", self.leases),
                ("revstream.checkpoints", self.checkpoints),
            ):
                found = await database.get_collection(
                    collection, read_concern=ReadConcern("linearizable")
                ).find_one({"_id": name}, max_time_ms=2000)
                if found is None:
                    if name in newest:
                        self.findings.append(f"{collection} {name} is gone: {newest[name]}")
                    continue
                self._compare(collection, name, newest.get(name), found)
                newest[name] = found
        self.samples += 1

    def _compare(
        self, collection: str, name: str, before: dict[str, Any] | None, now: dict[str, Any]
    ) -> None:
        if before is not None:
            if now["fencingToken"] < before["fencingToken"]:
                self.findings.append(
                    f"{collection} {name}: fencing token {now['fencingToken']} after "
                    f"{before['fencingToken']}"
                )
            if now.get("token", "") < before.get("token", ""):
                self.findings.append(
                    f"{collection} {name}: token {now['token']} after {before['token']}"
                )
            if (
                collection == "revstream.leases"
                and now["fencingToken"] == before["fencingToken"]
                and None not in (now.get("holder"), before.get("holder"))
                and now["holder"] != before["holder"]
            ):
                self.findings.append(
                    f"{name}: {before['holder']} and {now['holder']} both with fencing token "
                    f"{now['fencingToken']}"
                )
        if before is not None and now.get("expiresAt") != before.get("expiresAt"):
            self.renewed[name] = time.monotonic()
        if collection == "revstream.leases" and (
            before is None or now["fencingToken"] != before["fencingToken"]
        ):
            self.changes.append(
                (time.monotonic(), name, now["fencingToken"], str(now.get("holder")))
            )
