"""Identity of a deployment: the tag in every resume token, and marks that a database copy lacks.

The replica set's id and the UUID of the tag's own collection are stored with the tag. A restored
dump has another UUID; files that are moved to another replica set have another id. Such a copy gets
a tag of its own, so that resume tokens of the original are refused. Its recorders read the current
documents again, as after a lost oplog, because documents, versions and checkpoints were copied at
different times. Source: docs/decisions/0042-copied-databases.md.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from typing import Any

from bson import Timestamp

from revstream.streams.coordination.checkpoint import COLLECTION as CHECKPOINTS
from revstream.streams.coordination.checkpoint import Baseline
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DatabaseError, DuplicateKey, Unsuitable
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.server_check import explain_refusal

__all__ = ["COLLECTION", "deployment_tag"]

log = logging.getLogger(__name__)

COLLECTION = "revstream.deployment"
_THIS = {"_id": "deployment"}
# No letters that are easily confused: people compare tokens by eye.
_LETTERS = "23456789abcdefghjkmnpqrstuvwxyz"
# The cluster time of a quiet replica set advances every ten seconds.
_CLOCK_S = 60.0


async def deployment_tag(mongo: Mongo) -> str:
    """Return the tag of this database; create it at the first start and for a copied database.

    Raises:
        Unsuitable: Missing privileges; or versions of a copy are later than the database's cluster
            time. The message says how to mend it.
    """
    async with explain_refusal(mongo, "recording requires", "readWrite"):
        stored = await _load_identity(mongo, _new_tag())
        marks = await _read_marks(mongo)
        known = {name: value for name, value in marks.items() if name in stored}
        if all(stored[name] == value for name, value in known.items()):
            if len(known) < len(marks):
                await mongo.find_one_and_update(COLLECTION, _THIS, {"$set": marks})
        else:
            log.warning(
                "database is a copy: it gets its own tag, and its documents are read again",
                extra={"database": mongo.name, "copy_of": stored["tag"]},
            )
            # Only one of several processes makes this change.
            copy = {**_THIS, "tag": stored["tag"]}
            change = {"$set": {"tag": _new_tag(), "copied": True, **marks}}
            await mongo.find_one_and_update(COLLECTION, copy, change)
            stored = await _load_identity(mongo, "")
        if stored.get("copied"):
            await _reset_recorders(mongo, stored["tag"])
            done = {**_THIS, "tag": stored["tag"]}
            await mongo.find_one_and_update(COLLECTION, done, {"$set": {"copied": False}})
    return str(stored["tag"])


def _new_tag() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(6))


async def _load_identity(mongo: Mongo, tag: str) -> Document:
    """Return the stored identity; store one with this tag if none exists."""
    change = {"$setOnInsert": {"tag": tag}}
    try:
        found = await mongo.find_one_and_update(COLLECTION, _THIS, change, upsert=True)
    except DuplicateKey:  # another process created it at the same time
        return await _load_identity(mongo, tag)
    assert found is not None
    return found


async def _read_marks(mongo: Mongo) -> dict[str, Any]:
    """Return the marks that distinguish a copy from its original, as far as privileges allow."""
    reply = await mongo.command({"listCollections": 1, "filter": {"name": COLLECTION}})
    [collection] = reply["cursor"]["firstBatch"]
    marks = {"collection": collection["info"]["uuid"]}
    try:
        reply = await mongo.command({"replSetGetConfig": 1}, database="admin")
    except (Unsuitable, DatabaseError):
        # No privilege, or no replica set: the collection's UUID alone detects a dump.
        return marks
    return {**marks, "replicaSet": reply["config"]["settings"]["replicaSetId"]}


async def _reset_recorders(mongo: Mongo, tag: str) -> None:
    """Make every recorder read the current documents again. Repeating it does not undo later
    progress.
    """
    recorders = {"_id": {"$regex": "^recorder:"}, "deployment": {"$ne": tag}}
    found = await mongo.find(CHECKPOINTS, recorders, FindOptions(projection={"_id": 1}))
    partitions = {each["_id"]: Partition.from_name(each["_id"]) for each in found}
    collections = {each.collection for each in partitions.values() if each is not None}
    now = await _time_after_versions(mongo, collections)
    start = resume_tokens.time_prefix(now)
    change = {"token": start, "at": now, "baseline": Baseline(doubt=start).to_record()}
    for name in partitions:
        # A recorder that another process has reset meanwhile keeps its progress.
        mine = {"_id": name, "deployment": {"$ne": tag}}
        await mongo.find_one_and_update(
            CHECKPOINTS, mine, {"$set": {**change, "deployment": tag, "trouble": None}}
        )


async def _time_after_versions(mongo: Mongo, collections: set[str]) -> Timestamp:
    """Wait until the database's cluster time is after all versions of these collections; return it.

    The versions have cluster times of the original database.
    """
    newest = Timestamp(0, 0)
    for name in collections:
        found = await mongo.find(f"{name}.versions", {}, FindOptions(sort=[("_id", -1)], limit=1))
        newest = max([newest, *(resume_tokens.cluster_time(each["_id"]) for each in found)])
    deadline = time.monotonic() + _CLOCK_S
    while True:
        now = await mongo.operation_time()
        if now > newest:
            return now
        if time.monotonic() > deadline:
            raise Unsuitable(
                f"{mongo.name}: a copy whose newest version is of {newest.as_datetime():%F %T}Z, "
                f"maximum is the database's time {now.as_datetime():%F %T}Z; wait until then, or "
                "set both clocks to the same time"
            )
        await asyncio.sleep(1)
