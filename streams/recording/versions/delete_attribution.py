"""Attribution and fence value of deleted documents, which have no field left to store them.

Written in the deleting transaction. The change event of a delete has that transaction's session; of
several transactions of one session, the last that began before the event belongs to it. Stored for
as long as the archive. Source: docs/decisions/0012-writes.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from revstream.streams.changefeed.event import ChangeEvent, identity
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession

__all__ = ["DeleteAttributions"]

COLLECTION = "revstream.deletions"


class DeleteAttributions:
    """Stored attributions of deletes, of all collections."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo

    async def prepare(self) -> None:
        await self._mongo.create_index(COLLECTION, [("session", 1), ("collection", 1), ("doc", 1)])
        await self._mongo.create_index(
            COLLECTION,
            [("collection", 1), ("doc", 1)],
            name="fences",
            partialFilterExpression={"fence": {"$exists": True}},
        )

    @staticmethod
    async def add(
        writing: WriteSession,
        collection: str,
        key: Any,
        change: Mapping[str, Any],
        *,
        fence: Any = None,
    ) -> None:
        """Store an attribution within the transaction, after the delete.

        Args:
            change: In the form of a document's `_change`.
            fence: The document's fence value.
        """
        await writing.insert(
            COLLECTION,
            {
                "session": writing.session_id,
                "collection": collection,
                "doc": key,
                "after": writing.cluster_time,
                "change": change,
                **({} if fence is None else {"fence": fence}),
            },
        )

    async def fences(self, collection: str, keys: Sequence[Any]) -> list[tuple[Any, Any]]:
        """Return the fence values of deleted documents, each with its `_id`."""
        query = {"collection": collection, "doc": {"$in": keys}, "fence": {"$exists": True}}
        found = await self._mongo.find(
            COLLECTION, query, FindOptions(projection={"_id": 0, "doc": 1, "fence": 1})
        )
        return [(each["doc"], each["fence"]) for each in found]

    async def changes_by_token(
        self, collection: str, events: Iterable[ChangeEvent]
    ) -> dict[str, Mapping[str, Any]]:
        """Return the `_change` of attributed deletes, by the event's token. One read, or none."""
        deletes = [
            each for each in events if each.operation == "delete" and each.session is not None
        ]
        if not deletes:
            return {}
        found = await self._mongo.find(
            COLLECTION,
            {
                "session": {"$in": [each.session for each in deletes]},
                "collection": collection,
                "doc": {"$in": [each.key for each in deletes]},
            },
            FindOptions(sort=[("after", 1)]),
        )
        changes: dict[str, Mapping[str, Any]] = {}
        for event in deletes:
            for each in found:
                if (
                    each["session"] == event.session
                    and identity(each["doc"]) == identity(event.key)
                    and each["after"] < event.at
                ):
                    changes[event.token] = each["change"]
        return changes
