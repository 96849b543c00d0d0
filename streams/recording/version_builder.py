"""Version builder: turns change events, snapshot chunks and drops into records of versions.

It caches the last version of each document, and writes nothing. Deterministic: the same events over
the same archive give the same records, so a second process that builds them too collides with the
first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from bson.raw_bson import RawBSONDocument

from revstream.streams.archive.change_register import ChangeRegister, Verdicts
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import INEXACT_KEY, ChangeEvent, identity, is_exact
from revstream.streams.coordination.checkpoint import Baseline
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import InexactKey, is_fault_of_document
from revstream.streams.layouts.core.stored_version import StoredVersion
from revstream.streams.layouts.self_versioned.recording_rules import (
    NotRecorded,
    version_from_scan,
    version_from_write,
)
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.raw_bson.diff import is_same
from revstream.streams.recording.mass_deletions import MassDeletions, is_read_later
from revstream.streams.recording.set_aside import SetAsideEvents
from revstream.streams.recording.versions.archived_event import is_archived
from revstream.streams.recording.versions.bare_version import event_from_chunk, make_bare_version
from revstream.streams.recording.versions.delete_attribution import DeleteAttributions
from revstream.streams.recording.versions.doubtful_documents import doubtful_keys
from revstream.streams.recording.versions.last_version_cache import LastVersionCache
from revstream.streams.recording.versions.reconstruction import Reconstruction
from revstream.streams.recording.versions.snapshot_chunk import SnapshotChunk
from revstream.streams.recording.versions.version_batch import VersionBatch
from revstream.streams.versioning.checksum import add_checksums
from revstream.streams.versioning.content_encoding import encode_as_patch, encode_as_reference
from revstream.streams.versioning.version import (
    LastVersion,
    archived_operation,
    make_version,
    without_reserved,
)

__all__ = ["VersionBuilder"]

log = logging.getLogger(__name__)

# Events built before the event loop gets a turn: a few milliseconds' worth.
_EVENTS_PER_TURN = 64


class VersionBuilder:
    """Builder of the versions of one partition of a collection.

    Args:
        partition: Only its documents get versions; of writes, it must receive no others.
        deltas: Store versions as patches: see `streams.versioning.content_encoding`.
        drain: Waits until all earlier batches are archived; called before last versions are read.
    """

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        partition: Partition,
        *,
        version_field: str | None,
        fence_field: str | None = None,
        deltas: bool,
        cache_bytes: int,
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        self.gaps = self.unrecorded = self.duplicates = self.skipped = self.aside = 0
        self._mongo = mongo
        self._archive = archive
        self._partition = partition
        self._version_field = version_field
        self._fence_field = fence_field
        self._deltas = deltas
        self._drain = drain
        self._lasts = LastVersionCache(archive, capacity_bytes=cache_bytes)
        self._changes = ChangeRegister(mongo, archive)
        self._reconstruction = Reconstruction(mongo, archive.collection)
        self._deletions = DeleteAttributions(mongo)
        self.mass_deletions = MassDeletions(
            mongo, archive, partition, lasts=self._lasts, load=self._load, add=self._add,
            drain=drain,
        )  # fmt: skip
        self._set_aside = SetAsideEvents(mongo)

    def clear(self) -> None:
        self._lasts.clear()
        self._changes.clear()

    async def build_from_events(
        self, events: Sequence[ChangeEvent], baseline: Baseline
    ) -> VersionBatch:
        """Build the versions of writes.

        Args:
            baseline: Progress of the initial snapshot. An update without an image, of a document
                without
                a version or with one in doubt, is left to the snapshot.
        """
        batch = VersionBatch()
        await self._load(each.key for each in events)
        doubtful = await doubtful_keys(self._mongo, self._archive, self._lasts, events, baseline)
        deletions = await self._deletions.changes_by_token(self._archive.collection, events)
        verdicts = await self._changes.judge(events)
        for count, event in enumerate(events, 1):
            deletion = deletions.get(event.token, event.deletion)
            try:
                if event.fault is not None:
                    raise event.fault
                if self._archive.layout.keeps:
                    self._build_from_layout(event, batch, baseline.done, deletion, verdicts)
                else:
                    doubt = baseline.doubt if identity(event.key) in doubtful else ""
                    await self._build(event, batch, baseline, deletion, verdicts, doubt=doubt)
            except Exception as exc:
                if not is_fault_of_document(exc):
                    raise
                await self.set_aside(event, exc)
                if not isinstance(exc, InexactKey):
                    await self._build_bare(event, batch)
            if count % _EVENTS_PER_TURN == 0:
                await asyncio.sleep(0)
        return batch

    async def set_aside(self, event: ChangeEvent, fault: Exception) -> None:
        """Store an event of which no version can be made, for an operator."""
        if await self._set_aside.put(self._archive.collection, event, fault):
            self.aside += 1

    async def _build_bare(self, event: ChangeEvent, batch: VersionBatch) -> None:
        """Build the version of a set-aside event: a gap, with the document as it is."""
        last = self._lasts.get(event.key)
        if last is not None and last.token >= event.token:
            return
        after, read_at = event.after, None
        if after is None and event.operation != "delete":
            rebuilt = await self._reconstruction.rebuild(event, None)
            if rebuilt is None:
                return
            after, read_at = rebuilt.document, rebuilt.read_at
        try:
            record, following = make_bare_version(event, after, last, read_at=read_at)
        except ValueError:
            # Its bytes are no document: only the set-aside event can be stored.
            log.exception("set-aside event has no version")
            return
        self.gaps += 1
        self._put(batch, record, last, following)

    async def build_from_chunk(
        self, chunk: SnapshotChunk, number: int, *, doubt: str = ""
    ) -> VersionBatch:
        """Build versions of a chunk: BASELINE for new documents, a gap for those that differ.

        Args:
            number: Number of records that the snapshot has made before.
            doubt: See `Baseline`.
        """
        if chunk.versions is not None:
            return await self._build_from_stored_versions(chunk, chunk.versions, number, doubt)
        batch = VersionBatch()
        place, arrival = chunk.token, chunk.arrival
        documents = [each for each in chunk.documents if self._partition.contains(each["_id"])]
        await self._load(each["_id"] for each in documents)
        for count, document in enumerate(documents, 1):
            if count % _EVENTS_PER_TURN == 0:
                await asyncio.sleep(0)
            if not is_exact(document):
                token = self._partition_token(place, number + len(batch.records))
                fault = InexactKey(INEXACT_KEY)
                await self._set_aside_reading(fault, batch, chunk, token, document["_id"], document)
                continue
            last = self._lasts.get(document["_id"])
            full = None if last is None else last.full
            if last is not None and is_read_later(last, chunk):
                continue
            if full is not None and is_same(full, without_reserved(document)):
                batch.note_spanning(last, doubt)
                continue
            token = self._partition_token(place, number + len(batch.records))
            try:
                self._add(
                    batch,
                    last,
                    token=token,
                    at=chunk.recorded_at,
                    wall=chunk.recorded_wall,
                    key=document["_id"],
                    operation="BASELINE" if full is None else "REPLACE",
                    after=document,
                    read_at=None if chunk.is_exact else chunk.at,
                    gap=not chunk.is_exact and bool(last or doubt or arrival),
                    born=arrival is not None,
                )
            except Exception as exc:
                await self._set_aside_reading(exc, batch, chunk, token, document["_id"], document)
        return batch

    async def _set_aside_reading(
        self,
        fault: Exception,
        batch: VersionBatch,
        chunk: SnapshotChunk,
        token: str,
        key: Any,
        content: RawBSONDocument | None,
        kept: int | None = None,
    ) -> None:
        """Set aside a document of the snapshot, like an event written at that time."""
        if not is_fault_of_document(fault):
            raise fault
        event = event_from_chunk(chunk, token, key, content, kept)
        await self.set_aside(event, fault)
        if not isinstance(fault, InexactKey):
            await self._build_bare(event, batch)

    async def _build_from_stored_versions(
        self, chunk: SnapshotChunk, versions: Sequence[StoredVersion], number: int, doubt: str
    ) -> VersionBatch:
        """Build the versions that the archive lacks, for a collection that keeps versions itself.

        BASELINE for a document's first, and the operation for others.
        """
        batch = VersionBatch()
        place, at, wall = chunk.token, chunk.recorded_at, chunk.recorded_wall
        mine = [each for each in versions if self._partition.contains(each.key)]
        await self._load(each.key for each in mine)
        for count, version in enumerate(mine, 1):
            if count % _EVENTS_PER_TURN == 0:
                await asyncio.sleep(0)
            last = self._lasts.get(version.key)
            token = self._partition_token(place, number + len(batch.records))
            try:
                write = version_from_scan(version, last, token=token, at=at, wall=wall)
                if write is not None:
                    self._add(batch, last, born=chunk.arrival is not None, **write)
                else:
                    batch.note_spanning(last, doubt)
            except Exception as exc:
                content, kept = version.content, version.number
                await self._set_aside_reading(exc, batch, chunk, token, version.key, content, kept)
        return batch

    def _partition_token(self, place: str, number: int) -> str:
        # Other partitions have records of the same event.
        return resume_tokens.numbered_token(place, self._partition.own_number(number))

    async def _load(self, keys: Iterable[Any]) -> None:
        if self._lasts.crowded:
            await self._drain()
        # Pending versions are only in the cache, not in the archive.
        await self._lasts.load(keys)

    async def _build(
        self,
        event: ChangeEvent,
        batch: VersionBatch,
        baseline: Baseline,
        deletion: Mapping[str, Any] | None,
        verdicts: Verdicts,
        *,
        doubt: str,
    ) -> None:
        last = self._lasts.get(event.key)
        # Written before the snapshot reached the document, which existed before recording began.
        unrecorded = last is None and not (baseline.done or baseline.doubt)
        if unrecorded and event.operation != "insert" and event.before is not None:
            self._build_baseline(event, event.before, batch)
            last, unrecorded = self._lasts.get(event.key), False
        if last is not None and is_archived(event, last):
            self.duplicates += 1
            return
        existed = last is not None and last.full is not None
        doubtful = existed and last is not None and last.token < doubt
        # If the last version cannot be read, the changes since then are not known.
        damaged = last is not None and last.damaged
        gap = doubtful or damaged or (existed if event.operation == "insert" else not existed)
        after: RawBSONDocument | None = event.after
        read_at = None
        if event.operation != "delete" and after is None:
            if doubtful or (not existed and not baseline.done):
                self.skipped += 1
                return
            rebuilt = await self._reconstruction.rebuild(event, None if damaged else last)
            if rebuilt is None:  # deleted again; its delete event follows
                self.skipped += 1
                return
            after, read_at = rebuilt.document, rebuilt.read_at
            gap = gap or read_at is not None or event.bare
        self._add(
            batch,
            last,
            token=event.token,
            at=event.at,
            wall=event.wall,
            key=event.key,
            operation=archived_operation(event),
            after=None if event.operation == "delete" else after,
            event=event,
            deletion=deletion,
            read_at=read_at,
            gap=gap,
            disowned=event.token in verdicts.disowned,
            by_copier=event.token in verdicts.copied,
            unrecorded=unrecorded and gap,
        )

    def _build_baseline(
        self, event: ChangeEvent, before: RawBSONDocument, batch: VersionBatch
    ) -> None:
        """Build the first version of a document that existed before recording: its pre-image."""
        self._add(
            batch,
            None,
            token=resume_tokens.token_before_event(event.token),
            at=event.at,
            wall=event.wall,
            key=event.key,
            operation="BASELINE",
            after=before,
        )

    def _build_from_layout(
        self,
        event: ChangeEvent,
        batch: VersionBatch,
        all_known: bool,
        deletion: Mapping[str, Any] | None,
        verdicts: Verdicts,
    ) -> None:
        last = self._lasts.get(event.key)
        write = version_from_write(event, last, all_known=all_known)
        if isinstance(write, NotRecorded):
            self.duplicates += write is NotRecorded.KNOWN
            self.skipped += write is NotRecorded.SKIPPED
        else:
            disowned = event.token in verdicts.disowned
            self._add(batch, last, deletion=deletion, disowned=disowned, **write)

    def _add(
        self,
        batch: VersionBatch,
        last: LastVersion | None,
        *,
        gap: bool = False,
        unrecorded: bool = False,
        born: bool = False,
        kept: int | None = None,
        **write: Any,
    ) -> None:
        record, following = make_version(
            last=last,
            version_field=self._version_field,
            fence_field=self._fence_field,
            gap=gap,
            kept=kept,
            **write,
        )
        if born and last is None:
            # It arrived with its collection, and did not exist before.
            record["born"] = True
        if self._archive.layout.keeps:
            # A removal has no number: those up to the last one are still known.
            known = last.kept if kept is None and last is not None else kept
            following = encode_as_reference(record, following, known)
        elif self._deltas:
            following = encode_as_patch(record, last, following)
        if unrecorded:
            record["unrecorded"] = True
        self.unrecorded += unrecorded
        self.gaps += gap and not unrecorded
        self._put(batch, record, last, following)

    def _put(
        self,
        batch: VersionBatch,
        record: Document,
        last: LastVersion | None,
        following: LastVersion,
    ) -> None:
        before = None if last is None else last.chain
        keeps = self._archive.layout.keeps
        following.chain = add_checksums(record, following.full, before, kept=keeps)
        batch.add(record, last)
        self._lasts.put(record["doc"], following)
