"""Set-aside events: change events of which no version can be made, stored for an operator.

One document for each in `revstream.setAside`, `{_id: token, collection, key, operation, at, wall,
reason, event}`; one for all events of a document whose id cannot be stored. `event` contains the
bytes of the event, or of its known parts, in BSON; beyond 8 MB they continue in documents with `of`
and `n`. An operator removes them, and they are no longer reported.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Mapping
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.core.errors import InexactKey, reason_from_error
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED, Document
from revstream.streams.raw_bson.fields import find_element, split_objects

__all__ = ["COLLECTION", "SetAsideEvents"]

log = logging.getLogger(__name__)

COLLECTION = "revstream.setAside"
_PART_BYTES = 8 * 1024 * 1024
# Limit against a fault that every event has, which would fill the disk: later documents have no
# bytes.
_MOST_WITH_BYTES = 1000
_MOST_SHOWN = 200
# Every write to a document whose id cannot be stored comes here. After this time it is stored
# again, so that it is reported again if an operator removed it while the document is still written.
_KNOWN_S = 60.0
_MOST_KNOWN = 10_000


class SetAsideEvents:
    """Set-aside events of all collections."""

    def __init__(self, mongo: Mongo) -> None:
        self._mongo = mongo
        # Names stored recently, for documents whose ids cannot be stored.
        self._known: set[str] = set()
        self._forget_at = 0.0

    async def put(self, collection: str, event: ChangeEvent, fault: Exception) -> bool:
        """Store an event; storing it again changes nothing.

        Args:
            fault: Error of its version, logged with its traceback.

        Returns: False where an event of the same document was stored a moment ago.
        """
        name = event.token
        if isinstance(fault, InexactKey):
            # One name per document, which has no versions: a snapshot finds it too.
            name = f"{collection}/{hashlib.sha256(_key_of(event)).hexdigest()}"
            if self._is_known(name):
                return False
        reason = reason_from_error(fault)
        log.error(
            "event set aside",
            extra={"collection": collection, "key": _short(event.key), "reason": reason},
            exc_info=fault,
        )
        raw = b"" if await self._is_full(collection) else _bytes_of(event)
        parts = [raw[n : n + _PART_BYTES] for n in range(0, len(raw), _PART_BYTES)]
        facts: Document = {
            "collection": collection,
            "key": event.key,
            "operation": event.operation,
            "at": event.at,
            "wall": event.wall,
            "reason": reason,
        }
        for n, part in enumerate(parts[1:], 1):
            more = {"of": name, "collection": collection, "n": n, "event": part}
            await self._insert(f"{name}#{n}", more)
        await self._insert(name, {**facts, "event": parts[0]} if parts else facts)
        if isinstance(fault, InexactKey):
            self._known.add(name)
        return True

    def _is_known(self, name: str) -> bool:
        now = time.monotonic()
        if now >= self._forget_at or len(self._known) >= _MOST_KNOWN:
            self._known.clear()
            self._forget_at = now + _KNOWN_S
        return name in self._known

    async def _insert(self, name: str, fields: Mapping[str, Any]) -> None:
        change = {"$setOnInsert": dict(fields)}
        await self._mongo.find_one_and_update(COLLECTION, {"_id": name}, change, upsert=True)

    async def _is_full(self, collection: str) -> bool:
        query = {"collection": collection, "event": {"$exists": True}}
        return await self._mongo.count(COLLECTION, query) >= _MOST_WITH_BYTES

    async def troubles(self) -> dict[str, str]:
        """Return, by collection, the number of events and the last reason, as a text for people."""
        found = await self._mongo.aggregate(
            COLLECTION,
            [
                {"$match": {"of": {"$exists": False}}},
                {
                    "$group": {
                        "_id": "$collection",
                        "events": {"$sum": 1},
                        "last": {
                            "$bottom": {
                                "sortBy": {"at": 1, "_id": 1},
                                "output": {"key": "$key", "reason": "$reason"},
                            }
                        },
                    }
                },
            ],
        )
        return {
            each["_id"]: f"{each['events']} change event{'s' if each['events'] > 1 else ''} set "
            f"aside, the last of document {_short(each['last']['key'])}: {each['last']['reason']}; "
            "their versions are gaps, or missing; "
            f"see {COLLECTION}, and delete the resolved entries"
            for each in found
        }


def _short(key: Any) -> str:
    """Return a shortened text of an `_id`, which may be a document of any length."""
    shown = repr(key)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"


def _key_of(event: ChangeEvent) -> bytes:
    """Return the element with the document's `_id`, as stored."""
    if event.undecoded is not None:
        objects, _ = split_objects(event.undecoded, {b"documentKey"})
        raw = objects[b"documentKey"]
    else:
        assert event.after is not None
        raw = bytes(event.after.raw)
    return find_element(raw, b"_id") or b""


def _bytes_of(event: ChangeEvent) -> bytes:
    """Return the whole event if it could not be decoded, otherwise its documents."""
    if event.undecoded is not None:
        return event.undecoded
    documents: dict[str, RawBSONDocument | None] = {
        "fullDocument": event.after,
        "fullDocumentBeforeChange": event.before,
        "updateDescription": event.update,
    }
    found = {name: each for name, each in documents.items() if each is not None}
    return bson.encode(found, codec_options=DECODED)
