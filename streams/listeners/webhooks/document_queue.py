"""Ordered delivery of one document's versions, and statistics of the receiver's answers.

A failure is judged by the receiver's last success: only if the receiver has accepted another post
since, or nothing could be posted, it is the document's fault (`DeliveryWorker.is_document_fault`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from revstream.streams.core import tracing
from revstream.streams.core.errors import GatewayError, reason_from_error
from revstream.streams.listeners.webhooks.message import DeliveryOutcome, DeliveryResult, Message
from revstream.streams.versioning.version import Version

if TYPE_CHECKING:
    from revstream.streams.listeners.webhooks.http_client import WebhookClient

__all__ = ["DeliveryWorker", "DocumentQueue", "LostVersions", "MessageRenderer"]

log = logging.getLogger(__name__)

# Pauses before a second and a third attempt, where they may help; each up to half as long again.
_PAUSES_S = (0.05, 0.3)


@dataclass(frozen=True, slots=True)
class LostVersions:
    """Versions that can no longer be delivered, of one document or of the collection (None).

    Attributes:
        number: Number of the version, where it is known.
    """

    reason: str
    document: Any = None
    number: int | None = None


class MessageRenderer(Protocol):
    """Renderer of versions as messages for a receiver."""

    def change(self, version: Version, fencing_token: int) -> Message:
        """Return the message of a version; its id is the same each time."""

    def lost(self, lost: LostVersions, fencing_token: int) -> Message:
        """Return the message of lost versions; its id is the same for the same reason."""


class DocumentQueue:
    """Queue of one document's versions, in order.

    Attributes:
        at: Index of the next one.
        leave: Whether to stop after the current one.
        result: The receiver's answer to the one at which delivery stopped; None if all were
            accepted.
        began_at, failed_at: Monotonic times of the last attempt.
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
        """Return the next one; None if all are delivered."""
        return self.items[self.at] if self.at < len(self.items) else None

    @property
    def delivered(self) -> set[str]:
        """Return the tokens of the accepted versions."""
        return {each.token for each in self.items[: self.at] if isinstance(each, Version)}


class DeliveryWorker:
    """Deliveries between one sink and its receiver.

    Attributes:
        delivered, failed: Numbers of accepted and of other posts.
        seconds: Total duration of all posts.
        taken_at: Monotonic time at which the last accepted post began.
        taken: The same as a calendar time.
        rest_until: Monotonic time before which the receiver has requested no posts.
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
        """Deliver until one is not accepted, or all are."""
        while (item := queue.head) is not None and not queue.leave:
            message = None
            try:
                message = self._message(item, fencing_token)
                answer = await self._attempts(queue, message)
            except Exception as exc:
                # One version that cannot be sent must not block the others.
                if not isinstance(exc, GatewayError):
                    log.exception("event cannot be sent")
                answer = DeliveryResult(
                    outcome=DeliveryOutcome.REFUSED,
                    reason=f"not sent: {reason_from_error(exc)}",
                    posted=message is not None,
                )
            if answer.outcome is not DeliveryOutcome.TAKEN:
                queue.result, queue.failed_at = answer, time.monotonic()
                return
            queue.at += 1

    def is_document_fault(self, queue: DocumentQueue) -> bool:
        """Return whether the receiver has no part in the failure.

        That is so if nothing was posted, or it has accepted a post sent after this failure.
        """
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
        tracer = tracing.installed()
        answer = await (
            self.receiver.post(message) if tracer is None else self._traced_post(tracer, message)
        )
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

    async def _traced_post(self, tracer: tracing.Tracer, message: Message) -> DeliveryResult:
        """Post a message in a span of its own, in the trace of the write."""
        facts = {}
        if (host := urlsplit(self.receiver.url).hostname) is not None:
            facts["server.address"] = host
        if (sink := message.headers.get("Revstream-Sink")) is not None:
            facts["sink.name"] = sink
        parent = message.headers.get("traceparent")
        with tracer.span("deliver", facts, kind="client", parent=parent) as span:
            if span.traceparent is not None:
                # The attempt, for spans of the receiver; the signed event has that of the write.
                headers = {**message.headers, "traceparent": span.traceparent}
                message = replace(message, headers=headers)
            answer = await self.receiver.post(message)
            if answer.outcome is not DeliveryOutcome.TAKEN:
                span.fail(answer.outcome.value, answer.reason)
            return answer
