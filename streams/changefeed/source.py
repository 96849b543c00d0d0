"""Source: follows one MongoDB change stream for ever, in batches of events with their position.

Guarantees: every event after the starting token once, in order, across cursor deaths, elections and
outages; the position never goes back. Cancelling is safe at any await: events that were not yielded
are read again. Does not guarantee: images (the server may not have them, and an event that would
exceed 16 MB with them comes without them, or without any content: `streams.changefeed.detail`), or
an end to an outage; retries go on until cancelled. Source: docs/decisions/0005-resume-by-time.md.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.detail import DetailLevel, StreamDetail
from revstream.streams.changefeed.event import WRITES, ChangeEvent, EventBatch, decode_event, key_of
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import (
    ConnectionLost,
    DatabaseError,
    GatewayError,
    HistoryLost,
    Unavailable,
)
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.driver.error_translation import TOO_LARGE

__all__ = ["Source", "SourceOptions"]

log = logging.getLogger(__name__)

# Events decoded before the event loop gets a turn: a few milliseconds' worth.
_EVENTS_PER_TURN = 200

_NEVER = Timestamp(0, 0)

# Event types of a change stream without showExpandedEvents.
_EVENT_TYPES = [*sorted(WRITES), "drop", "rename", "dropDatabase", "invalidate"]

# Operation type of an event reduced to its position; the server has no such type.
_MARK = "mark"

ServerToken: TypeAlias = RawBSONDocument

# Seconds between log lines of an interruption that lasts.
_LOG_INTERVAL_S = 60.0

# Number of times that the server closes the connection at one position until the event there counts
# as too large.
_CLOSED_MOST = 2

_HISTORY_LOST = {
    286,  # ChangeStreamHistoryLost
    136,  # CappedPositionLost: the cursor fell off the oplog's end
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options of a source.

    Attributes:
        batch_events: Maximum number of events in one round trip (the server also stops at 16 MB).
        wait_ms: Time for which the server waits for the first event; a quiet stream's position is
            known this often.
        retry_first_s, retry_most_s: Back-off between attempts, doubled each time, with jitter.
    """

    batch_events: int = 1000
    wait_ms: int = 100
    retry_first_s: float = 0.1
    retry_most_s: float = 10.0


class Source:
    """One change stream over some collections of one database.

    Args:
        holds: Predicate on `_id`s: writes to other documents are skipped undecoded. None: all.
        expanded: The server describes the paths of updates only in expanded events; other events
            that the option adds are left out.
        marks_from: From this time on, writes to other collections of the database end a reply, and
            are skipped; otherwise the server scans all of the oplog for one event.
        name: Name of the stream in the log.

    Attributes:
        before_images: Request pre-images, from the next opening on.
        connected: The stream is open.
        trouble: Reason of the current interruption; None where the stream is open or not read.
        reconnects: Number of interruptions.
    """

    def __init__(
        self,
        mongo: Mongo,
        collections: Sequence[str],
        *,
        before_images: bool,
        sharded: bool = False,
        expanded: bool = False,
        holds: Callable[[Any], bool] | None = None,
        marks_from: Timestamp | None = None,
        options: SourceOptions | None = None,
        name: str = "live",
    ) -> None:
        self._mongo = mongo
        self._collections = sorted(collections)
        self.before_images = before_images
        self._sharded = sharded
        self._expanded = expanded
        self._holds = holds
        self._marks_from = marks_from
        self._options = options or SourceOptions()
        self.reconnects = 0
        self.connected = False
        self.trouble: str | None = None
        self._name = name
        self._logged_at = 0.0
        # The last reply had no events: all events had been sent.
        self._at_end = False
        # The server's token of the last event of the last reply.
        self._last_token: ServerToken | None = None

    async def batches(self, after: str) -> AsyncGenerator[EventBatch]:
        """Yield every event after that token; never ends.

        Also yields empty batches, whose position tells that no event was there.

        Raises:
            HistoryLost: The token is older than the oplog.
            Unsuitable: A standalone server, or missing privileges.
        """
        position = after
        start = resume_tokens.cluster_time(after)
        behind: ServerToken | None = None
        attempt = closed = 0
        detail = StreamDetail(before_images=self.before_images)
        try:
            while True:
                self._at_end = False
                try:
                    async with aclosing(
                        self._read_cursor(position, start, behind, detail)
                    ) as opened:
                        first = True
                        async for batch in opened:
                            # An overloaded server may open a stream and refuse the next command.
                            attempt, first = attempt if first else 0, False
                            self.connected = True
                            self._log_recovery()
                            if batch.position > position:
                                closed = 0
                                behind = None
                            position = batch.position
                            yield batch
                            if detail.changed:
                                break
                    if detail.changed:
                        start, behind = resume_tokens.cluster_time(position), self._last_token
                        continue
                    # The server ended the stream after an invalidate; opened at that time it would
                    # only end again.
                    last = resume_tokens.cluster_time(position)
                    start = Timestamp(last.time, last.inc + 1)
                    position = max(position, resume_tokens.token_from_time(last))
                    continue
                except GatewayError as exc:
                    if isinstance(exc, ConnectionLost) and not self._at_end:
                        closed += 1
                    too_large = getattr(exc, "number", None) == TOO_LARGE
                    if closed >= _CLOSED_MOST and await self._is_reachable():
                        too_large, closed = True, 0
                    if too_large and detail.reduce(position):
                        start = resume_tokens.cluster_time(position)
                        continue
                    self.connected = False
                    _check_resumable(exc, position)
                    reason = exc.message
                start = resume_tokens.cluster_time(position)
                self.reconnects += 1
                delay = min(
                    self._options.retry_most_s,
                    self._options.retry_first_s * 2 ** min(attempt, 20),
                ) * random.uniform(0.5, 1.0)
                attempt += 1
                self._log_interruption(reason, attempt, delay)
                await asyncio.sleep(delay)
        finally:
            # The stream is no longer read, so its trouble affects no reader.
            self.connected, self.trouble = False, None

    async def _is_reachable(self) -> bool:
        """Return whether the server answers another command, so that it is not unavailable."""
        try:
            await self._mongo.command({"ping": 1})
        except GatewayError:
            return False
        return True

    def _log_interruption(self, reason: str, attempt: int, delay_s: float) -> None:
        # An outage of an hour must not log a line for each attempt.
        now = time.monotonic()
        if self.trouble is None or now - self._logged_at >= _LOG_INTERVAL_S:
            self._logged_at = now
            log.warning(
                "change stream interrupted",
                extra={
                    "stream": self._name,
                    "reason": reason,
                    "attempt": attempt,
                    "retry_in_s": round(delay_s, 2),
                },
            )
        self.trouble = reason

    def _log_recovery(self) -> None:
        if self.trouble is not None:
            self.trouble = None
            log.info("change stream open again", extra={"stream": self._name})

    async def _read_cursor(
        self, position: str, start: Timestamp, behind: ServerToken | None, detail: StreamDetail
    ) -> AsyncGenerator[EventBatch]:
        """Read one cursor until the server closes it.

        Args:
            behind: The server's token of an event that is too large and must not be read again.
        """
        last_event = ""
        detail.changed = False
        level = detail.level
        async with self._mongo.change_batches(
            self._pipeline(start, behind, level),
            size=1 if level.single else self._options.batch_events,
            wait_ms=self._options.wait_ms,
        ) as replies:
            async for reply in replies:
                if level.lossy and (beyond := _token_before_first(reply["batch"])) > position:
                    # The events there are read again with full detail.
                    self._last_token = None
                    detail.note_reply(1, moved=True)
                    yield EventBatch((), beyond, passed_over=True)
                    return
                events: list[ChangeEvent] = []
                for count, raw in enumerate(reply["batch"], 1):
                    if count % _EVENTS_PER_TURN == 0:
                        await asyncio.sleep(0)
                    if not self._is_wanted(raw):
                        continue
                    event = decode_event(raw)
                    # Opened by time, so events of that time come again.
                    if event.token > position:
                        events.append(replace(event, bare=True) if level.bare else event)
                # At the end of the stream, no event is too large.
                self._at_end = not reply["batch"]
                if reply["batch"]:
                    last_event = resume_tokens.token_from_stream(reply["batch"][-1]["_id"]["_data"])
                fresh = len(reply["batch"] if level.single else events)
                reached = max(position, last_event)
                if events and events[-1].token == last_event and not events[-1].is_write:
                    # The archive makes many records of an event of the whole collection.
                    reached = max(reached, resume_tokens.token_after_event(last_event))
                if reply["token"] is not None:
                    data = reply["token"]["_data"]
                    more = last_event if reply["batch"] else ""
                    opening = start if not last_event else _NEVER
                    reached = max(reached, self._position_from_token(data, more, opening))
                moved = reached > position
                position = reached
                self._last_token = reply["batch"][-1]["_id"] if reply["batch"] else None
                detail.note_reply(fresh, moved=moved)
                yield EventBatch(tuple(events), position, passed_over=level.lossy and moved)

    def _is_wanted(self, raw: RawBSONDocument) -> bool:
        # Only where needed: decoding the key takes a tenth of the time of recording the event.
        if self._marks_from is not None and raw["operationType"] == _MARK:
            return False
        if self._holds is None or raw["operationType"] not in WRITES:
            return True
        return self._holds(key_of(raw))

    def _position_from_token(self, data: str, more: str, opening: Timestamp) -> str:
        """Return the position that a postBatchResumeToken stands for.

        A replica set sends a high-water mark only after it has scanned all of the oplog up to that
        time, so all events of that time were read. The mark with which it opens is an exception: it
        only repeats the starting time. On a sharded cluster another shard may still have an event
        of the same time.

        Args:
            more: Token of a batch's last event, after which more events of the same time may
                follow.
            opening: The starting time, until an event shows that it has been reached.
        """
        token = resume_tokens.token_from_stream(data)
        time = resume_tokens.cluster_time(token)
        if token == more or self._sharded or time <= opening:
            return token
        return resume_tokens.token_from_time(time)

    def _pipeline(
        self, start: Timestamp, behind: ServerToken | None, level: DetailLevel
    ) -> list[Any]:
        stage: dict[str, Any] = {
            # By time and not by token: a token whose event the $match leaves out (written under
            # another model) cannot be resumed from (280 on 6.0.5), and a high-water mark, an
            # invalidate and a time work the same way. By token only if the event there is too large
            # to be read again.
            **({"startAtOperationTime": start} if behind is None else {"startAfter": behind}),
            **level.images,
        }
        if self._expanded:
            stage["showExpandedEvents"] = True
        wanted: list[Any] = [
            {"ns.coll": {"$in": self._collections}},
            {"to.coll": {"$in": self._collections}},
            {"operationType": {"$in": ["dropDatabase", "invalidate"]}},
        ]
        reduced: list[Any] = []
        if self._marks_from is not None:
            wanted.append({"clusterTime": {"$gte": self._marks_from}})
            reduced = [{"$replaceWith": self._with_marks}]
        return [
            {"$changeStream": stage},
            {
                "$match": {
                    **({"operationType": {"$in": _EVENT_TYPES}} if self._expanded else {}),
                    "$or": wanted,
                }
            },
            *reduced,
            *level.stages,
        ]

    @property
    def _with_marks(self) -> Document:
        """An expression: the event, or its position alone where no collection of the source is
        concerned.
        """
        collections = {"$literal": self._collections}
        wanted = [
            {"$in": ["$ns.coll", collections]},
            {"$in": ["$to.coll", collections]},
            {"$in": ["$operationType", ["dropDatabase", "invalidate"]]},
        ]
        mark = {"_id": "$_id", "operationType": _MARK, "clusterTime": "$clusterTime"}
        return {"$cond": [{"$or": wanted}, "$$ROOT", mark]}


def _token_before_first(events: Sequence[RawBSONDocument]) -> str:
    """Return a position before the first event and after all earlier times; "" if none."""
    if not events:
        return ""
    return resume_tokens.time_prefix(
        resume_tokens.cluster_time(resume_tokens.token_from_stream(events[0]["_id"]["_data"]))
    )


def _check_resumable(exc: GatewayError, position: str) -> None:
    """Raise the error if another attempt cannot help."""
    if isinstance(exc, Unavailable):
        return
    if not isinstance(exc, DatabaseError):
        raise exc
    if exc.number in _HISTORY_LOST:
        reached = resume_tokens.cluster_time(position).as_datetime()
        raise HistoryLost(f"oplog: its oldest entry is after {reached:%F %T}Z") from exc
    if not exc.resumable:
        raise exc
