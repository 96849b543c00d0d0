"""Bulk updates of copies, with the documents that MongoDB refused.

Guarantees: a refusal because of one document prevents no other update.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from revstream.streams.core.log_throttle import LogThrottle
from revstream.streams.listeners.copies.update_pipeline import copy_pipeline
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.transactions import change_matching
from revstream.streams.versioning.copied_field import CopiedField, SourceState
from revstream.streams.versioning.copier_secret import copier_secret

__all__ = ["CopyWriter"]

log = logging.getLogger(__name__)


class CopyWriter:
    """Writer of one copied field.

    Attributes:
        written: Number of changed documents.
        refused: Number of documents that MongoDB refused to change.
    """

    def __init__(self, copy: CopiedField, mongo: Mongo) -> None:
        self.written = self.refused = 0
        self._copy = copy
        self._mongo = mongo
        self._secret: str | None = None
        self._refused = LogThrottle(log, "copy refused")

    async def set(self, groups: Sequence[tuple[Sequence[SourceState], Sequence[Any]]]) -> None:
        """Set the copies of some sources in some documents each, by `_id`."""
        refused = await self._change(groups)
        if not refused:
            return
        # A refused document has prevented the updates after it in its group.
        single = [(groups[place][0], [key]) for place in refused for key in groups[place][1]]
        for place, reason in (await self._change(single)).items():
            self.refused += 1
            [key] = single[place][1]
            self._refused.note(copy=self._copy.name, document=str(key), reason=reason)

    async def _change(
        self, groups: Sequence[tuple[Sequence[SourceState], Sequence[Any]]]
    ) -> dict[int, str]:
        if self._secret is None:
            self._secret = await copier_secret(self._mongo)
        changes = [
            ({"_id": {"$in": list(ids)}}, copy_pipeline(self._copy, known, self._secret))
            for known, ids in groups
        ]
        made = await change_matching(self._mongo, self._copy.target, changes)
        self.written += made.changed
        return dict(made.refused)
