"""Secret with which the copier of a deployment signs its writes."""

from __future__ import annotations

import secrets

from revstream.streams.core.errors import DuplicateKey
from revstream.streams.mongo.database import Mongo

__all__ = ["copier_secret"]

COLLECTION = "revstream.deployment"


async def copier_secret(mongo: Mongo) -> str:
    """Return the deployment's secret; the first call creates it."""
    try:
        found = await mongo.find_one_and_update(
            COLLECTION,
            {"_id": "copier"},
            {"$setOnInsert": {"secret": secrets.token_hex(32)}},
            upsert=True,
        )
    except DuplicateKey:  # another process created it at the same time
        return await copier_secret(mongo)
    assert found is not None
    return str(found["secret"])
