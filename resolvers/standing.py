"""The version at which a document stands, with its content: what a write is compared with.

The number alone would not do: between the version that a client has seen and its write, a program
that does not count may have written. So the write asks for exactly the content that the archive has
under that number. What this process has written last it knows itself; else it costs a look into the
archive, and a wait for the recorder where that has yet to come to the version.
Source: docs/decisions/0012-writes.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from bson.raw_bson import RawBSONDocument

from model.entities import Entity
from resolvers.outcomes import DocumentNotFound, VersionConflict, Written
from resolvers.values import json_value
from streams import tokens
from streams.archive import Archive
from streams.differences import same
from streams.documents import Document
from streams.events import identity
from streams.mongo import Mongo
from streams.progress import Progress
from streams.versions import CHANGE_FIELD, Last, without_change

__all__ = ["Standing", "conflict", "exactly", "not_found"]

_MOST_BYTES = 32 * 1024 * 1024


class Standing:
    """Of the documents of all entities.

    Args:
        archives: by collection.
    """

    def __init__(self, mongo: Mongo, archives: Mapping[str, Archive], progress: Progress) -> None:
        self._mongo = mongo
        self._archives = archives
        self._progress = progress
        self._known: OrderedDict[Any, Last] = OrderedDict()
        self._size_bytes = 0

    async def at(self, entity: Entity, key: Any, expected: int, *, look: bool) -> Last:
        """The version expected.

        Args:
            look: what was answered before is not so any more.

        Raises:
            DocumentNotFound: it is gone, or never was.
            VersionConflict: it is at another version.
            ArchiveBehind: which one cannot be said within the bound.
        """
        known = self._known.get((entity.collection, identity(key)))
        if known is not None and known.number == expected and not look:
            return known
        if not look:
            last = await self._last(entity, key)
            if last is not None and last.number == expected and last.full is not None:
                return last
            if last is not None and last.number > expected and last.full is not None:
                raise conflict(entity, key, expected, last.number)
        # Behind, or changed: what the archive says once it has come to what there is now.
        last = await self.now(entity, key)
        if last is None or last.full is None:
            raise not_found(entity, key)
        if last.number != expected:
            raise conflict(entity, key, expected, last.number)
        return last

    async def now(self, entity: Entity, key: Any) -> Last | None:
        """The version at which a document stands now; its content as the collection has it, whose
        fields may lie in another order than the archive's."""
        now = await self._mongo.operation_time()
        found = await self._mongo.find(entity.collection, {"_id": key}, limit=1, at=now, raw=True)
        await self._progress.wait(entity.collection, tokens.moment(now))
        last = await self._last(entity, key)
        if last is None or last.full is None or not found:
            return last
        content, change = _divided(found[0])
        if same(content, last.full):
            return Last(token=last.token, number=last.number, full=content, change=change)
        return last

    def note(self, entity: Entity, written: Written) -> None:
        """A write was made."""
        name = (entity.collection, identity(written.key))
        forgotten = self._known.pop(name, None)
        self._size_bytes -= 0 if forgotten is None else forgotten.size_bytes
        if written.document is None or written.number is None:
            return
        content, change = _divided(written.document)
        known = Last(token="", number=written.number, full=content, change=change)
        self._known[name] = known
        self._size_bytes += known.size_bytes
        while self._size_bytes > _MOST_BYTES:
            self._size_bytes -= self._known.popitem(last=False)[1].size_bytes

    async def _last(self, entity: Entity, key: Any) -> Last | None:
        found = await self._archives[entity.collection].last([key])
        return found.get(identity(key))


def exactly(key: Any, last: Last) -> Document:
    """The query for a document that is what this version left."""
    content = {"$unsetField": {"field": CHANGE_FIELD, "input": "$$ROOT"}}
    return {
        "_id": key,
        # Who made the last change tells two states apart that are otherwise equal.
        CHANGE_FIELD: {"$eq": last.change},
        "$expr": {"$eq": [content, {"$literal": last.full}]},
    }


def not_found(entity: Entity, key: Any) -> DocumentNotFound:
    return DocumentNotFound(f"there is no {entity.name} {json_value(key)}")


def conflict(entity: Entity, key: Any, expected: int, actual: int) -> VersionConflict:
    return VersionConflict(
        f"{entity.name} {json_value(key)}: version {expected} was expected, {actual} is there",
        expected=expected,
        actual=actual,
        key=key,
    )


def _divided(document: RawBSONDocument) -> tuple[RawBSONDocument, Any]:
    """The content, and the `_change` that it carries."""
    return without_change(document), document.get(CHANGE_FIELD)
