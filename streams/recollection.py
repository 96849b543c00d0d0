"""What a recorder finds out while nothing happens, so that it need not ask when something does: the
last versions of the documents that were written lately, which are likely to be written again.

After a start each document's first event would wait for a read of the archive, and so would all
who are told its number.
"""

from __future__ import annotations

from typing import Any

from streams.archive import Archive
from streams.memory import LastVersions
from streams.partitions import Partition

__all__ = ["Recollection"]

# Records looked at in one step: some five milliseconds' worth, for which an event may have to wait.
_PAGE = 200
# Records looked at in all: many of them may be of few documents.
_MOST = 50_000


class Recollection:
    """A walk backwards through an archive, which fills half of the memory at most.

    Args:
        lasts: filled by it.
        partition: its documents alone are looked at.
        page: records per step.
        most: records looked at in all.
    """

    def __init__(
        self,
        archive: Archive,
        lasts: LastVersions,
        partition: Partition,
        *,
        page: int = _PAGE,
        most: int = _MOST,
    ) -> None:
        self._archive = archive
        self._lasts = lasts
        self._partition = partition
        self._page = page
        self._most = most
        self.begin_anew()

    def begin_anew(self) -> None:
        self._before: str | None = None
        self._left = self._most

    async def step(self) -> None:
        """Look at a few more, where there are any. Nothing else may use the memory meanwhile."""
        if self._left <= 0 or self._lasts.half_full:
            return
        found: list[Any] = await self._archive.find(
            {} if self._before is None else {"_id": {"$lt": self._before}},
            projection={"doc": 1},
            sort=[("_id", -1)],
            limit=self._page,
            short=True,
        )
        await self._lasts.load(filter(self._partition.holds, (each["doc"] for each in found)))
        self._left = self._left - self._page if len(found) == self._page else 0
        if found:
            self._before = found[-1]["_id"]
