"""A server with a small oplog, and a way to roll it over."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure

__all__ = ["roll_over", "small_oplog"]

_FILLER = {"text": "x" * 500_000}


def small_oplog(megabytes: int) -> tuple[str, ...]:
    """Return the options of a mongod with a small oplog.

    It deletes entries before the last checkpoint, which it writes every second instead of every
    minute.
    """
    return ("--oplogSize", str(megabytes), "--syncdelay", "1")


def roll_over(client: MongoClient[dict[str, Any]], *, within_s: float = 60.0) -> None:
    """Write until the oplog begins after now. The server must have a `small_oplog`."""
    now = client.admin.command("hello")["operationTime"]
    oplog = client.local["oplog.rs"]
    deadline = time.monotonic() + within_s
    while True:
        # The oldest entry may be deleted while it is read.
        with contextlib.suppress(OperationFailure):
            [oldest] = oplog.find().sort("$natural", 1).limit(1)
            if oldest["ts"] > now:
                return
        assert time.monotonic() < deadline, f"the oplog still reaches back to {now}"
        client["filler"]["things"].insert_many([dict(_FILLER) for _ in range(8)])
        client["filler"]["things"].drop()
