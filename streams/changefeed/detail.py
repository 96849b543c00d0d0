"""Level of detail at which a change stream is read, lowered for events that are too large.

The server fails a whole reply if one event of it exceeds 16 MB, and closes the connection if the
event is a few bytes smaller. The source then reads again with less detail, step by step: without
the pre-image; without both images; one event per reply, so that the other events of the reply keep
their detail; only the event's key, operation and time; at last without events whose keys alone are
too long. Missing images do no harm, since versions are built from deltas. An event without content
is `bare`, and its document is read again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from revstream.streams.core import resume_tokens

__all__ = ["DetailLevel", "StreamDetail"]

log = logging.getLogger(__name__)

# Maximum number of events read with less detail, while large ones keep coming.
_LONGEST_STAY = 4095
# A reply contains such a key as hexadecimal digits twice, and once as it is: 10 of 16 MB.
_KEY_BYTES = 2 * 1024 * 1024

_AFTER = {"fullDocument": "whenAvailable"}
_BEFORE = {"fullDocumentBeforeChange": "whenAvailable"}
_IDENTITY: Mapping[str, Any] = {
    "$project": {
        **{"operationType": 1, "clusterTime": 1, "wallTime": 1, "ns": 1, "to": 1},
        **{"documentKey": 1, "lsid": 1, "txnNumber": 1},
    }
}
_SHORT_KEYS: Mapping[str, Any] = {
    "$match": {"$expr": {"$lt": [{"$bsonSize": "$documentKey"}, _KEY_BYTES]}}
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailLevel:
    """Options and pipeline stages of one level of detail.

    Attributes:
        images: Options of `$changeStream`.
        stages: Pipeline stages that follow it.
        single: One event per reply.
        bare: Events have no content.
        lossy: Events with very long keys are left out.
    """

    images: Mapping[str, str] = field(default_factory=dict)
    stages: Sequence[Mapping[str, Any]] = ()
    single: bool = False
    bare: bool = False
    lossy: bool = False


_LEAST = (
    DetailLevel(),
    DetailLevel(single=True),
    DetailLevel(single=True, bare=True, stages=[_IDENTITY]),
    DetailLevel(single=True, bare=True, lossy=True, stages=[_SHORT_KEYS, _IDENTITY]),
)


class StreamDetail:
    """Current level of detail of one stream; it returns to full detail after the large events.

    Attributes:
        changed: The stream must be reopened at another level.
    """

    def __init__(self, *, before_images: bool) -> None:
        most = [DetailLevel(images={**_AFTER, **_BEFORE})] if before_images else []
        self._levels = [*most, DetailLevel(images=_AFTER), *_LEAST]
        self._level = 0
        self._stay = 0
        self._seen = 0
        self.changed = False

    @property
    def level(self) -> DetailLevel:
        return self._levels[self._level]

    def reduce(self, position: str) -> bool:
        """Lower the level from this position on; False where there is no lower level."""
        if self._level == len(self._levels) - 1:
            return False
        if self._level == 0:
            self._stay = min(2 * self._stay + 1, _LONGEST_STAY)
        self._level += 1
        self._seen = 0
        level, last = self.level, self._levels[self._level - 1]
        if self._level == 1 or level.bare > last.bare or level.lossy:
            lacking = "without content" if level.bare else "with fewer images"
            log.warning(
                "a change event exceeds 16 MB: %s",
                "skipped" if level.lossy else f"read {lacking}",
                extra={"after": f"{resume_tokens.cluster_time(position).as_datetime():%F %T}Z"},
            )
        return True

    def note_reply(self, events: int, *, moved: bool) -> None:
        """Count a reply, after which full detail may be restored.

        Args:
            events: Number of new events in the reply; at a level with one event per reply, that
                event.
            moved: The reply moved the position.
        """
        self._seen += events
        if self._level == 0:
            if self._seen > _LONGEST_STAY:
                self._stay = 0
            return
        # Without content for as few events as possible: the one that is too large.
        most = 1 if self.level.bare else self._stay
        if self._seen >= most or (self.level.lossy and moved):
            self._level, self._seen, self.changed = 0, 0, True
