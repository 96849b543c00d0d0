"""Creation of the driver's client: Motor's, or PyMongo's own for asyncio.

No other module creates one.

Source: docs/decisions/0004-driver.md.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pymongo
import pymongo.errors
from motor.motor_asyncio import AsyncIOMotorClient

from revstream.streams.core.errors import Unsuitable
from revstream.streams.mongo.driver.error_translation import redact_uri
from revstream.streams.mongo.driver.pymongo_internals import release_lock_on_cancellation

__all__ = ["Driver", "MongoOptions", "open_client"]

Driver = Literal["motor", "pymongo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MongoOptions:
    """Options of the connection to MongoDB.

    Args:
        driver: "motor" or "pymongo".
        read_limit_s: Maximum duration of a read on the server.
        server_selection_s: How long to look for a primary before `Unavailable`.
        wire: Whether reads may use wire connections.
    """

    driver: Driver = "motor"
    read_limit_s: float = 30.0
    server_selection_s: float = 10.0
    wire: bool = True


def open_client(uri: str, options: MongoOptions, *, listeners: Sequence[Any] = ()) -> Any:
    """Create a client lazily: no server is contacted before the first command.

    Args:
        listeners: Listeners of the driver's monitoring events.

    Raises:
        Unsuitable: The URI is not valid.
    """
    kind = AsyncIOMotorClient if options.driver == "motor" else pymongo.AsyncMongoClient
    if kind is pymongo.AsyncMongoClient:
        release_lock_on_cancellation()
    heard: dict[str, Any] = {"event_listeners": listeners} if listeners else {}
    try:
        with warnings.catch_warnings():
            # PyMongo warns of an option that it cannot use, and goes on without: `tls=yes`.
            warnings.simplefilter("error", UserWarning)
            return kind(
                uri,
                tz_aware=True,
                appname="revstream",
                serverSelectionTimeoutMS=int(options.server_selection_s * 1000),
                # Snapshot reads and the archive are only worth something when the majority has
                # them.
                w="majority",
                **heard,
            )
    except OSError as exc:
        # Of a certificate or a key, which the URI names. PyMongo from 4.20.1 on tells the option in
        # place of the name.
        said = exc.strerror or str(exc)
        reason = os.strerror(exc.errno) if exc.errno else said
        problem = ": ".join(dict.fromkeys([exc.filename or said, reason]))
        raise Unsuitable(f"MongoDB URI: {problem}; correct it") from exc
    except (
        pymongo.errors.ConfigurationError,
        pymongo.errors.InvalidURI,
        UserWarning,
        ValueError,
    ) as exc:
        raise Unsuitable(f"MongoDB URI: {redact_uri(exc, uri)}; correct it") from exc
