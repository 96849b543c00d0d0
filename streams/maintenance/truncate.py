"""Cut documents' histories: drop the oldest versions of each, and make the next one the first.

In a transaction per group of documents, so that no reader and no crash ever finds a document with
two first versions, or with none. It deletes only what nobody writes any more; of what it changes,
the recorder may close the last version: that waits a moment on the server, or lets the transaction
begin anew.

Guarantees: never drops a document's last version. Two that cut the same document at once do not
harm each other: what one has dropped the other one misses, and its group is undone.
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
from revstream.streams.mongo.transactions import WriteSession, write
from revstream.streams.versioning.content_encoding import part_ids
from revstream.streams.versioning.truncation_mark import PurgeMark, mark_after_removal

__all__ = ["Truncation"]

_PORTION = 500
"""Documents that are looked at together."""

_PER_READ = 2000
"""Records read of these at once, the oldest first of each document; more than there are documents,
so that some of them have something to lose."""

_PER_TRANSACTION = 500
"""Versions dropped together: some 30 ms, for which a write to one of them waits at most."""


_SHOWN = ("doc", "v", "at", "op", "gap", "born", "cut", "packed", "parts")


class _Missed(Exception):
    """Somebody else has dropped some of them meanwhile: the transaction is undone."""


@dataclass(frozen=True, slots=True)
class _Step:
    """`removed`: records of one document, the oldest first; `kept` follows them."""

    removed: Sequence[Document]
    kept: Document


class Truncation:
    """Of one archive."""

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
        """Drop what is older than a version, of each document. Returns how many versions.

        Args:
            wanted: (`_id`, number of the oldest version that stays), each document once.
            announce: told, before anything is deleted, the token of the last version that replaced
                one which will be.

        Cancellation: safe at any place; what is left is dropped the next time.
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
                # Where somebody else drops the same, he goes on with it.
                end = end or 0 in dropped
        return count

    async def _steps(self, wanted: Sequence[tuple[Any, int]]) -> tuple[list[_Step], bool]:
        """What can be dropped next of those that have something to lose, and whether that is all.
        One read."""
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
        """How many versions were dropped: those of all these steps, or none."""
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
        # Others have their turn for as long.
        await asyncio.sleep(time.monotonic() - began)
        return len(tokens)

    async def _contents(self, kept: Sequence[Document]) -> dict[str, Document]:
        """By token how those become whole that are kept as patches on what goes. A content never
        changes, so it is read before the transaction."""
        patches = [each["_id"] for each in kept if each.get("packed") and not each.get("parts")]
        if not patches:
            return {}
        found = await self._archive.find({"_id": {"$in": patches}}, raw=True)
        return {each["_id"]: await self._archive.keyframe_update(each) for each in found}


def _groups(steps: Sequence[_Step]) -> Iterator[list[_Step]]:
    """Of about as many versions as one transaction may drop."""
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
