"""Deliver the versions of one document one after the other, and keep count of what the receiver
takes.

Its last success is what a failure is judged by: only if the receiver has taken something else
since, or nothing could be posted, the failure is the document's own
(`DeliveryWorker.is_document_fault`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from revstream.streams.core.errors import GatewayError, reason_from_error
from revstream.streams.listeners.webhooks.message import DeliveryOutcome, DeliveryResult, Message
from revstream.streams.versioning.version import Version

if TYPE_CHECKING:
    from revstream.streams.listeners.webhooks.http_client import WebhookClient

__all__ = ["DeliveryWorker", "DocumentQueue", "LostVersions", "MessageRenderer"]

log = logging.getLogger(__name__)

# Before a second and a third attempt, where it may help; each up to half as long again.
_PAUSES_S = (0.05, 0.3)


@dataclass(frozen=True, slots=True)
class LostVersions:
    """Versions that can no longer be delivered: of one document, or of the collection (None).
    `number`: of the version, where it is known which one that is."""

    reason: str
    document: Any = None
    number: int | None = None


class MessageRenderer(Protocol):
    """What a version looks like to the receiver."""

    def change(self, version: Version, fencing_token: int) -> Message:
        """Of a version; the same id each time."""

    def lost(self, lost: LostVersions, fencing_token: int) -> Message:
        """Of versions that are gone; the same id for the same reason."""


class DocumentQueue:
    """What is to be delivered of one document, in order.

    Attributes:
        at: which of them is next.
        leave: not to begin another one.
        answer: what the receiver said to the one at which it ended; None where it took them all.
        began_at, failed_at: by the monotonic clock, of the last attempt.
    """

    def __init__(self, document: Any, items: Sequence[Version | LostVersions]) -> None:
        self.document = document
        self.items = items
        self.at = 0
        self.leave = False
        self.result: DeliveryResult | None = None
        self.began_at = self.failed_at = 0.0

    @property
    def head(self) -> Version | LostVersions | None:
        """The next one; None where all are delivered."""
        return self.items[self.at] if self.at < len(self.items) else None

    @property
    def delivered(self) -> set[str]:
        """The tokens of the versions that were taken."""
        return {each.token for each in self.items[: self.at] if isinstance(each, Version)}


class DeliveryWorker:
    """Between one sink and its receiver.

    Attributes:
        delivered, failed, seconds: posts that were taken, that were not, and how long both took.
        taken_at: when the last one was begun that was taken, by the monotonic clock; `taken`: by
            the calendar.
        rest_until: before this the receiver has asked not to be asked, by the monotonic clock.
    """

    def __init__(self, receiver: WebhookClient, rendering: MessageRenderer) -> None:
        self.receiver = receiver
        self.delivered = self.failed = 0
        self.seconds = 0.0
        self.taken_at = 0.0
        self.taken = datetime.fromtimestamp(0, UTC)
        self.rest_until = 0.0
        self._rendering = rendering

    async def run(self, queue: DocumentQueue, fencing_token: int) -> None:
        """Deliver until one is not taken, or all are."""
        while (item := queue.head) is not None and not queue.leave:
            message = None
            try:
                message = self._message(item, fencing_token)
                answer = await self._attempts(queue, message)
            except Exception as exc:
                # One version that cannot be sent is no reason to hold up the others.
                if not isinstance(exc, GatewayError):
                    log.exception("event cannot be sent")
                answer = DeliveryResult(
                    outcome=DeliveryOutcome.REFUSED,
                    reason=f"it cannot be sent: {reason_from_error(exc)}",
                    posted=message is not None,
                )
            if answer.outcome is not DeliveryOutcome.TAKEN:
                queue.result, queue.failed_at = answer, time.monotonic()
                return
            queue.at += 1

    def is_document_fault(self, queue: DocumentQueue) -> bool:
        """Return whether the receiver has no part in the failure: nothing was posted, or it has
        taken something that was sent after this one had failed."""
        posted = queue.result is None or queue.result.posted
        return not posted or self.taken_at > queue.failed_at

    def _message(self, item: Version | LostVersions, fencing_token: int) -> Message:
        if isinstance(item, LostVersions):
            return self._rendering.lost(item, fencing_token)
        return self._rendering.change(item, fencing_token)

    async def _attempts(self, queue: DocumentQueue, message: Message) -> DeliveryResult:
        for pause_s in (*_PAUSES_S, None):
            answer = await self._post(queue, message)
            if pause_s is None or not answer.at_once:
                break
            await asyncio.sleep(pause_s * random.uniform(1, 1.5))
        return answer

    async def _post(self, queue: DocumentQueue, message: Message) -> DeliveryResult:
        queue.began_at, began = time.monotonic(), datetime.now(UTC)
        answer = await self.receiver.post(message)
        now = time.monotonic()
        self.seconds += now - queue.began_at
        if answer.outcome is DeliveryOutcome.TAKEN:
            self.delivered += 1
            if queue.began_at > self.taken_at:
                self.taken_at, self.taken = queue.began_at, began
        else:
            self.failed += 1
            if answer.retry_after_s is not None:
                self.rest_until = now + answer.retry_after_s
        return answer
