"""The version at which a document stands, with its content: what a write is compared with.

The number alone would not do: between the version that a client has seen and its write, a program
that does not count may have written. So the write asks for exactly the content that the archive has
under that number. What this process has written last it knows itself; else it costs a look into the
archive, and a wait for the recorder where that has yet to come to the version.
Source: docs/decisions/0012-writes.md.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.model.definition import Entity
from revstream.resolvers.access.cluster_time import at_one_time
from revstream.resolvers.access.permissions import OPEN, Scope
from revstream.resolvers.errors import Forbidden
from revstream.resolvers.mutations.result import DocumentNotFound, VersionConflict, Written
from revstream.resolvers.values.json_value import json_value
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.core import resume_tokens
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document, decode
from revstream.streams.raw_bson.diff import is_same
from revstream.streams.versioning.attribution import COPIER
from revstream.streams.versioning.version import (
    CHANGE_FIELD,
    LastVersion,
    carried_number,
    without_reserved,
)

__all__ = [
    "ExpectedVersions",
    "conflict_error",
    "decode_content",
    "not_found_error",
    "outside_rows_error",
]

_MOST_BYTES = 32 * 1024 * 1024
# Versions that are looked through for somebody else's.
_MOST_COPIED = 100


@dataclass
class _RecentWrites:
    """What was written last, as far as it is remembered; the same for all callers."""

    versions: OrderedDict[Any, LastVersion] = field(default_factory=OrderedDict)
    size_bytes: int = 0


class ExpectedVersions:
    """Of the documents of all entities.

    Args:
        archives: by collection.
    """

    def __init__(
        self, mongo: Mongo, archives: Mapping[str, Archive], progress: ArchiveProgress
    ) -> None:
        self._mongo = mongo
        self._archives = archives
        self._progress = progress
        self._known = _RecentWrites()
        self._scope = OPEN

    def within(self, scope: Scope) -> ExpectedVersions:
        """The same for one caller: a document outside of the rows that he may write is not
        there."""
        limited = copy.copy(self)
        limited._scope = scope
        return limited

    async def at(self, entity: Entity, key: Any, expected: int, *, look: bool) -> LastVersion:
        """The version expected; or the last one, where those after it only brought copies (`@copy`)
        up to date: who has seen the one has seen all that anybody wrote.

        Args:
            look: what was answered before is not so any more.

        Raises:
            DocumentNotFound: it is gone, or never was.
            VersionConflict: it is at another version.
            ArchiveBehind: which one cannot be said within the bound.
        """
        known = self._allowed(
            entity, key, self._known.versions.get((entity.collection, identity(key)))
        )
        if known is not None and known.number == expected and not look:
            return known
        if not look:
            last = await self._last(entity, key)
            if last is not None and last.number == expected and last.full is not None:
                return last
            if last is not None and last.number > expected and last.full is not None:
                if await self._only_copied(entity, key, expected, last):
                    return last
                raise conflict_error(entity, key, expected, last.number)
        # Behind, or changed: what the archive says once it has come to what there is now.
        last = await self.now(entity, key)
        if last is None or last.full is None:
            raise not_found_error(entity, key)
        if last.number == expected or await self._only_copied(entity, key, expected, last):
            return last
        raise conflict_error(entity, key, expected, last.number)

    async def now(self, entity: Entity, key: Any) -> LastVersion | None:
        """The version at which a document stands now; its content as the collection has it, whose
        fields may lie in another order than the archive's."""
        layout = self._archives[entity.collection].layout

        async def read(at: Timestamp) -> tuple[Timestamp, list[Any]]:
            return at, await layout.find({"_id": key}, limit=1, at=at, raw=True)

        now, found = await at_one_time(self._mongo, read)
        await self._progress.wait(entity.collection, resume_tokens.token_from_time(now))
        last = await self._last(entity, key)
        if last is None and found:
            # What was there before the archive may not be read yet.
            await self._progress.wait_complete(
                entity.collection, resume_tokens.token_from_time(now)
            )
            last = await self._last(entity, key)
        if last is None or last.full is None or not found:
            return last
        content, change = _divided(found[0])
        if is_same(content, last.full):
            return LastVersion(
                token=last.token,
                number=last.number,
                full=content,
                change=change,
                offset=last.offset,
            )
        return last

    def note(self, entity: Entity, written: Written) -> None:
        """A write was made."""
        name = (entity.collection, identity(written.key))
        known = self._known
        forgotten = known.versions.pop(name, None)
        known.size_bytes -= 0 if forgotten is None else forgotten.size_bytes
        if written.document is None or written.number is None:
            return
        content, change = _divided(written.document)
        # A copied counter stays as far ahead as it was.
        ahead = (carried_number(written.document, entity.version) or 0) - written.number
        last = LastVersion(
            token="", number=written.number, full=content, change=change, offset=max(0, ahead)
        )
        known.versions[name] = last
        known.size_bytes += last.size_bytes
        while known.size_bytes > _MOST_BYTES:
            known.size_bytes -= known.versions.popitem(last=False)[1].size_bytes

    def forget(self, collection: str) -> None:
        """Let go of what was written last to a collection's documents."""
        known = self._known
        for name in [each for each in known.versions if each[0] == collection]:
            known.size_bytes -= known.versions.pop(name).size_bytes

    async def _only_copied(
        self, entity: Entity, key: Any, expected: int, last: LastVersion
    ) -> bool:
        """Whether all versions after the expected one are the Copier's."""
        count = last.number - expected
        said = last.change.get("by") if isinstance(last.change, Mapping) else None
        # It stays where later writes leave it as it is; who made those, their records say.
        if not 0 < count <= _MOST_COPIED or said != COPIER:
            return False
        found = await self._archives[entity.collection].find(
            {"doc": {"$eq": key}, "v": {"$gt": expected, "$lte": last.number}},
            projection={"by": 1},
            limit=count,
        )
        return len(found) == count and all(each["by"] == COPIER for each in found)

    async def _last(self, entity: Entity, key: Any) -> LastVersion | None:
        found = await self._archives[entity.collection].last_versions([key])
        return self._allowed(entity, key, found.get(identity(key)))

    def _allowed(self, entity: Entity, key: Any, last: LastVersion | None) -> LastVersion | None:
        rows = self._scope.write_rows(entity)
        if last is None or last.full is None or not rows.limits:
            return last
        return last if rows.allow({**decode_content(last.full), "_id": key}) else None


def decode_content(document: RawBSONDocument) -> Document:
    """As predicates see it."""
    found: Document = decode(document.raw)
    return found


def outside_rows_error(entity: Entity, key: Any) -> Forbidden:
    return Forbidden(
        f"{entity.name} {json_value(key)} would not be among the documents that are there for you",
        subject=entity.name,
    )


def not_found_error(entity: Entity, key: Any) -> DocumentNotFound:
    return DocumentNotFound(f"there is no {entity.name} {json_value(key)}")


def conflict_error(entity: Entity, key: Any, expected: int, actual: int) -> VersionConflict:
    return VersionConflict(
        f"{entity.name} {json_value(key)}: version {expected} was expected, {actual} is there",
        expected=expected,
        actual=actual,
        key=key,
    )


def _divided(document: RawBSONDocument) -> tuple[RawBSONDocument, Any]:
    """The content, and the `_change` that it carries."""
    return without_reserved(document), document.get(CHANGE_FIELD)
