"""Health of one collection's recorder: why its history is not recorded, while that of others is.

A failure that is neither MongoDB's unavailability nor the loss of the lease is retried after a
pause, which doubles. It is logged, shown in `/readyz`, and stored with the checkpoint, for
`Query.streams` of all processes and for `revstream doctor`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.coordination.partition import Partition
from revstream.streams.core.errors import (
    GatewayError,
    HistoryLost,
    LeaseLost,
    TimeLimit,
    Unavailable,
    Unsuitable,
    reason_from_error,
)
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.server_check import find_unsupported_collections
from revstream.streams.recording.set_aside import SetAsideEvents

__all__ = ["CollectionStuck", "RecorderHealth", "unfit_since_recorded"]

log = logging.getLogger(__name__)

# Seconds between checks whether the collection's history can be kept.
_CHECK_S = 10.0
_RETRY_FIRST_S, _RETRY_MOST_S = 0.5, 60.0


class CollectionStuck(Exception):
    """The recorder of one collection cannot continue; the message is the reason."""


class RecorderHealth:
    """Health of one partition's recorder.

    Attributes:
        pause_s: Seconds until the next attempt, if it is stuck.
    """

    def __init__(self, mongo: Mongo, checkpoints: Checkpoints, partition: Partition) -> None:
        self.pause_s = _RETRY_FIRST_S
        self._mongo = mongo
        self._checkpoints = checkpoints
        self._partition = partition
        self._stuck: str | None = None
        self._aside: str | None = None
        self._reported = False
        self._upto = ""
        self._check_at = 0.0

    @property
    def trouble(self) -> str | None:
        """Text for people; None where all is well."""
        return self._stuck or self._aside

    def begin(self, stored: str | None) -> None:
        """Begin to record.

        Args:
            stored: The trouble that the last holder stored.
        """
        self._reported = stored is not None
        self._check_at = 0.0

    async def check(self) -> None:
        """Check at intervals that the collection's history can be kept, and count set-aside events.

        Raises:
            CollectionStuck: It cannot, for example that of a view.
        """
        if time.monotonic() < self._check_at:
            return
        self._check_at = time.monotonic() + _CHECK_S
        await self.count_set_aside()
        unfit = await find_unsupported_collections(self._mongo, [self._partition.collection])
        if unfit:
            raise CollectionStuck(*unfit.values())

    async def count_set_aside(self) -> None:
        """Count the collection's set-aside events."""
        self._aside = (await SetAsideEvents(self._mongo).troubles()).get(self._partition.collection)

    async def stuck_from(self, failure: Exception) -> CollectionStuck:
        """Translate a failure into trouble of the collection.

        Raises:
            Exception: The failure, if it is not one of the collection.
        """
        if isinstance(failure, LeaseLost | Unavailable | TimeLimit | HistoryLost | CollectionStuck):
            raise failure
        unfit = await find_unsupported_collections(self._mongo, [self._partition.collection])
        if unfit:
            return CollectionStuck(*unfit.values())
        if isinstance(failure, Unsuitable):
            raise failure
        return CollectionStuck(reason_from_error(failure))

    async def note(self, stuck: CollectionStuck, upto: str, *, fencing_token: int) -> None:
        """Report that the recorder is stuck.

        Args:
            upto: Position that it must reach to count as recovered.
        """
        reason = str(stuck)
        if self._stuck != reason:
            cause = stuck.__cause__
            known = cause is None or isinstance(cause, GatewayError)
            log.error(
                "collection is not recorded: tried again",
                extra={"listener": self._partition.name, "reason": reason},
                exc_info=None if known else cause,
            )
            await self._checkpoints.save_trouble(
                self._partition.name, reason, fencing_token=fencing_token
            )
        self.pause_s = _RETRY_FIRST_S if self._stuck is None else 2 * self.pause_s
        self.pause_s = min(self.pause_s, _RETRY_MOST_S)
        self._stuck, self._reported, self._upto, self._check_at = reason, True, upto, 0.0

    async def note_progress(self, token: str, *, fencing_token: int) -> None:
        """Report a position; the recorder has recovered if it has reached the one where it was
        stuck.
        """
        if not self._reported or token < self._upto:
            return
        log.info("collection is recorded again", extra={"listener": self._partition.name})
        self._stuck, self._reported, self._upto = None, False, ""
        await self._checkpoints.save_trouble(
            self._partition.name, None, fencing_token=fencing_token
        )


async def unfit_since_recorded(mongo: Mongo, names: Sequence[str]) -> Mapping[str, str]:
    """Return the collections that were recorded and cannot be recorded any more, with the reasons.

    Raises:
        Unsuitable: Others can never be recorded: an error of the model.
    """
    unfit = await find_unsupported_collections(mongo, names)
    checkpoints = Checkpoints(mongo)
    fresh = [
        reason for name, reason in unfit.items() if not await checkpoints.load_collection(name)
    ]
    if fresh:
        raise Unsuitable("; ".join(fresh))
    return unfit
