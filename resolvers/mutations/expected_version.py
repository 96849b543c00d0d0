"""Expected versions: the number and the content with which a write is compared.

Comparing version numbers is not enough: a writer that does not increment the version field may have
changed the document in between. So the write requires exactly the content that the archive has
under the expected number. The last writes of this process are cached; otherwise the version is read
from the archive, after a wait for the recorder if it has not reached it.
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
from revstream.streams.mongo.find_options import FindOptions
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
# Maximum number of versions that are checked for writers other than the copier.
_MOST_COPIED = 100


@dataclass
class _RecentWrites:
    """Cache of the versions written last, shared by all callers."""

    versions: OrderedDict[Any, LastVersion] = field(default_factory=OrderedDict)
    size_bytes: int = 0


class ExpectedVersions:
    """Lookup of expected versions for all entities.

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
        """Return a copy for one caller; documents outside the writable rows do not exist for it."""
        limited = copy.copy(self)
        limited._scope = scope
        return limited

    async def at(self, entity: Entity, key: Any, expected: int, *, look: bool) -> LastVersion:
        """Return the expected version, or the last one if all later versions only updated copies.

        Versions that update `@copy` fields contain no change by a user, so they are no conflict.

        Args:
            look: True to bypass the cache, after a write that missed.

        Raises:
            DocumentNotFound: no such document, or it was deleted.
            VersionConflict: the document is at another version.
            ArchiveBehind: the recorder did not reach the version in time.
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
        # The archive is behind, or the document changed: wait until the archive reaches the
        # present.
        last = await self.now(entity, key)
        if last is None or last.full is None:
            raise not_found_error(entity, key)
        if last.number == expected or await self._only_copied(entity, key, expected, last):
            return last
        raise conflict_error(entity, key, expected, last.number)

    async def now(self, entity: Entity, key: Any) -> LastVersion | None:
        """Return the current version of a document, with the content from the collection.

        The order of fields in the collection may differ from that in the archive.
        """
        layout = self._archives[entity.collection].layout

        async def read(at: Timestamp) -> tuple[Timestamp, list[Any]]:
            return at, await layout.find({"_id": key}, FindOptions(limit=1, at=at, raw=True))

        now, found = await at_one_time(self._mongo, read)
        await self._progress.wait(entity.collection, resume_tokens.token_from_time(now))
        last = await self._last(entity, key)
        if last is None and found:
            # The baselines of older documents may not be archived yet.
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
        """Cache a write that was made."""
        name = (entity.collection, identity(written.key))
        known = self._known
        forgotten = known.versions.pop(name, None)
        known.size_bytes -= 0 if forgotten is None else forgotten.size_bytes
        if written.document is None or written.number is None:
            return
        content, change = _divided(written.document)
        # The offset of a copied counter does not change.
        ahead = (carried_number(written.document, entity.version) or 0) - written.number
        last = LastVersion(
            token="", number=written.number, full=content, change=change, offset=max(0, ahead)
        )
        known.versions[name] = last
        known.size_bytes += last.size_bytes
        while known.size_bytes > _MOST_BYTES:
            known.size_bytes -= known.versions.popitem(last=False)[1].size_bytes

    def forget(self, collection: str) -> None:
        """Evict the versions of a collection's documents."""
        known = self._known
        for name in [each for each in known.versions if each[0] == collection]:
            known.size_bytes -= known.versions.pop(name).size_bytes

    async def _only_copied(
        self, entity: Entity, key: Any, expected: int, last: LastVersion
    ) -> bool:
        """Return whether all versions after the expected one are by the copier."""
        count = last.number - expected
        said = last.change.get("by") if isinstance(last.change, Mapping) else None
        # Later writes may leave `_change` as it is; the records name the actual authors.
        if not 0 < count <= _MOST_COPIED or said != COPIER:
            return False
        found = await self._archives[entity.collection].find(
            {"doc": {"$eq": key}, "v": {"$gt": expected, "$lte": last.number}},
            FindOptions(projection={"by": 1}, limit=count),
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
    """Decode a document for row predicates."""
    found: Document = decode(document.raw)
    return found


def outside_rows_error(entity: Entity, key: Any) -> Forbidden:
    """Return the error for a document that would be outside the caller's rows."""
    return Forbidden(
        f"{entity.name} {json_value(key)}: the written document would be outside the caller's "
        "rows, expected one that the row rule allows; correct the values",
        subject=entity.name,
    )


def not_found_error(entity: Entity, key: Any) -> DocumentNotFound:
    """Return the error for a document that does not exist for the caller."""
    return DocumentNotFound(
        f"{entity.name} {json_value(key)}: not found, expected an existing document; check the id"
    )


def conflict_error(entity: Entity, key: Any, expected: int, actual: int) -> VersionConflict:
    """Return the error for a document at another version."""
    return VersionConflict(
        f"{entity.name} {json_value(key)}: version {actual}, expected {expected}; read the "
        "document again",
        expected=expected,
        actual=actual,
        key=key,
    )


def _divided(document: RawBSONDocument) -> tuple[RawBSONDocument, Any]:
    """The content, and the `_change` that it carries."""
    return without_reserved(document), document.get(CHANGE_FIELD)
