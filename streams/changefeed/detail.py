"""The level of detail at which a change stream is read.

The server fails a whole reply where one event of it exceeds 16 MB, and closes the connection where
the event is a few bytes smaller. It is then read again with less detail: without the image before,
without both images, one event at a time (so that the others of the reply keep what they have), then
the event's key, operation and time alone, and at last without events whose keys are too long even
for that. Missing images do no harm, since versions are made from deltas; an event without content
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

# Events read with less detail, where large ones keep coming.
_LONGEST_STAY = 4095
# A reply has such a key in hexadecimal digits twice, beside the key itself: 10 of 16 MB.
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
    """Options and stages of one level.

    Attributes:
        images: options of `$changeStream`.
        stages: pipeline stages that follow it.
        single: one event per reply.
        bare: events have no content.
        lossy: events with very long keys are left out.
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
    """The present level of one stream; full detail again once the large events are passed.

    Attributes:
        changed: whether the stream must be opened anew, at another level.
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
        """Ask for less from this position on; False where there is no lower level."""
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
                "passed over" if level.lossy else f"read {lacking}",
                extra={"after": f"{resume_tokens.cluster_time(position).as_datetime():%F %T}Z"},
            )
        return True

    def note_reply(self, events: int, *, moved: bool) -> None:
        """Take note of a reply, after which full detail may be asked for again.

        Args:
            events: those in it that had not been read before; where it has one event, that one.
            moved: whether it moved the position.
        """
        self._seen += events
        if self._level == 0:
            if self._seen > _LONGEST_STAY:
                self._stay = 0
            return
        # Without content as few as possible: the one that is too large.
        most = 1 if self.level.bare else self._stay
        if self._seen >= most or (self.level.lossy and moved):
            self._level, self._seen, self.changed = 0, 0, True
