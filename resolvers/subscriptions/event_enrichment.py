"""Enrichment of events with version numbers and images that the stream lacks.

The live stream carries the images before and after if the server stores them. Version numbers are
those of the archive, since a writer may not count. A number that is requested and not announced
(`streams.live.pending_versions`), or a missing image, is read from the archive: one lookup by token
for a whole batch, which waits for the recorder within a bound.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

from revstream.model.definition import Entity
from revstream.resolvers.subscriptions.single_flight import SingleFlight
from revstream.resolvers.values.field_diff import hidden_fields
from revstream.streams.archive.horizon import Horizons
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.pending_versions import NumberedEvent, PendingVersions
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.raw_bson.diff import find_differences
from revstream.streams.versioning.attribution import claimed_change, declared_operation
from revstream.streams.versioning.version import CHANGE_FIELD, archived_operation

__all__ = ["Change", "EventEnrichment", "EventNeeds"]

# Parts of the stream that are kept: many subscribers are given the same ones.
_PARTS = 4


@dataclass(frozen=True, slots=True)
class EventNeeds:
    """Parts of an event that a subscription needs beyond the live stream."""

    version: bool = False
    before: bool = False
    author: bool = False


@dataclass(frozen=True, kw_only=True)
class Change:
    """Item of a subscription. Documents have stored names, `token` has no deployment tag.

    Attributes:
        kind: SNAPSHOT, CHANGE or CHECKPOINT.
        transition: ENTER, STAY or LEAVE; set by the filter.
        cut: the version before was dropped, so that `before` is unknown.
    """

    entity: Entity
    kind: str
    token: str
    operation: str | None = None
    transition: str | None = None
    document_id: Any = None
    version: int | None = None
    previous_version: int | None = None
    at: datetime | None = None
    by: str | None = None
    why: str | None = None
    traceparent: str | None = None
    replayed: bool = False
    gap: bool = False
    cut: bool = False
    document: Document | None = None
    before: Document | None = None
    changed_paths: tuple[str, ...] | None = None

    @cached_property
    def changed(self) -> tuple[str, ...] | None:
        """Stored dotted paths that changed; computed on first access."""
        if self.changed_paths is not None or self.kind == "CHECKPOINT":
            return self.changed_paths
        hidden = hidden_fields(self.entity)
        if self.document is None:
            return ()
        if self.before is None:
            return tuple(name for name in self.document if name not in hidden)
        found = find_differences(self.before, self.document)
        return tuple(each.dotted for each in found if each.path[0] not in hidden)

    def moved(self, transition: str) -> Change:
        """Return this change with a transition, the same object for all subscribers."""
        made = self._moved.get(transition)
        if made is None:
            made = self._moved[transition] = replace(self, transition=transition)
        return made

    @cached_property
    def _moved(self) -> dict[str, Change]:
        return {}


class EventEnrichment:
    """Enrichment of the events of one entity, with lookups that its subscribers share."""

    def __init__(
        self,
        entity: Entity,
        archive: Archive,
        progress: ArchiveProgress,
        horizons: Horizons,
        numbers: PendingVersions | None = None,
    ) -> None:
        """Create the enrichment of one entity.

        Args:
            numbers: versions that the archive may not have yet.
        """
        self._entity = entity
        self._numbers = numbers
        self._archive = archive
        self._progress = progress
        self._horizons = horizons
        self._records = _Records(archive)
        self._completed: SingleFlight[tuple[tuple[str, ...], EventNeeds, bool], list[Change]] = (
            SingleFlight(kept=_PARTS)
        )

    async def of_records(self, records: Sequence[Document], needs: EventNeeds) -> list[Change]:
        """Versions as changes, in their order."""
        before = await self._before(records, full=needs.before) if _any(needs) else None
        return [self._of_record(record, before) for record in records]

    async def of_events(
        self, events: Sequence[ChangeEvent], needs: EventNeeds, *, replayed: bool
    ) -> Sequence[Change]:
        """Change events as changes, in their order; a dropped collection deletes each document."""
        key = tuple([each.token for each in events]), needs, replayed
        return await self._completed.run(key, lambda: self._of_events(events, needs, replayed))

    async def _of_events(
        self, events: Sequence[ChangeEvent], needs: EventNeeds, replayed: bool
    ) -> list[Change]:
        numbers: Mapping[str, NumberedEvent] = {}
        if (needs.version or needs.author) and self._numbers is not None:
            # Without an image of what was, it may not be what it seems.
            sure = [
                each
                for each in events
                if (each.before is not None or each.operation == "insert")
                and (needs.version or _claims(each))
            ]
            # The record of a recent event is still cached.
            unknown = [each for each in sure if not self._records.known(each.token)]
            numbers = await self._numbers.lookup(unknown) if unknown else {}
        incomplete = [
            each
            for each in events
            if not each.is_write or _incomplete(each, needs, numbers.get(each.token))
        ]
        if not incomplete:
            return [
                self._of_event(each, None, None, replayed, numbers.get(each.token))
                for each in events
            ]
        limit_s, last = self._progress.takeover_s, incomplete[-1].token
        await self._progress.wait(self._archive.collection, last, limit_s=limit_s)
        writes = [each for each in incomplete if each.is_write]
        full = any(_lacks_image(each, needs) for each in writes)
        records = await self._records.load([each.token for each in writes], full=full)
        for each in writes:
            if records[each.token] is None:
                # No version was made of it, or retention was faster.
                await self._horizons.check_after_read(self._archive.collection, each.token)
        found = [each for each in records.values() if each is not None]
        before = await self._before(found, full=full)
        made: list[Change] = []
        for event in events:
            if event.is_write:
                record = records.get(event.token)
                earlier = None if record is None else before.get(record["prev"])
                number = numbers.get(event.token)
                made.append(self._of_event(event, record, earlier, replayed, number))
            else:
                made += await self._of_drop(event, needs)
        return made

    async def _of_drop(self, event: ChangeEvent, needs: EventNeeds) -> list[Change]:
        made: list[Change] = []
        position, end = event.token + "-", event.token + "."
        while records := await self._archive.scan(position, end, limit=500):
            made += await self.of_records(records, needs)
            position = records[-1]["_id"]
        await self._horizons.check_after_read(self._archive.collection, event.token)
        return made

    async def _before(
        self, records: Sequence[Document], *, full: bool
    ) -> Mapping[str, Document | None]:
        """The versions before these, by token."""
        here: dict[str, Document | None] = {record["_id"]: record for record in records}
        wanted = [r["prev"] for r in records if r["prev"] is not None]
        missing = [token for token in wanted if token not in here]
        return here | await self._records.load(missing, full=full) if missing else here

    def _of_record(self, record: Document, befores: Mapping[str, Document | None] | None) -> Change:
        before = None if befores is None else befores.get(record["prev"])
        dropped = befores is not None and record["prev"] is not None and before is None
        cut = dropped or "cut" in record
        return Change(
            entity=self._entity,
            kind="CHANGE",
            token=record["_id"],
            operation=record["op"],
            document_id=record["doc"],
            version=record["v"],
            previous_version=None if before is None else before["v"],
            at=record["wall"],
            by=record["by"],
            why=record["why"],
            traceparent=record.get("traceparent"),
            replayed=True,
            gap=record.get("gap", False) or cut,
            cut=cut,
            document=record["full"],
            before=None if before is None else before.get("full"),
            changed_paths=tuple(record["changed"]),
        )

    def _of_event(
        self,
        event: ChangeEvent,
        record: Document | None,
        before: Document | None,
        replayed: bool,
        numbered: NumberedEvent | None,
    ) -> Change:
        number, previous, by, why, traceparent = numbered or (None, None, None, None, None)
        document = event.document
        if document is None and record is not None:
            document = record.get("full")
        earlier = event.document_before
        if earlier is None and before is not None:
            earlier = before.get("full")
        dropped = record is not None and ("cut" in record or (record["prev"] and before is None))
        cut = bool(dropped) and earlier is None and event.operation != "insert"
        if record is not None:
            by, why, operation = record["by"], record["why"], record["op"]
            traceparent = record.get("traceparent")
        else:
            carried = (earlier or {}).get(CHANGE_FIELD)
            claimed = claimed_change(event, document, carried, event.deletion)
            operation = declared_operation(event, claimed) or archived_operation(event)
        return Change(
            entity=self._entity,
            kind="CHANGE",
            token=event.token,
            operation=operation,
            document_id=event.key,
            version=number if record is None else record["v"],
            previous_version=previous if before is None else before["v"],
            at=event.wall,
            by=by,
            why=why,
            traceparent=traceparent,
            replayed=replayed,
            gap=cut or (record is not None and record.get("gap", False)),
            cut=cut,
            document=document,
            before=earlier,
            changed_paths=None if record is None else tuple(record["changed"]),
        )


class _Records:
    """Cache of archive records by token; concurrent requests share one read."""

    def __init__(self, archive: Archive, *, capacity: int = 1000) -> None:
        self._archive = archive
        self._capacity = capacity
        self._known: OrderedDict[tuple[str, bool], asyncio.Future[Document | None]] = OrderedDict()

    def known(self, token: str) -> bool:
        """Return whether a record is cached, without the document before."""
        return (token, False) in self._known

    async def load(self, wanted: Sequence[str], *, full: bool) -> dict[str, Document | None]:
        """Read records by token; None for a missing one. At most one read."""
        loop = asyncio.get_running_loop()
        asked: dict[str, asyncio.Future[Document | None]] = {}
        answers: dict[str, asyncio.Future[Document | None]] = {}
        for token in wanted:
            answer = self._known.get((token, full))
            if answer is None:
                answer = self._known[token, full] = asked[token] = loop.create_future()
            answers[token] = answer
        reading = asyncio.ensure_future(self._read(asked, full)) if asked else None
        # Shielded: a cancelled caller must not cancel the read of the others.
        found = {token: await asyncio.shield(answer) for token, answer in answers.items()}
        if reading is not None:
            await reading
        while len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return found

    async def _read(self, asked: Mapping[str, asyncio.Future[Document | None]], full: bool) -> None:
        try:
            found = await self._archive.by_token(
                list(asked), projection=None if full else {"full": 0}
            )
        except Exception as exc:
            # Any exception: else the other callers would wait for ever.
            for token, answer in asked.items():
                self._known.pop((token, full), None)
                answer.set_exception(exc)
                answer.exception()  # mark it as retrieved, also without a waiting caller
            return
        for token, answer in asked.items():
            answer.set_result(found.get(token))


def _any(needs: EventNeeds) -> bool:
    return needs.version or needs.before


def _incomplete(event: ChangeEvent, needs: EventNeeds, numbered: NumberedEvent | None) -> bool:
    # Only the archive has the author of a deletion.
    anonymous = needs.author and event.operation == "delete" and event.in_transaction
    # So of any other: what the document says of it may be another write's.
    unknown = numbered is None and (needs.version or (needs.author and _claims(event)))
    return unknown or anonymous or _lacks_image(event, needs)


def _claims(event: ChangeEvent) -> bool:
    """Return whether a document names its author."""
    return event.deletion is not None or CHANGE_FIELD in (event.document or ())


def _lacks_image(event: ChangeEvent, needs: EventNeeds) -> bool:
    lacks_after = event.after is None and event.operation != "delete"
    lacks_before = needs.before and event.before is None and event.operation != "insert"
    return lacks_after or lacks_before
