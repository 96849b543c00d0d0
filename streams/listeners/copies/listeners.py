"""Listeners that keep `@copy` fields equal to their sources: two per copied field, one for each
side.

The source side reads versions of the collection that is copied from: when the field changes, it
sets
all copies, a chunk at a time. The target side reads versions of the documents with the copies:
where
one differs from its source, it sets the copy. Both read from the archives, and both set copies by
an
update that does not change later ones (`streams.listeners.copies.update_pipeline`); so neither
undoes the other's work, in any order, and nor does a late process that lost its lease.

Guarantees: once both have handled all versions, each copy equals its source's last version.
Does not guarantee: that a copy is equal at every moment; it is set after the write.
Source: docs/decisions/0020-copies.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from revstream.model.definition import Model
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.core.errors import ArchiveBehind
from revstream.streams.core.lru_cache import LruCache
from revstream.streams.listeners.consumer import Handler
from revstream.streams.listeners.copies.bulk_update import CopyWriter
from revstream.streams.listeners.copies.propagation_job import PropagationJobs
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.content_encoding import PACKED
from revstream.streams.versioning.copied_field import CopiedField, SourceState, copied_fields
from revstream.streams.versioning.version import Version

__all__ = ["CopySourceListener", "CopyTargetListener", "create_copy_listeners"]

# Number of a source's versions in which its field's last change is searched; an earlier change
# counts as any number's.
_LOOK_BACK = 100
# Maximum number of sources whose later versions were copied before they were read.
_MOST_AHEAD = 100_000
_LOOK_EVERY_S = 0.5


def create_copy_listeners(
    model: Model, mongo: Mongo, archives: Mapping[str, Archive], progress: ArchiveProgress
) -> list[CopySourceListener | CopyTargetListener]:
    """Create both listeners of each copied field of a model."""
    return [
        side
        for copy in copied_fields(model)
        for side in (
            CopySourceListener(copy, mongo, archives[copy.source]),
            CopyTargetListener(copy, mongo, archives[copy.source], progress),
        )
    ]


class CopySourceListener(Handler):
    """Propagates changes of a source to all its copies.

    Attributes:
        setter: Counts copies set and refused in this process.
        left: Copies still to be checked, of sources with more than a chunk of them.
    """

    start = "beginning"

    def __init__(
        self, copy: CopiedField, mongo: Mongo, archive: Archive, *, chunk: int = 1000
    ) -> None:
        self.name = f"copier:{copy.name}:sources"
        self.collection = copy.source
        self._copy = copy
        self._archive = archive
        self.setter = CopyWriter(copy, mongo)
        self._jobs = PropagationJobs(copy, mongo, self.setter, chunk=chunk)
        self._ahead = LruCache[Any, int](most=_MOST_AHEAD)

    @property
    def left(self) -> int:
        return self._jobs.left

    async def begin(self, fencing_token: int) -> None:
        self._ahead.clear()
        await self._jobs.resume()

    async def handle(self, versions: Sequence[Version], fencing_token: int) -> None:
        """Propagate the last version of each changed source: of an old history only the end is
        copied.
        """
        changed = {
            identity(each.document): each
            for each in versions
            if self._copy.may_change(each) and not self._was_copied(each)
        }
        states = await _read_states(
            self._copy, self._archive, [v.document for v in changed.values()]
        )
        for name, version in changed.items():
            state = states[name]
            await self._jobs.start(state)
            if state.number > version.number:
                self._ahead.put(name, state.number)

    async def turn(self, fencing_token: int) -> bool:
        return await self._jobs.run_chunk()

    def _was_copied(self, version: Version) -> bool:
        name = identity(version.document)
        ahead = self._ahead.get(name) or 0
        if version.number >= ahead:
            self._ahead.pop(name)
        return version.number <= ahead


class CopyTargetListener(Handler):
    """Sets the copies in documents that were inserted or written by any program.

    It compares each version with its expected content, and ignores author and changed fields: so it
    is
    irrelevant what another program does to copies, or to values beside them.

    Attributes:
        setter: Counts copies set and refused in this process.
    """

    start = "beginning"

    def __init__(
        self, copy: CopiedField, mongo: Mongo, archive: Archive, progress: ArchiveProgress | None
    ) -> None:
        """Create the listener.

        Args:
            archive: Archive of the source.
            progress: Its progress; None does not wait for it.
        """
        self.name = f"copier:{copy.name}:targets"
        self.collection = copy.target
        self.setter = CopyWriter(copy, mongo)
        self._copy = copy
        self._archive = archive
        self._progress = progress
        # Whether the archive contained all sources at some time.
        self._whole = progress is None

    async def handle(self, versions: Sequence[Version], fencing_token: int) -> None:
        last = {identity(each.document): each for each in versions}
        there = [each for each in last.values() if each.full is not None]
        if not there:
            return
        await self._wait(versions[-1].token)
        wanted = {identity(s): s for each in there for s in self._copy.source_ids(each.full or {})}
        states = await self._states(wanted)
        # One update for all documents with copies of the same sources.
        groups: dict[frozenset[Any], list[Any]] = {}
        for version in there:
            if not self._copy.is_up_to_date(version, states):
                names = frozenset(map(identity, self._copy.source_ids(version.full or {})))
                groups.setdefault(names, []).append(version.document)
        if groups:
            known = [([states[each] for each in names], ids) for names, ids in groups.items()]
            await self.setter.set(known)

    async def _wait(self, token: str) -> None:
        """Wait for the source's archive: a source written before its target is then found at
        once.
        """
        if self._progress is not None:
            with contextlib.suppress(ArchiveBehind):
                await self._progress.wait(self._copy.source, token)

    async def _states(self, wanted: Mapping[Any, Any]) -> dict[Any, SourceState]:
        states = await _read_states(self._copy, self._archive, wanted.values())
        # Before the initial snapshot is complete, a source without a version may exist.
        while not self._whole and any(each.number == 0 for each in states.values()):
            assert self._progress is not None
            checkpoint = await self._progress.checkpoint(self._copy.source)
            self._whole = checkpoint is not None and checkpoint.baseline.done
            if not self._whole:
                await asyncio.sleep(_LOOK_EVERY_S)
            states = await _read_states(self._copy, self._archive, wanted.values())
        return states


async def _read_states(
    copy: CopiedField, archive: Archive, keys: Iterable[Any]
) -> dict[Any, SourceState]:
    """Return the state of each source, by `identity`, in two reads."""
    sources = list(keys)
    if not sources:
        return {}
    shown = dict.fromkeys(("doc", "v", "at", f"full.{copy.of}", *PACKED), 1)
    newest = await archive.newest([{"key": each} for each in sources], limit=1, projection=shown)
    # At the same versions: later ones may have another value.
    bounds = [{"key": each["doc"], "at": each["at"]} for each in newest]
    changes = await archive.newest(
        bounds, limit=1, match=_last_change(copy), projection={"since": 1, "earliest": 1}
    )
    since = {
        identity(bounds[each["wanted"]]["key"]): each["since"] or each["earliest"]
        for each in changes
    }
    found = {
        identity(each): SourceState(source=each, number=0, value=None, since=0) for each in sources
    }
    for record in newest:
        name = identity(record["doc"])
        found[name] = SourceState(
            source=found[name].source,
            number=record["v"],
            value=(record.get("full") or {}).get(copy.of),
            since=min(record["v"], since.get(name, record["v"])),
        )
    return found


def _last_change(copy: CopiedField) -> list[Document]:
    """Return stages that find in which recent version the field may have changed, and the earliest
    one.
    """
    changed = {"$ifNull": ["$changed", []]}
    inside = {
        "$anyElementTrue": [
            {
                "$map": {
                    "input": changed,
                    "in": {"$eq": [{"$indexOfBytes": ["$$this", f"{copy.of}."]}, 0]},
                }
            }
        ]
    }
    matters = {
        "$or": [
            {"$in": ["$op", ["INSERT", "BASELINE", "DELETE"]]},
            {"$eq": ["$gap", True]},
            {"$ne": [{"$type": "$cut"}, "missing"]},
            {"$in": [{"$literal": copy.of}, changed]},
            inside,
        ]
    }
    return [
        {"$limit": _LOOK_BACK},
        {
            "$group": {
                "_id": None,
                "since": {"$max": {"$cond": [matters, "$v", None]}},
                "earliest": {"$min": "$v"},
            }
        },
    ]
