"""Copies under faults: sources are renamed, targets change their source, and other programs
overwrite copies with stale values. At the end each copy equals its source.

Invariant during the run: while a target keeps its source, the Copier never sets its copy back to an
earlier name.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

__all__ = ["COPIED_MODEL", "CopyLoad", "check_copies", "check_no_copy_goes_back"]

COPIED_MODEL = """
"Renamed again and again."
type Source @collection(name: "sources", version: null) { id: ID! name: Int }
"Carries the name of the source it belongs to."
type Target @collection(name: "targets", version: null) {
  id: ID!
  sourceId: ID
  source: Source @reference(by: "sourceId")
  name: Int @copy(of: "source.name")
  n: Int
}
"""
SOURCES, TARGETS = 5, 60
COPIER = "revstream:copier"
# The number of versions in a finding.
_TOLD = 8

Row = dict[str, Any]


@dataclass
class CopyLoad:
    """Writers of sources and targets, and the checks of their copies.

    Args:
        rate: writes a second.

    Attributes:
        writes: the number of writes by kind; writes of unknown fate count, too.
    """

    client: AsyncMongoClient[Row]
    database: str
    rng: random.Random
    rate: float
    writes: Counter[str] = field(default_factory=Counter)
    _names: int = 0
    _stopping: bool = False

    def __post_init__(self) -> None:
        database = self.client.get_database(self.database, write_concern=WriteConcern("majority"))
        self._sources, self._targets = database["sources"], database["targets"]

    async def run(self) -> None:
        """Write until `stop`."""
        while not self._stopping:
            await asyncio.sleep(1 / self.rate)
            try:
                await self._write()
            except PyMongoError:
                # Executed or not, all copies are right in the end.
                await asyncio.sleep(0.2)

    def stop(self) -> None:
        self._stopping = True

    async def settle(self, limit_s: float) -> list[str]:
        """Wait until all copies are right, after all repairs; returns the ones that are not."""
        until = time.monotonic() + limit_s
        while findings := await self._compared():
            if time.monotonic() > until:
                return findings
            await asyncio.sleep(0.2)
        return []

    async def history(self) -> list[Row]:
        """Return all versions of the targets, in order."""
        archive = self.client.get_database(self.database, read_concern=ReadConcern("majority"))
        return await archive["targets.versions"].find().sort("_id", 1).to_list()

    async def _write(self) -> None:
        source = f"source-{self.rng.randrange(SOURCES)}"
        target = {"_id": f"target-{self.rng.randrange(TARGETS)}"}
        turn = self.rng.random()
        if turn < 0.4:
            # Each name is used once: a copy shows its age.
            self._names += 1
            self.writes["renamed"] += 1
            name = {"$set": {"name": self._names}}
            await self._sources.update_one({"_id": source}, name, upsert=True)
        elif turn < 0.5:
            self.writes["source removed"] += 1
            await self._sources.delete_one({"_id": source})
        elif turn < 0.75:
            self.writes["moved"] += 1
            moved = {"$set": {"sourceId": source}, "$inc": {"n": 1}}
            await self._targets.update_one(target, moved, upsert=True)
        elif turn < 0.9:
            self.writes["touched"] += 1
            await self._targets.update_one(target, {"$inc": {"n": 1}}, upsert=True)
        elif turn < 0.95:
            self.writes["copy overwritten"] += 1
            await self._targets.update_one(target, {"$set": {"name": -1}})
        else:
            self.writes["target removed"] += 1
            await self._targets.delete_one(target)

    async def _compared(self) -> list[str]:
        """Return the differences, with each collection read at one cluster time."""
        database = self.client.get_database(self.database, read_concern=ReadConcern("majority"))
        sources = {each["_id"]: each async for each in database["sources"].find()}
        return check_copies(sources, await database["targets"].find().to_list())


def check_copies(sources: Mapping[Any, Row], targets: Sequence[Row]) -> list[str]:
    """Return the targets whose copy is not the value of their source.

    Without a source the copy is null; without a reference it is missing.
    """
    findings = []
    for target in targets:
        refers = target.get("sourceId")
        if refers is None:
            right = "name" not in target
            wanted: Any = "none"
        else:
            wanted = (sources.get(refers) or {}).get("name")
            right = "name" in target and target["name"] == wanted
        if not right:
            findings.append(
                f"targets/{target['_id']}: has the copy {target.get('name', 'none')} of {refers}, "
                f"which says {wanted}; {target.get('_copies')}"
            )
    return findings


def check_no_copy_goes_back(versions: Sequence[Row]) -> list[str]:
    """Check that the Copier never replaces a copy by an older name of the same source.

    Names are numbered in order.
    """
    findings = []
    newest: dict[Any, tuple[Any, int]] = {}
    story: dict[Any, list[str]] = {}
    for version in versions:
        full = version["full"] or {}
        document, source, name = version["doc"], full.get("sourceId"), full.get("name")
        by = version["by"]
        line = f"{version['v']} {version['op']} {source} {name} by {by}, {version.get('copies')}"
        story.setdefault(document, []).append(line)
        since, before = newest.get(document, (source, 0))
        if since != source:
            before = 0
        if by == COPIER and isinstance(name, int):
            if name < before:
                findings.append(
                    f"targets/{document}: version {version['v']} has the name {name} of {source}, "
                    f"of which it had {before} before: {story[document][-_TOLD:]}"
                )
            before = max(name, before)
        newest[document] = (source, before)
    return findings
