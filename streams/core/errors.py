"""The errors that reach whoever asks, and those that only revstream's own parts see.

GatewayError
├── ResumeTokenInvalid  RESUME_TOKEN_INVALID  does not decode, or is of another deployment
├── HistoryLost         HISTORY_LOST          the moment lies before what archive and oplog hold
├── ArchiveBehind       ARCHIVE_BEHIND        the archive has not reached the moment in time
├── SlowConsumer        SLOW_CONSUMER         backlog full; the client resumes from its last token
├── TimeLimit           TIMEOUT               a read took longer than its limit
├── Unavailable         UNAVAILABLE           MongoDB cannot be reached, or refuses for now
│   └── ConnectionLost                        an open connection was closed by the other side
├── Unsuitable          UNAVAILABLE           MongoDB is reached but cannot serve: standalone, too
│                                             old, not permitted
└── InternalError       INTERNAL              masked on the wire
    ├── DuplicateKey                          an insert met a document with the same key
    ├── LeaseLost                             a newer fencing token is stored: stop, never retry
    ├── DamagedArchive                        a version cannot be made of what is left of it
    ├── ReceiverAway                          a sink's receiver takes nothing; it pauses
    └── DatabaseError                         any other refusal of the server; `number` is its code
        └── NotWritable UNAVAILABLE           a collection that is not written so, as a view

The codes are the wire's; `gql/observability/error_table.py` maps each to its log level. Messages
name the thing and both values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

__all__ = [
    "ArchiveBehind",
    "ConnectionLost",
    "DamagedArchive",
    "DatabaseError",
    "DuplicateKey",
    "GatewayError",
    "HistoryLost",
    "InexactKey",
    "InternalError",
    "LeaseLost",
    "NotWritable",
    "ParallelLists",
    "ReceiverAway",
    "ResumeTokenInvalid",
    "SlowConsumer",
    "TimeLimit",
    "Unavailable",
    "Unsuitable",
    "is_fault_of_document",
    "reason_from_error",
]


class GatewayError(Exception):
    """An error with a stable code and facts that are safe to show."""

    code: ClassVar[str] = "INTERNAL"
    # It ends a subscription, which goes on once its client subscribes again.
    resubscribe: bool = False

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def copy(self) -> Self:
        """The same for another one: what is added to it only concerns whoever is told it."""
        made = type(self).__new__(type(self), *self.args)
        made.__dict__ |= self.__dict__ | {"facts": dict(self.facts)}
        return made

    @property
    def extensions(self) -> dict[str, Any]:
        """What graphql-core copies into the response: the code and the facts."""
        return {"code": self.code, **self.facts}


class ResumeTokenInvalid(GatewayError):
    code = "RESUME_TOKEN_INVALID"


class HistoryLost(GatewayError):
    code = "HISTORY_LOST"


class ArchiveBehind(GatewayError):
    code = "ARCHIVE_BEHIND"


class SlowConsumer(GatewayError):
    code = "SLOW_CONSUMER"


class TimeLimit(GatewayError):
    code = "TIMEOUT"


class Unavailable(GatewayError):
    code = "UNAVAILABLE"


class ConnectionLost(Unavailable):
    pass


class Unsuitable(GatewayError):
    code = "UNAVAILABLE"


class ParallelLists(GatewayError):
    """A document has no place in an order, by lists in several of its fields; MongoDB sorts none
    then."""

    code = "DOCUMENT_MISFIT"


class InternalError(GatewayError):
    code = "INTERNAL"


class DuplicateKey(InternalError):
    """`fields`: the stored names, dotted, of the unique index that refused it; () where the server
    does not say. `places`: as of a `DatabaseError`."""

    def __init__(
        self, message: str, *, fields: tuple[str, ...] = (), places: Sequence[int] = ()
    ) -> None:
        super().__init__(message)
        self.fields = fields
        self.places = places


class LeaseLost(InternalError):
    pass


class DamagedArchive(InternalError):
    pass


class ReceiverAway(InternalError):
    pass


class DatabaseError(InternalError):
    """A refusal by the server that nothing below expected; `number` is the server's error code, and
    `resumable` says that a change stream which it has ended can be opened again. `places`: in a
    write of many, of those that were refused."""

    def __init__(
        self,
        message: str,
        *,
        number: int | None = None,
        resumable: bool = False,
        places: Sequence[int] = (),
        **facts: object,
    ) -> None:
        super().__init__(message, **facts)
        self.number = number
        self.resumable = resumable
        self.places = places


class NotWritable(DatabaseError):
    """A collection that MongoDB does not write in this way: a view, or a capped one."""

    code = "UNAVAILABLE"


class InexactKey(ValueError):
    """An `_id` that no driver's values hold exactly: under another one the document would get the
    history of the document that has that one."""


def is_fault_of_document(failure: Exception) -> bool:
    """Whether a failure can come from what one document holds: none of MongoDB, of a lease, or of
    this machine."""
    ours = isinstance(failure, GatewayError) and not isinstance(failure, DamagedArchive)
    return not ours and not isinstance(failure, OSError | MemoryError)


def reason_from_error(failure: BaseException) -> str:
    """For everybody to read: only our own messages are known to tell no secret."""
    if isinstance(failure, InexactKey):
        return str(failure)
    return failure.message if isinstance(failure, GatewayError) else type(failure).__name__
