"""Truncation of histories: deletes the oldest versions of documents, and marks the next one as
first.

Runs in one transaction per group of documents, so that neither a reader nor a crash ever finds a
document with two first versions, or with none. It deletes only versions that no process writes any
more. Of those that it changes, the recorder may close the last one: that write waits briefly on the
server, or restarts the transaction.

Guarantees: never deletes a document's last version. Two processes may truncate the same document at
once: the second one misses versions, and its group is undone.
Source: docs/decisions/0016-retention.md.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from revstream.streams.archive.indexes import NUMBER_INDEX
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession, write
from revstream.streams.versioning.content_encoding import part_ids
from revstream.streams.versioning.truncation_mark import PurgeMark, mark_after_removal

__all__ = ["Truncation"]

_PORTION = 500
"""Number of documents that are read together."""

_PER_READ = 2000
"""Maximum number of records per read, the oldest first of each document.

More than there are documents, so that some of them have versions to delete.
"""

_PER_TRANSACTION = 500
"""Maximum number of versions deleted together: some 30 ms, for which a write to one of them
waits."""


_SHOWN = ("doc", "v", "at", "op", "gap", "born", "cut", "packed", "parts")


class _Missed(Exception):
    """Another process has deleted some of the versions meanwhile: the transaction is undone."""


@dataclass(frozen=True, slots=True)
class _Step:
    """Truncation of one document.

    Attributes:
        removed: Its records to delete, the oldest first.
        kept: The next record.
    """

    removed: Sequence[Document]
    kept: Document


class Truncation:
    """Truncation of one archive."""

    def __init__(self, mongo: Mongo, archive: Archive) -> None:
        self._mongo = mongo
        self._archive = archive

    async def cut(
        self,
        wanted: Sequence[tuple[Any, int]],
        *,
        announce: Callable[[str], Awaitable[None]] | None = None,
        purge: PurgeMark | None = None,
    ) -> int:
        """Delete versions older than a given one, of each document. Returns how many versions.

        Args:
            wanted: (`_id`, number of the oldest version that stays), each document once.
            announce: Called before any deletion, with the token of the last version that replaced a
                deleted one.
            purge: Mark of a purge by an operator.

        Cancellation: safe at any point; the rest is deleted the next time.
        """
        count = 0
        for n in range(0, len(wanted), _PORTION):
            end = False
            while not end:
                steps, end = await self._steps(wanted[n : n + _PORTION])
                if steps and announce is not None:
                    await announce(max(each.kept["_id"] for each in steps))
                dropped = [await self._drop(group, purge) for group in _groups(steps)]
                count += sum(dropped)
                # A process that deletes the same versions continues with them.
                end = end or 0 in dropped
        return count

    async def _steps(self, wanted: Sequence[tuple[Any, int]]) -> tuple[list[_Step], bool]:
        """Return the next steps of documents with versions to delete, and whether they are all. One
        read.
        """
        pipeline: list[Document] = [
            # One branch per document: a lookup for each takes several times as long.
            {"$match": {"$or": [{"doc": key, "v": {"$lte": number}} for key, number in wanted]}},
            {"$sort": {"doc": -1, "v": 1}},
            {"$limit": _PER_READ},
            {"$project": dict.fromkeys(_SHOWN, 1)},
        ]
        found = await self._mongo.aggregate(self._archive.name, pipeline, hint=NUMBER_INDEX)
        by_document: dict[Any, list[Document]] = {}
        for each in found:
            by_document.setdefault(identity(each["doc"]), []).append(each)
        chains = [each[: _PER_TRANSACTION + 1] for each in by_document.values() if len(each) > 1]
        whole = all(len(each) <= _PER_TRANSACTION + 1 for each in by_document.values())
        return [_Step(each[:-1], each[-1]) for each in chains], whole and len(found) < _PER_READ

    async def _drop(self, steps: Sequence[_Step], purge: PurgeMark | None) -> int:
        """Run all these steps or none. Returns how many versions were deleted."""
        began = time.monotonic()
        tokens = [record["_id"] for step in steps for record in step.removed]
        parts = [name for step in steps for record in step.removed for name in part_ids(record)]
        now, _ = await self._mongo.clock()
        contents = await self._contents([step.kept for step in steps])
        updates = []
        for step in steps:
            whole = contents.get(step.kept["_id"], {})
            mark = {
                "first": True,
                "prev": None,
                "cut": mark_after_removal(step.removed, now, purge),
            }
            update = {**whole, "$set": {**mark, **whole.get("$set", {})}}
            updates.append(({"_id": step.kept["_id"]}, update))

        async def work(writing: WriteSession) -> None:
            kept = await writing.update_each(self._archive.name, updates)
            removed = await writing.remove_all(self._archive.name, {"_id": {"$in": tokens}})
            if parts:
                await writing.remove_all(self._archive.parts, {"_id": {"$in": parts}})
            if (kept, removed) != (len(updates), len(tokens)):
                raise _Missed

        try:
            await write(self._mongo, work, transaction=True)
        except _Missed:
            return 0
        # Let other writes run for as long as this took.
        await asyncio.sleep(time.monotonic() - began)
        return len(tokens)

    async def _contents(self, kept: Sequence[Document]) -> dict[str, Document]:
        """Return by token the updates that turn kept patches into whole contents.

        Their keyframes are deleted. A content never changes, so it is read before the transaction.
        """
        patches = [each["_id"] for each in kept if each.get("packed") and not each.get("parts")]
        if not patches:
            return {}
        found = await self._archive.find({"_id": {"$in": patches}}, FindOptions(raw=True))
        return {each["_id"]: await self._archive.keyframe_update(each) for each in found}


def _groups(steps: Sequence[_Step]) -> Iterator[list[_Step]]:
    """Yield groups with about as many versions as one transaction may delete."""
    group: list[_Step] = []
    count = 0
    for step in steps:
        if group and count + len(step.removed) > _PER_TRANSACTION:
            yield group
            group, count = [], 0
        group.append(step)
        count += len(step.removed)
    if group:
        yield group
