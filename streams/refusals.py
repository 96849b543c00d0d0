"""Turn what the driver raises into `streams.errors`, in one place.

Guarantees: no message carries the URI, a topology or a full server reply; the cause stays attached
for the log.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pymongo.errors

from streams.errors import (
    DatabaseError,
    DuplicateKey,
    TimeLimit,
    Unavailable,
    Unsuitable,
)

__all__ = ["STANDALONE", "translated"]

_TIME_LIMIT = 50
_NOT_PERMITTED = {13, 18, 8000}  # Unauthorized, AuthenticationFailed, AtlasError
_NOT_A_REPLICA_SET = 40573
_DROP_PENDING = 215
_DUPLICATE_KEY = 11000

STANDALONE = (
    "this mongod is a standalone, and change streams need a replica set; convert it: "
    "start it with --replSet rs0, then run rs.initiate() in mongosh"
)


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Turn driver errors into ours, here and nowhere else; no message carries the URI."""
    try:
        yield
    except pymongo.errors.ExecutionTimeout as exc:
        raise TimeLimit("the read took longer than its limit on the server") from exc
    except pymongo.errors.DuplicateKeyError as exc:
        raise DuplicateKey(
            f"a document with this key exists: {(exc.details or {}).get('keyValue')}"
        ) from exc
    except pymongo.errors.BulkWriteError as exc:
        first = (exc.details.get("writeErrors") or [{}])[0]
        if first.get("code") == _DUPLICATE_KEY:
            raise DuplicateKey(f"a document with this key exists: {first.get('keyValue')}") from exc
        raise DatabaseError(
            f"a write was refused: {first.get('errmsg', exc)}", number=first.get("code")
        ) from exc
    except pymongo.errors.NotPrimaryError as exc:
        raise Unavailable("the MongoDB primary has changed; try again") from exc
    except pymongo.errors.ServerSelectionTimeoutError as exc:
        raise Unavailable(f"MongoDB cannot be reached: {_first_line(exc)}") from exc
    except pymongo.errors.ConnectionFailure as exc:
        raise Unavailable(f"the connection to MongoDB was lost: {_first_line(exc)}") from exc
    except pymongo.errors.OperationFailure as exc:
        if exc.code == _TIME_LIMIT:
            raise TimeLimit("the read took longer than its limit on the server") from exc
        if exc.code in _NOT_PERMITTED:
            raise Unsuitable(f"MongoDB does not permit this: {_first_line(exc)}") from exc
        if exc.code == _DROP_PENDING:
            raise Unavailable("the database is being dropped; try again") from exc
        if exc.code == _NOT_A_REPLICA_SET:
            raise Unsuitable(STANDALONE) from exc
        raise DatabaseError(f"MongoDB refused: {_first_line(exc)}", number=exc.code) from exc
    except pymongo.errors.PyMongoError as exc:
        raise DatabaseError(f"MongoDB driver: {_first_line(exc)}") from exc


# What the driver or the server appends: its settings, the topology, the command with its values,
# the whole reply.
_APPENDED = re.compile(
    r",? (\(configured timeouts:|Timeout: \d|Topology Description:|full error:).*"
    r"|(?<=to execute command )\{ (?P<command>\w+):.*"
)


def _first_line(exc: Exception) -> str:
    """Without what is appended."""
    text = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
    return _APPENDED.sub(lambda found: found["command"] or "", text).rstrip(" ,")
