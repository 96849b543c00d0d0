"""Versions that writes have created, read back from the archive."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from revstream.model.definition import Entity
from revstream.resolvers.access.permissions import OPEN, Scope
from revstream.resolvers.mutations.expected_version import decode_content, not_found_error
from revstream.resolvers.mutations.result import DocumentNotFound, Written
from revstream.resolvers.values.json_value import json_value
from revstream.streams.archive.store import Archive
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind, HistoryLost
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.versioning.version import carried_number

__all__ = ["WrittenVersions"]


class WrittenVersions:
    """Reads of written versions of all entities.

    Args:
        archives: by collection.
    """

    def __init__(
        self, mongo: Mongo, archives: Mapping[str, Archive], progress: ArchiveProgress
    ) -> None:
        self._mongo = mongo
        self._archives = archives
        self._progress = progress
        self._scope = OPEN

    def within(self, scope: Scope) -> WrittenVersions:
        """Return a copy for one caller."""
        limited = copy.copy(self)
        limited._scope = scope
        return limited

    async def number(self, entity: Entity, written: Written) -> int:
        """Return the number of the version that a write created; waits for the recorder if needed.

        If the recorder is too late, the number in the document is returned, as in reads of current
        documents.

        Raises:
            ArchiveBehind: the recorder is too late, and the document carries no number.
            HistoryLost: the version was truncated, after many later writes.
        """
        if written.number is not None:
            return written.number
        carried = carried_number(written.document, entity.version)
        try:
            await self._progress.wait(entity.collection, resume_tokens.token_from_time(written.at))
        except ArchiveBehind:
            if carried is None:
                raise
            return carried
        found = await self._archives[entity.collection].newest(
            [{"key": written.key, "at": written.at}], limit=1, projection={"v": 1}
        )
        if not found and carried is not None and self._archives[entity.collection].layout.keeps:
            # The baseline of this document is not archived yet.
            return carried
        if not found:
            raise HistoryLost(
                f"{entity.name} {json_value(written.key)}: the document was written, but its "
                "version was already deleted by retention (keep in the model)"
            )
        return int(found[0]["v"])

    async def before(self, entity: Entity, outcome: Mapping[str, Any]) -> Written:
        """Return the result of a write that was executed before.

        Args:
            outcome: the document and the change id that were stored with it.

        Raises:
            DocumentNotFound: its version was truncated, or is outside the caller's rows.
        """
        key, change = outcome["doc"], outcome["change"]
        now = await self._mongo.operation_time()
        await self._progress.wait(entity.collection, resume_tokens.token_from_time(now))
        found = await self._archives[entity.collection].find(
            {"doc": {"$eq": key}, "change.id": change},
            # Later versions may still contain its `_change`.
            FindOptions(sort=[("v", 1)], limit=1, raw=True),
        )
        if not found:
            raise DocumentNotFound(
                f"{entity.name} {json_value(key)}: this mutation was executed before, and its "
                "version was deleted from the archive since"
            )
        record = found[0]
        full = record.get("full")
        if full is not None and not self._scope.write_rows(entity).allow(
            {**decode_content(full), "_id": key}
        ):
            raise not_found_error(entity, key)
        return Written(
            key=key,
            at=record["at"],
            change=change,
            document=full,
            number=int(record["v"]),
        )
