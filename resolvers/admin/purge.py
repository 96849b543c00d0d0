"""Purge: permanent removal of one document's past for legal reasons.

The author, the time and the reason of the purge stay, and nothing of the content. Every step can be
repeated: an interrupted purge is done again.
Source: docs/decisions/0016-retention.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bson import ObjectId

from revstream.model.definition import Entity
from revstream.resolvers.admin.purge_watch import PURGES
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.mutations.write_executor import ATTEMPTS, too_many_conflicts
from revstream.resolvers.values.json_value import json_value
from revstream.streams.archive.store import Archive
from revstream.streams.core import resume_tokens
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.maintenance.truncate import Truncation
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession, write
from revstream.streams.recording.set_aside import COLLECTION as SET_ASIDE
from revstream.streams.recording.versions import delete_attribution
from revstream.streams.versioning.truncation_mark import PurgeMark, mark_with_purge

__all__ = ["Purged", "Purging"]

# What a version says beyond that a document was deleted.
_SAID_OF_A_DELETION: Document = {
    "$set": {"changed": [], "by": None, "why": None},
    "$unset": {"change": "", "restoredFrom": "", "draft": "", "traceparent": ""},
}
# Its drafts are gone, and another one may get the number.
_SAID_OF_THE_PRESENT: Document = {"$unset": {"draft": ""}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """Result of a purge.

    Attributes:
        version: number of the version that stays.
        exists: whether the document exists, and its content stays; otherwise the version only says
            that it was deleted.
    """

    versions: int
    drafts: int
    comments: int
    version: int
    exists: bool


class Purging:
    """Purges of one entity's documents."""

    def __init__(
        self, mongo: Mongo, archive: Archive, progress: ArchiveProgress, entity: Entity
    ) -> None:
        self._mongo = mongo
        self._archive = archive
        self._progress = progress
        self._entity = entity
        self._cutting = Truncation(mongo, archive)

    async def purge(self, key: Any, *, by: str, why: str, limit_s: float = 30.0) -> Purged:
        """Purge one document.

        Args:
            limit_s: maximum wait for the recorder, which has to reach the present.

        Raises:
            ArchiveBehind: It has not, and nothing was removed.
            BadUserInput: There is no history of such a document.
            Unavailable: The document is written to all the time.
        """
        if self._archive.layout.keeps:
            raise BadUserInput(
                f"{self._entity.name}: the history of {self._entity.collection!r} is "
                f"{self._entity.history.value}, expected ARCHIVE; remove the versions from the "
                "collection itself"
            )
        wall, now = await self._mongo.clock()
        await self._progress.wait_complete(
            self._entity.collection, resume_tokens.token_from_time(now), limit_s=limit_s
        )
        if not await self._versions(key):
            raise BadUserInput(
                f"{self._entity.name} {json_value(key)}: no versions, expected at least one to "
                "purge; check the id"
            )
        purge = PurgeMark(by=by, why=why, at=wall)
        mark = await self._begin(key, purge)
        versions, last = await self._drop(key, purge)
        beside = {
            name: await self._remove(f"{self._entity.collection}.{name}", {"doc": {"$eq": key}})
            for name in ("drafts", "comments")
        }
        await self._remove(
            delete_attribution.COLLECTION,
            {"collection": self._entity.collection, "doc": {"$eq": key}},
        )
        await self._remove_set_aside(key)
        await self._mongo.find_one_and_update(
            PURGES,
            {"_id": mark},
            {
                "$set": {"versions": versions, **beside, "done": True},
                # Running gateways look for it.
                "$currentDate": {"ended": True},
            },
        )
        return Purged(
            versions=versions,
            drafts=beside["drafts"],
            comments=beside["comments"],
            version=last["v"],
            exists=last["op"] != "DELETE",
        )

    async def _begin(self, key: Any, purge: PurgeMark) -> ObjectId:
        """Say so before anything is removed."""
        mark = ObjectId()
        line = {"collection": self._entity.collection, "doc": key, "done": False}
        await self._mongo.insert_in_order(
            PURGES,
            [{"_id": mark, **line, "by": purge.by, "why": purge.why, "at": purge.at}],
        )
        return mark

    async def _drop(self, key: Any, purge: PurgeMark) -> tuple[int, Document]:
        """Leave the last version alone, and of that what may stay. Returns how many were dropped,
        and the last.
        """
        dropped = 0
        for _ in range(ATTEMPTS):
            last = (await self._versions(key))[0]
            dropped += await self._cutting.cut([(key, last["v"])], purge=purge)
            await self._seal(last["_id"], purge)
            # Unless it was written to meanwhile.
            if [each["v"] for each in await self._versions(key)] == [last["v"]]:
                return dropped, last
        raise too_many_conflicts(self._entity, key)

    async def _seal(self, token: str, purge: PurgeMark) -> None:
        (record,) = (await self._archive.by_token([token])).values()
        said = _SAID_OF_A_DELETION if record["op"] == "DELETE" else _SAID_OF_THE_PRESENT
        mark = {"cut": mark_with_purge(record, purge)}
        await self._mongo.find_one_and_update(
            self._archive.name, {"_id": token}, {**said, "$set": {**said.get("$set", {}), **mark}}
        )

    async def _versions(self, key: Any) -> list[Document]:
        """The last two."""
        return await self._archive.newest(
            [{"key": key}], limit=2, projection={"v": 1, "at": 1, "op": 1}
        )

    async def _remove_set_aside(self, key: Any) -> None:
        """The document's events that no version could be made of."""
        mine = {"collection": self._entity.collection, "key": {"$eq": key}}
        found = await self._mongo.find(SET_ASIDE, mine, FindOptions(projection={"_id": 1}))
        # Of large ones further parts lie apart.
        events = [each["_id"] for each in found]
        await self._remove(SET_ASIDE, {"$or": [mine, {"of": {"$in": events}}]})

    async def _remove(self, collection: str, query: Mapping[str, Any]) -> int:
        async def work(writing: WriteSession) -> int:
            return await writing.remove_all(collection, query)

        return (await write(self._mongo, work))[0]
