"""Clients' places in the stream, kept on the server under a name: for those who cannot keep a token
themselves."""

from __future__ import annotations

from streams import tokens
from streams.mongo import Mongo

__all__ = ["Cursors"]

COLLECTION = "revstream.cursors"


class Cursors:
    """`owner` keeps one principal's names apart from another's."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo

    async def load(self, owner: str, name: str) -> str | None:
        found = await self._mongo.find(COLLECTION, {"_id": {"owner": owner, "name": name}}, limit=1)
        return tokens.canonical(found[0]["token"]) if found else None

    async def save(self, owner: str, name: str, token: str) -> None:
        await self._mongo.find_one_and_update(
            COLLECTION,
            {"_id": {"owner": owner, "name": name}},
            {"$set": {"token": token}, "$currentDate": {"at": True}},
            upsert=True,
        )
