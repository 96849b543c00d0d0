"""Keep the copies of `@copy` equal to what they are of: two listeners per copied field, one on each
side.

The source side follows the collection that is copied from: where the field changes, it sets all
copies, a chunk at a time, however many. The target side follows the documents that have the copies:
where one is not what its source is, it sets it. Both read versions from the archives, and both set
copies by an update that leaves later ones alone (`streams.listeners.copies.update_pipeline`); so
whichever comes first, the other one, or a deposed one that comes late, undoes nothing.

Guarantees: once both have handled all versions, each copy is what its source's last version says.
Does not guarantee: that no copy is behind for a moment; it is made after the write.
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

# Versions of a source among which its field's last change is looked for; one that is further back
# counts as any number's.
_LOOK_BACK = 100
# Sources whose later versions were copied before they were come to.
_MOST_AHEAD = 100_000
_LOOK_EVERY_S = 0.5


def create_copy_listeners(
    model: Model, mongo: Mongo, archives: Mapping[str, Archive], progress: ArchiveProgress
) -> list[CopySourceListener | CopyTargetListener]:
    """Both sides of each copied field of a model."""
    return [
        side
        for copy in copied_fields(model)
        for side in (
            CopySourceListener(copy, mongo, archives[copy.source]),
            CopyTargetListener(copy, mongo, archives[copy.source], progress),
        )
    ]


class CopySourceListener(Handler):
    """Brings what a source has become to all that have a copy of it.

    Attributes:
        setter: counts the copies that were set, and those that were refused, in this process.
        left: copies that are yet to be looked at, of sources with more than a chunk of them.
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
        """What has changed is not taken from these versions, but from the last ones: of an old
        history only the end is copied."""
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
    """Sets the copies of documents that were inserted, or written by whomsoever.

    It compares what each version is with what it should be, instead of asking who has written it
    or what it has changed: so it does not matter what another program does to copies, or to what
    stands beside them.

    Attributes:
        setter: as of the other side.
    """

    start = "beginning"

    def __init__(
        self, copy: CopiedField, mongo: Mongo, archive: Archive, progress: ArchiveProgress | None
    ) -> None:
        """Args:
        archive: of the source.
        progress: how far that has come; None: it is not waited for.
        """
        self.name = f"copier:{copy.name}:targets"
        self.collection = copy.target
        self.setter = CopyWriter(copy, mongo)
        self._copy = copy
        self._archive = archive
        self._progress = progress
        # Whether the archive has had all sources since it was begun.
        self._whole = progress is None

    async def handle(self, versions: Sequence[Version], fencing_token: int) -> None:
        last = {identity(each.document): each for each in versions}
        there = [each for each in last.values() if each.full is not None]
        if not there:
            return
        await self._wait(versions[-1].token)
        wanted = {identity(s): s for each in there for s in self._copy.source_ids(each.full or {})}
        states = await self._states(wanted)
        # One update for all that have copies of the same sources.
        groups: dict[frozenset[Any], list[Any]] = {}
        for version in there:
            if not self._copy.is_up_to_date(version, states):
                names = frozenset(map(identity, self._copy.source_ids(version.full or {})))
                groups.setdefault(names, []).append(version.document)
        if groups:
            known = [([states[each] for each in names], ids) for names, ids in groups.items()]
            await self.setter.set(known)

    async def _wait(self, token: str) -> None:
        """A source that was written before its target is nearly always found at once."""
        if self._progress is not None:
            with contextlib.suppress(ArchiveBehind):
                await self._progress.wait(self._copy.source, token)

    async def _states(self, wanted: Mapping[Any, Any]) -> dict[Any, SourceState]:
        states = await _read_states(self._copy, self._archive, wanted.values())
        # Before the first reading is done, a source that has no version may well be there.
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
    """What each source is, by `identity`: two reads, however many."""
    sources = list(keys)
    if not sources:
        return {}
    shown = dict.fromkeys(("doc", "v", "at", f"full.{copy.of}", *PACKED), 1)
    newest = await archive.newest([{"key": each} for each in sources], limit=1, projection=shown)
    # As of the same versions: later ones may have another value.
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
    """In which of a source's last versions its field may have changed; or, in none of them, which
    was the earliest."""
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
