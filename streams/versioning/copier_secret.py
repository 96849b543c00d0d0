"""The secret that the Copier of a deployment signs its writes with."""

from __future__ import annotations

import secrets

from revstream.streams.core.errors import DuplicateKey
from revstream.streams.mongo.database import Mongo

__all__ = ["copier_secret"]

COLLECTION = "revstream.deployment"


async def copier_secret(mongo: Mongo) -> str:
    """Return the deployment's secret; the first process that asks makes it."""
    try:
        found = await mongo.find_one_and_update(
            COLLECTION,
            {"_id": "copier"},
            {"$setOnInsert": {"secret": secrets.token_hex(32)}},
            upsert=True,
        )
    except DuplicateKey:  # two processes at once: the other one made it
        return await copier_secret(mongo)
    assert found is not None
    return str(found["secret"])
