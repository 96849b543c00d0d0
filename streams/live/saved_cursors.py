"""Saved cursors: resume tokens that clients store on the server under a name.

One document per cursor, `{_id: {owner, name}, token, at}`; `at` is the time of the last save or
use. The server deletes those that were not used for a year.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson.max_key import MaxKey

from revstream.streams.core import resume_tokens
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions

__all__ = ["CursorStore", "SavedCursor"]

COLLECTION = "revstream.cursors"

_KEPT_S = 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class SavedCursor:
    """A saved cursor; `at`: time of the last save or use."""

    name: str
    token: str
    at: datetime


class CursorStore:
    """The saved cursors of all owners; `owner` separates the names of principals."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo

    async def prepare(self) -> None:
        """Create the TTL index."""
        await self._mongo.create_index(
            COLLECTION, [("at", 1)], name="unused", expireAfterSeconds=_KEPT_S
        )

    async def load(self, owner: str, name: str) -> str | None:
        """Return the token, and update the time of its use."""
        found = await self._mongo.find_one_and_update(
            COLLECTION, _key(owner, name), {"$currentDate": {"at": True}}
        )
        return None if found is None else resume_tokens.canonical_token(found["token"])

    async def save(self, owner: str, name: str, token: str, *, most: int) -> bool:
        """Save a cursor.

        Returns: False where the owner has `most` others.
        """
        others = {**_owner_query(owner), **{"$nor": [_key(owner, name)]}}
        if await self._mongo.count(COLLECTION, others) >= most:
            return False
        await self._mongo.find_one_and_update(
            COLLECTION,
            _key(owner, name),
            {"$set": {"token": token}, "$currentDate": {"at": True}},
            upsert=True,
        )
        return True

    async def load_all(self, owner: str) -> list[SavedCursor]:
        """Return an owner's cursors by name."""
        found = await self._mongo.find(
            COLLECTION, _owner_query(owner), FindOptions(sort=[("_id", 1)])
        )
        return [
            SavedCursor(
                each["_id"]["name"], resume_tokens.canonical_token(each["token"]), each["at"]
            )
            for each in found
        ]

    async def remove(self, owner: str, name: str) -> bool:
        """Delete a cursor; return whether it existed."""
        return bool(await self._mongo.remove_all(COLLECTION, _key(owner, name)))


def _key(owner: str, name: str) -> dict[str, Any]:
    return {"_id": {"owner": owner, "name": name}}


def _owner_query(owner: str) -> Mapping[str, Any]:
    """Return a query by the index of `_id`, in which an owner's keys are adjacent."""
    first, end = {"owner": owner, "name": ""}, {"owner": owner, "name": MaxKey()}
    return {"_id": {"$gte": first, "$lt": end}}
