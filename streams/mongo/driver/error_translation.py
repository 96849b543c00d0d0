"""Translation of driver errors into `streams.core.errors`, in one place.

Guarantees: no message contains the URI, a topology or a full server reply; the cause stays attached
for the log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import pymongo.errors

from revstream.streams.core.errors import (
    ConnectionLost,
    DatabaseError,
    DuplicateKey,
    GatewayError,
    NotWritable,
    ParallelLists,
    TimeLimit,
    Unavailable,
    Unsuitable,
)

__all__ = [
    "DUPLICATE_KEY",
    "NOT_INITIATED",
    "OF_DOCUMENT",
    "OF_INDEX",
    "STANDALONE",
    "TOO_LARGE",
    "error_from_reply",
    "redact_uri",
    "translate_driver_errors",
]

_TIME_LIMIT = 50
_NOT_PERMITTED = {13, 8000}  # Unauthorized, AtlasError
_AUTHENTICATION_FAILED = 18
_USER_NOT_FOUND = 11
_SIGN_IN_AGAIN = 391  # ReauthenticationRequired
_NOT_A_REPLICA_SET = 40573
_DROP_PENDING = 215
_BAD_VALUE = 2
_DISK_FULL = 14031  # OutOfDiskSpace
# CommandNotSupportedOnView; OperationNotSupportedInTransaction, as of a capped collection.
_NOT_WRITTEN_SO = {166, 263}
_UNDONE = {251, 290}  # NoSuchTransaction, TransactionExceededLifetimeLimitSeconds
DUPLICATE_KEY = 11000
TOO_LARGE = 10334  # BSONObjectTooLarge
OF_INDEX = {
    **dict.fromkeys((16754, 16755, 16756), "a 2dsphere index: no GeoJSON, or an unsupported one"),
    **dict.fromkeys(
        (13022, 13023, 13026, 13027, 13067, 13068, 16433, 16804),
        "a 2d index: no pair of coordinates within its bounds",
    ),
    **dict.fromkeys((17261, 17262), "a text index: an unknown language"),
    16766: "a hashed index: a list",
    171: "an index over several fields: lists in two of them",  # CannotIndexParallelArrays
    17280: "an index: a key that is too long",  # KeyTooLong
}
"""Codes by which an index refuses a document, with the refused content."""
CONVERSION_FAILURE = 241
OF_DOCUMENT = {
    2,  # BadValue
    14,  # TypeMismatch
    52,  # DollarPrefixedFieldName
    57,  # DottedFieldName
    121,  # DocumentValidationFailure
    CONVERSION_FAILURE,
    *OF_INDEX,
    *(TOO_LARGE, 17419, 17420),
    DUPLICATE_KEY,
}
"""Codes of refusals that the content of one document causes."""
# spec: retryable-writes.md, "Retryable Error": shutting down, stepping down, not primary.
_GOING = {91, 189, 10107, 11600, 11602, 13435, 13436}

_RESUMABLE = "ResumableChangeStreamError"
# CursorNotFound, which has no label (spec: change-streams.md "Resumable Error"), and errors without
# a label where an operator has killed the cursor, its operation or its session: QueryPlanKilled,
# CursorKilled, Interrupted.
_CURSOR_ENDED = {43, 175, 237, 11601}

STANDALONE = (
    "MongoDB: a standalone mongod, expected a replica set, which change streams require; convert "
    "it: start it with --replSet rs0, then run rs.initiate() in mongosh"
)
NOT_INITIATED = (
    "mongod with --replSet: not initiated, expected a replica set; run rs.initiate() in mongosh"
)
NO_MEMBER = (
    "; correct replicaSet in the URI, or, if the server is a standalone mongod, convert it: start "
    "it with --replSet and that name, then run rs.initiate() in mongosh"
)
_READ_LIMIT = "duration of the read: over its maximum on the server; request less, or try again"
_NO_ROOM = "MongoDB's disk: full, expected free space; free some, and revstream continues by itself"
# The server does not reveal which of the three is wrong.
_NOT_LOGGED_IN = (
    "MongoDB: authentication failed; correct user and password in the URI, or, if the user was "
    "created in another database than that of the URI, name it there: ?authSource=admin"
)


class translate_driver_errors:  # noqa: N801 — used like a function
    """Context manager that turns driver errors into ours, without the URI in a message.

    Not a generator, since each read would pay for one.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(exc, pymongo.errors.PyMongoError):
            raise _translation(exc) from exc


def _translation(exc: pymongo.errors.PyMongoError) -> GatewayError:
    if isinstance(exc, pymongo.errors.ExecutionTimeout):
        return TimeLimit(_READ_LIMIT)
    if isinstance(exc, pymongo.errors.DuplicateKeyError):
        return _duplicate(exc.details or {})
    if isinstance(exc, pymongo.errors.BulkWriteError):
        return _of_bulk_write(exc.details, exc)
    if isinstance(exc, pymongo.errors.WriteConcernError):
        return Unavailable(f"MongoDB did not confirm a write: {_first_line(exc)}")
    if isinstance(exc, pymongo.errors.NotPrimaryError):
        return Unavailable("MongoDB: the primary has changed; try again")
    if isinstance(exc, pymongo.errors.ServerSelectionTimeoutError):
        if "server_type: RSGhost" in str(exc):
            # Also a member that is starting, a state that passes.
            return Unavailable(f"MongoDB cannot be reached: {NOT_INITIATED}")
        if "No replica set members available" in str(exc):
            return Unavailable(f"MongoDB cannot be reached: {_first_line(exc)}{NO_MEMBER}")
        return Unavailable(f"MongoDB cannot be reached: {_first_line(exc)}")
    if isinstance(exc, pymongo.errors.ConnectionFailure):
        late = isinstance(exc, pymongo.errors.NetworkTimeout)
        kind = Unavailable if late else ConnectionLost
        return kind(f"the connection to MongoDB was lost: {_first_line(exc)}")
    if isinstance(exc, pymongo.errors.OperationFailure):
        if exc.code == _TIME_LIMIT:
            return TimeLimit(_READ_LIMIT)
        if exc.has_error_label("SystemOverloadedError"):
            return Unavailable(f"MongoDB is overloaded; try again later: {_first_line(exc)}")
        if exc.has_error_label("RetryableError"):
            return Unavailable(f"MongoDB cannot do this now; try again: {_first_line(exc)}")
        if exc.code == _AUTHENTICATION_FAILED:
            return Unsuitable(_NOT_LOGGED_IN)
        if exc.code == _USER_NOT_FOUND:
            # A certificate names the user.
            return Unsuitable(
                f"MongoDB: unknown user: {_first_line(exc)}; create it with the certificate's "
                "subject as its name"
            )
        if exc.code in _NOT_PERMITTED:
            return Unsuitable(f"MongoDB does not permit this: {_first_line(exc)}")
        if exc.code == _DROP_PENDING:
            return Unavailable("MongoDB: the database is being dropped; try again")
        if exc.code == _DISK_FULL:
            return Unavailable(_NO_ROOM)
        if exc.code in _UNDONE or exc.has_error_label("TransientTransactionError"):
            return Unavailable(f"MongoDB aborted the transaction; try again: {_first_line(exc)}")
        if exc.code in _NOT_WRITTEN_SO:
            return NotWritable(
                f"MongoDB does not support this write: {_first_line(exc)}; "
                "revstream doctor lists the collections that it cannot serve",
                number=exc.code,
            )
        if exc.code == _NOT_A_REPLICA_SET:
            return Unsuitable(STANDALONE)
        if exc.code == _BAD_VALUE and "parallel arrays" in str(exc):
            return ParallelLists("order: a document with lists in several of its fields")
        return DatabaseError(
            f"MongoDB refused: {_first_line(exc)}",
            number=exc.code,
            resumable=exc.code in _CURSOR_ENDED or exc.has_error_label(_RESUMABLE),
        )
    if isinstance(exc, pymongo.errors.DocumentTooLarge):
        # Raised by the driver before it sends the document.
        return DatabaseError(f"MongoDB refused: {_first_line(exc)}", number=TOO_LARGE)
    if isinstance(exc, pymongo.errors.ConfigurationError):
        # PyMongo's asyncio client resolves a mongodb+srv URI when it connects.
        return Unsuitable(f"MongoDB URI: {_first_line(exc)}; correct it")
    return DatabaseError(f"MongoDB driver: {_first_line(exc)}")


def error_from_reply(reply: Mapping[str, Any]) -> pymongo.errors.PyMongoError:
    """Return the error that the driver would raise for a reply that is not `ok`."""
    words, code = reply.get("errmsg", "no reason"), reply.get("code")
    if code in _GOING:
        return pymongo.errors.NotPrimaryError(words, reply)
    if code == _SIGN_IN_AGAIN:
        return pymongo.errors.AutoReconnect(words)
    if code == _TIME_LIMIT:
        return pymongo.errors.ExecutionTimeout(words, code, reply)
    if code == DUPLICATE_KEY:
        return pymongo.errors.DuplicateKeyError(words, code, reply)
    return pymongo.errors.OperationFailure(words, code, reply)


_QUOTED = re.compile(r"""(["'])(?P<quoted>.*?)\1|(?<=: )(?P<last>\S+)$""")


def redact_uri(exc: Exception, uri: str) -> str:
    """Return the problem with a URI without quoted parts of it.

    A quoted part may belong to a password that was not escaped.
    """
    return _QUOTED.sub(
        lambda found: "…" if (found["quoted"] or found["last"]) in uri else found[0], str(exc)
    )


def _duplicate(details: Mapping[str, Any], places: Sequence[int] = ()) -> DuplicateKey:
    return DuplicateKey(
        f"unique key: {details.get('keyValue')} exists, expected a new value",
        fields=tuple(details.get("keyPattern") or ()),
        places=places,
    )


def _of_bulk_write(details: Mapping[str, Any], exc: Exception) -> GatewayError:
    """Return the error of a bulk write, with the message of its first refusal."""
    if not details.get("writeErrors"):
        # Written, but an election may have undone it: read again.
        unconfirmed = details.get("writeConcernErrors") or [{}]
        reason = unconfirmed[0].get("errmsg", _first_line(exc))
        return Unavailable(f"MongoDB did not confirm a write: {reason}")
    first = details["writeErrors"][0]
    places = [each["index"] for each in details["writeErrors"]]
    if first.get("code") == DUPLICATE_KEY:
        return _duplicate(first, places)
    reason = first.get("errmsg", _first_line(exc))
    if first.get("code") in _GOING:
        return Unavailable(f"MongoDB is shutting down or electing a primary: {reason}")
    if first.get("code") == _DISK_FULL:
        return Unavailable(_NO_ROOM)
    return DatabaseError(
        f"MongoDB refused a write: {reason}", number=first.get("code"), places=places
    )


# Text that the driver or the server appends: settings, topology, the command with its values, the
# whole reply.
_APPENDED = re.compile(
    r",? (\(configured timeouts:|Timeout: \d|Topology Description:|full error:).*"
    r"|(?<=to execute command )\{ (?P<command>\w+):.*"
)


def _first_line(exc: Exception) -> str:
    """Return the first line without appended text."""
    text = str(exc).splitlines()[0] if str(exc) else type(exc).__name__
    return _APPENDED.sub(lambda found: found["command"] or "", text).rstrip(" ,")
