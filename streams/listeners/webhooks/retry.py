"""Retries of documents that a sink has set aside: with backoff, in the order of each document.

They run beside the sink's other deliveries. A document that fails too often is parked. An attempt
counts only if the receiver has accepted another post since the previous one: while it accepts
nothing, nothing is parked.
Source: docs/decisions/0021-sinks.md.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from revstream.streams.archive.store import Archive
from revstream.streams.archive.tolerant_reader import read_versions
from revstream.streams.changefeed.event import identity
from revstream.streams.core.log_throttle import LogThrottle
from revstream.streams.core.task_cleanup import cancel_and_wait
from revstream.streams.listeners.webhooks.document_queue import (
    DeliveryWorker,
    DocumentQueue,
    LostVersions,
)
from revstream.streams.listeners.webhooks.message import DeliveryOutcome
from revstream.streams.listeners.webhooks.parked_delivery import PendingDeliveries, PendingDelivery
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.versioning.version import Version

__all__ = ["DeliveryRetry", "RetryOptions"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryOptions:
    """Options of retries.

    Args:
        documents: Maximum number of documents delivered at once.
        versions: Versions of one document per delivery.
        first_s: Pause after the first failure; it doubles with each, give or take a quarter.
        most_s: Maximum pause.
        unvouched_most_s: Maximum pause while the receiver accepts nothing.
        attempts: Number of counted attempts after which a document is parked.
        refusals: The same where the receiver refuses the version (4xx).
        count_every_s: Interval at which waiting documents are counted; commands change them.
    """

    documents: int = 8
    versions: int = 50
    first_s: float = 1.0
    most_s: float = 3600.0
    unvouched_most_s: float = 60.0
    attempts: int = 20
    refusals: int = 6
    count_every_s: float = 5.0


class DeliveryRetry:
    """Retries of one sink. Only one task at a time may call it.

    Attributes:
        waiting: Number of waiting documents, parked ones included.
        parked: Number of parked documents.
        working: Running deliveries, by the document's `identity`.
    """

    def __init__(
        self,
        worker: DeliveryWorker,
        deliveries: PendingDeliveries,
        archive: Archive,
        operations: frozenset[str] | None,
        options: RetryOptions,
    ) -> None:
        self.waiting = self.parked = 0
        self.working: dict[Any, _Work] = {}
        self.options = options
        self._worker = worker
        self._deliveries = deliveries
        self._archive = archive
        self._operations = operations
        self._counted_at = 0.0
        self._set_aside = LogThrottle(log, "deliveries set aside")
        self._parked = LogThrottle(log, "delivery parked", level=logging.ERROR)

    async def begin(self) -> None:
        await self._deliveries.prepare()
        await self._count()

    async def end(self) -> None:
        working, self.working = self.working, {}
        await cancel_and_wait(*(each.task for each in working.values()))

    async def find_waiting(self, documents: Sequence[Any]) -> set[Any]:
        """Return which of these documents wait, by `identity`."""
        return await self._deliveries.find_waiting(documents) if self.waiting else set()

    async def put(
        self, queues: Sequence[DocumentQueue], fencing_token: int
    ) -> list[PendingDelivery]:
        """Set documents aside, from the version at which their queues stopped or are now."""
        now = datetime.now(UTC)
        fresh = []
        for queue in queues:
            head = queue.head
            assert isinstance(head, Version)
            waiting = PendingDelivery(
                sink=self._deliveries.sink,
                collection=self._archive.collection,
                document=queue.document,
                number=head.number,
                token=head.token,
                since=now,
                next_at=now,
            )
            fresh.append(waiting if queue.result is None else self._failed(waiting, queue, now))
        stored = await self._deliveries.put(fresh, fencing_token)
        self.waiting += len(stored)
        for queue in queues:
            reason = "no result yet" if queue.result is None else queue.result.reason
            self._set_aside.note(listener=self._deliveries.sink, reason=reason)
        return stored

    def adopt(
        self, waiting: PendingDelivery, queue: DocumentQueue, task: asyncio.Task[None]
    ) -> None:
        """Take over the running delivery of a document that was set aside."""
        queue.leave = True
        self.working[identity(queue.document)] = _Work(waiting, queue, task)

    @property
    def room(self) -> int:
        """Return how many more deliveries can run."""
        return self.options.documents - len(self.working)

    async def turn(self, upto: str, fencing_token: int) -> bool:
        """Store results of ended deliveries and begin due ones. Returns whether anything changed.

        Args:
            upto: Versions after this token are not set aside.
        """
        moved = await self._note_ended(fencing_token)
        if not self.waiting:
            return moved
        if time.monotonic() - self._counted_at >= self.options.count_every_s:
            await self._count()
        if self.room > 0:
            due = await self._deliveries.due(
                datetime.now(UTC),
                limit=self.room,
                besides=[each.waiting.id for each in self.working.values()],
            )
            for each in due:
                await self._begin(each, upto, fencing_token)
                moved = True
        return moved

    async def _begin(self, waiting: PendingDelivery, upto: str, fencing_token: int) -> None:
        if waiting.drop is not None:
            waiting = await self._drop(waiting, fencing_token)
            if waiting.parked is not None:
                return
        records = await self._archive.find(
            {"doc": {"$eq": waiting.document}, "v": {"$gte": waiting.number}},
            FindOptions(sort=[("v", 1)], limit=self.options.versions),
            fill=False,
        )
        wanted = [each for each in records if each["_id"] <= upto and self._wanted(each["op"])]
        found = await read_versions(self._archive, wanted)
        versions = [
            LostVersions(each, waiting.document, record["v"]) if isinstance(each, str) else each
            for record, each in zip(wanted, found, strict=True)
        ]
        if waiting.token is not None and waiting.token not in {each["_id"] for each in records}:
            reason = f"version {waiting.number} was deleted before its delivery"
            versions.insert(0, LostVersions(reason, waiting.document))
        if versions:
            queue = DocumentQueue(waiting.document, versions)
            task = asyncio.create_task(self._worker.run(queue, fencing_token))
            self.working[identity(waiting.document)] = _Work(waiting, queue, task)
        elif len(records) == self.options.versions and records[-1]["_id"] <= upto:
            # None of these versions is to be delivered; later ones may be.
            await self._deliveries.save(_reset(waiting, records[-1]["v"] + 1), fencing_token)
        else:
            await self._deliveries.remove(waiting, fencing_token)
            self.waiting -= 1

    def _wanted(self, operation: str) -> bool:
        return self._operations is None or operation in self._operations

    async def _drop(self, waiting: PendingDelivery, fencing_token: int) -> PendingDelivery:
        """Drop the version that an operator chose, if it still is the first that waits."""
        drop = waiting.drop
        assert drop is not None
        passed = drop.token == waiting.token
        after = _reset(waiting, waiting.number + 1) if passed else replace(waiting, drop=None)
        if passed:
            await self._deliveries.drop(waiting, after, fencing_token)
            log.warning("delivery dropped", extra={"listener": waiting.sink, "by": drop.by})
        else:
            await self._deliveries.forget_drop(waiting, fencing_token)
        self._counted_at = 0.0
        return after

    async def _note_ended(self, fencing_token: int) -> bool:
        ended = [(name, each) for name, each in self.working.items() if each.task.done()]
        for name, work in ended:
            work.task.result()
            await self._deliveries.save(self._after(work), fencing_token)
            # Removed last: a delivery whose result is not stored still counts as running.
            del self.working[name]
        return bool(ended)

    def _after(self, work: _Work) -> PendingDelivery:
        """Return the pending delivery after a run."""
        waiting, queue, now = work.waiting, work.queue, datetime.now(UTC)
        if queue.at:
            last = queue.items[queue.at - 1]
            # After a dropped version, the next existing number is unknown.
            number = waiting.number if last.number is None else last.number
            waiting = _reset(waiting, number + 1)
        if queue.result is None:
            return waiting
        if isinstance(queue.head, Version):
            waiting = replace(waiting, number=queue.head.number, token=queue.head.token)
        after = self._failed(waiting, queue, now)
        if after.parked is not None:
            self.parked += 1
            self._parked.note(listener=waiting.sink, reason=queue.result.reason)
        return after

    def _failed(
        self, waiting: PendingDelivery, queue: DocumentQueue, now: datetime
    ) -> PendingDelivery:
        answer = queue.result
        assert answer is not None
        counts = (
            waiting.tried_at is None or not answer.posted or self._worker.taken > waiting.tried_at
        )
        attempts = waiting.attempts + counts
        most = (
            self.options.refusals
            if answer.outcome is DeliveryOutcome.REFUSED
            else self.options.attempts
        )
        pause_s = self.options.first_s * 2.0 ** min(waiting.tries, 30) * random.uniform(0.75, 1.25)
        pause_s = min(pause_s, self.options.most_s if counts else self.options.unvouched_most_s)
        pause_s = max(pause_s, answer.retry_after_s or 0.0)
        return replace(
            waiting,
            attempts=attempts,
            tries=waiting.tries + 1,
            tried_at=now,
            next_at=now + timedelta(seconds=pause_s),
            reason=": ".join(filter(None, (answer.reason, answer.said))),
            parked=now if counts and attempts >= most else None,
        )

    async def _count(self) -> None:
        self._counted_at = time.monotonic()
        self.waiting, self.parked = await self._deliveries.count()


@dataclass(frozen=True, slots=True)
class _Work:
    waiting: PendingDelivery
    queue: DocumentQueue
    task: asyncio.Task[None]


def _reset(waiting: PendingDelivery, number: int) -> PendingDelivery:
    """Return the pending delivery at the next version, without attempts."""
    return replace(
        waiting,
        number=number,
        token=None,
        attempts=0,
        tries=0,
        tried_at=None,
        next_at=datetime.now(UTC),
        reason=None,
        parked=None,
        drop=None,
    )
