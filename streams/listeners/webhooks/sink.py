"""Webhook sink: delivery of a collection's changes to one receiver, in order for each document.

Delivery is at least once, for many documents at a time. If the receiver does not accept one
document while it accepts others, that document is set aside (`streams.listeners.webhooks.retry`),
and its later versions wait. If it accepts nothing at all, the sink pauses at its position.

Guarantees: `handle` ends soon, whatever the receiver does, or raises; it holds one page of
versions.
Does not guarantee: that each version comes once. A page is delivered again if its process dies
before the position is saved; the id of each event, and its number, identify it.
Source: docs/decisions/0021-sinks.md.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.core.errors import ReceiverAway
from revstream.streams.core.log_throttle import LogThrottle
from revstream.streams.core.task_cleanup import cancel_and_wait
from revstream.streams.listeners.consumer import Handler
from revstream.streams.listeners.webhooks.document_queue import (
    DeliveryWorker,
    DocumentQueue,
    LostVersions,
    MessageRenderer,
)
from revstream.streams.listeners.webhooks.message import DeliveryOutcome, DeliveryResult, redact_url
from revstream.streams.listeners.webhooks.parked_delivery import PendingDeliveries
from revstream.streams.listeners.webhooks.retry import DeliveryRetry, RetryOptions
from revstream.streams.versioning.version import Version

if TYPE_CHECKING:
    from revstream.streams.listeners.webhooks.http_client import WebhookClient

__all__ = ["Sink", "SinkOptions"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Options of a sink.

    Args:
        documents: Maximum number of documents delivered at once, those set aside included.
        grace_s: At the end of a page, how long to wait for documents whose delivery is slow.
        doubts: Maximum number of documents set aside while nothing else is accepted.
        patience_s: After a pause of this length, one more is set aside per attempt, if the receiver
            answers: the next document may be accepted.
    """

    documents: int = 16
    grace_s: float = 2.0
    doubts: int = 8
    patience_s: float = 300.0
    redelivery: RetryOptions = field(default_factory=RetryOptions)

    def __post_init__(self) -> None:
        if self.redelivery.documents >= self.documents:
            raise ValueError(
                f"documents: {self.documents}, expected more than {self.redelivery.documents}, "
                "those of redelivery"
            )


class Sink(Handler):
    """Delivery of one collection to one receiver.

    Args:
        operations: Operations to deliver; None for all.
    """

    start = "now"

    def __init__(
        self,
        *,
        name: str,
        archive: Archive,
        deliveries: PendingDeliveries,
        receiver: WebhookClient,
        rendering: MessageRenderer,
        operations: Sequence[str] | None = None,
        options: SinkOptions | None = None,
    ) -> None:
        self.name = name
        self.collection = archive.collection
        self.url = redact_url(receiver.url)
        self._options = options or SinkOptions()
        self._operations = None if operations is None else frozenset(operations)
        self._receiver = receiver
        self._worker = DeliveryWorker(receiver, rendering)
        self._deliveries = deliveries
        self._redelivery = DeliveryRetry(
            self._worker, deliveries, archive, self._operations, self._options.redelivery
        )
        self._fencing_token = 0
        # Tokens delivered of the current page; token that earlier pages reached.
        self._done: set[str] = set()
        self._upto = ""
        # Number of documents set aside on suspicion since the last accepted post, and the time of
        # the last.
        self._doubts = 0
        self._doubted_at = 0.0
        self._paused_at: float | None = None
        self._gone = LogThrottle(log, "receiver gone", level=logging.ERROR, every_s=3600.0)

    def statistics(self) -> dict[str, float]:
        """Return counts since the process began, and the numbers of documents that wait now."""
        return {
            "delivered": self._worker.delivered,
            "failed": self._worker.failed,
            "seconds": self._worker.seconds,
            "waiting": self._redelivery.waiting,
            "parked": self._redelivery.parked,
        }

    async def begin(self, fencing_token: int) -> None:
        self._fencing_token = fencing_token
        self._done.clear()
        await self._receiver.open()
        await self._redelivery.begin()
        self._upto = await self._deliveries.position()
        if not self._receiver.signed:
            log.warning("sink does not sign", extra={"listener": self.name, "url": self.url})

    async def end(self) -> None:
        await self._redelivery.end()
        await self._receiver.close()

    async def handle(self, versions: Sequence[Version], fencing_token: int) -> None:
        await self._rest()
        queues = await self._queues(versions)
        while queues:
            queues = await self._deliver(queues, fencing_token)
        self._done.clear()
        self._paused_at = None
        self._upto = versions[-1].token

    async def turn(self, fencing_token: int) -> bool:
        return await self._redelivery.turn(self._upto, fencing_token)

    async def lost(self, reason: str) -> None:
        await self._rest()
        queue = DocumentQueue(None, [LostVersions(reason)])
        await self._worker.run(queue, self._fencing_token)
        if queue.result is None:
            return
        if queue.result.outcome is DeliveryOutcome.REFUSED or (
            queue.result.outcome is DeliveryOutcome.FAILED and self._patience_is_over()
        ):
            log.error(
                "loss of history not delivered",
                extra={"listener": self.name, "reason": queue.result.reason},
            )
            return
        raise self._pause(queue.result)

    async def _rest(self) -> None:
        """Wait as long as the receiver has requested, while it accepts nothing."""
        rest_s = self._worker.rest_until - time.monotonic()
        if self._paused_at is not None and rest_s > 0:
            await asyncio.sleep(rest_s)

    async def _queues(self, versions: Sequence[Version]) -> list[DocumentQueue]:
        """Return what is left of a page, by document."""
        found: dict[Any, list[Version]] = {}
        for each in versions:
            if self._operations is not None and each.operation not in self._operations:
                continue
            if each.token not in self._done:
                found.setdefault(identity(each.document), []).append(each)
        waiting = await self._redelivery.find_waiting([each[0].document for each in found.values()])
        queues = [
            DocumentQueue(v[0].document, v) for name, v in found.items() if name not in waiting
        ]
        if self._paused_at is not None:
            # Documents that are never accepted must not come first each time.
            random.shuffle(queues)
        return queues

    async def _deliver(
        self, queues: Sequence[DocumentQueue], fencing_token: int
    ) -> list[DocumentQueue]:
        """Deliver, and set aside failed documents. Returns the queues that were not begun.

        Raises:
            ReceiverAway: The receiver accepts nothing.
        """
        left = deque(queues)
        failed: list[DocumentQueue] = []
        running: dict[asyncio.Task[None], DocumentQueue] = {}
        try:
            while running or left:
                while left and self._has_room(running) and not self._hopeless(failed):
                    queue = left.popleft()
                    running[asyncio.create_task(self._worker.run(queue, fencing_token))] = queue
                if not running:
                    break
                done, _ = await asyncio.wait(
                    running,
                    timeout=None if left else self._options.grace_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    queue = running.pop(task)
                    task.result()
                    if queue.result is not None:
                        failed.append(queue)
                if not done and not left:
                    await self._leave_behind(running, fencing_token)
        finally:
            await cancel_and_wait(*running)
            for queue in queues:
                self._done |= queue.delivered
        await self._judge(failed, fencing_token)
        return list(left)

    def _has_room(self, running: dict[asyncio.Task[None], DocumentQueue]) -> bool:
        return len(running) + len(self._redelivery.working) < self._options.documents

    def _hopeless(self, failed: Sequence[DocumentQueue]) -> bool:
        """Return whether so many failed, with nothing accepted since, that the receiver is the
        cause.
        """
        return len(self._doubtful(failed)) > self._options.doubts

    def _doubtful(self, failed: Sequence[DocumentQueue]) -> list[DocumentQueue]:
        return [each for each in failed if not self._worker.is_document_fault(each)]

    async def _leave_behind(
        self, running: dict[asyncio.Task[None], DocumentQueue], fencing_token: int
    ) -> None:
        """Set aside slow documents while the receiver accepts others; their deliveries continue
        there.
        """
        slow = {
            task: queue
            for task, queue in running.items()
            if isinstance(queue.head, Version) and self._worker.taken_at > queue.began_at
        }
        chosen = dict(list(slow.items())[: max(0, self._redelivery.room)])
        if not chosen:
            return
        stored = await self._redelivery.put(list(chosen.values()), fencing_token)
        for (task, queue), waiting in zip(chosen.items(), stored, strict=True):
            del running[task]
            self._redelivery.adopt(waiting, queue, task)

    async def _judge(self, failed: Sequence[DocumentQueue], fencing_token: int) -> None:
        """Set aside documents whose failure is, or may be, their own fault.

        Raises:
            ReceiverAway: The receiver is the cause.
        """
        doubtful = self._doubtful(failed)
        aside = [each for each in failed if each not in doubtful]
        if self._worker.taken_at > self._doubted_at:
            self._doubts = 0
        reached = all(_result(each).outcome is not DeliveryOutcome.AWAY for each in doubtful)
        if reached and self._doubts + len(doubtful) <= self._options.doubts:
            risked = doubtful
        elif reached and self._patience_is_over():
            risked = doubtful[:1]
        else:
            risked = []
        if aside or risked:
            await self._redelivery.put([*aside, *risked], fencing_token)
        if risked:
            self._doubts += len(risked)
            self._doubted_at = time.monotonic()
        if len(risked) < len(doubtful):
            raise self._pause(_result(doubtful[-1]))

    def _patience_is_over(self) -> bool:
        paused = self._paused_at
        return paused is not None and time.monotonic() - paused >= self._options.patience_s

    def _pause(self, answer: DeliveryResult) -> ReceiverAway:
        now = time.monotonic()
        if self._paused_at is None or self._worker.taken_at > self._paused_at:
            self._paused_at = now
        if answer.gone:
            # It asks for no further posts; only the operator of revstream can stop them.
            self._gone.note(listener=self.name, url=self.url, reason=answer.reason)
        return ReceiverAway(f"{self.url} accepts nothing: {answer.reason}")


def _result(queue: DocumentQueue) -> DeliveryResult:
    assert queue.result is not None
    return queue.result
