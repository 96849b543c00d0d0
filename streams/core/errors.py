"""Gateway errors: those that clients receive, and those that only revstream itself handles.

GatewayError
├── ResumeTokenInvalid  RESUME_TOKEN_INVALID  does not decode, or is of another deployment
├── HistoryLost         HISTORY_LOST          the time is before what archive and oplog hold
├── ArchiveBehind       ARCHIVE_BEHIND        the archive did not reach the time within its limit
├── SlowConsumer        SLOW_CONSUMER         backlog full; the client resumes from its last token
├── TimeLimit           TIMEOUT               a read took longer than its limit
├── Unavailable         UNAVAILABLE           MongoDB cannot be reached, or refuses for now
│   └── ConnectionLost                        the server closed an open connection
├── Unsuitable          UNAVAILABLE           MongoDB is reached but cannot serve: standalone, too
│                                             old, not permitted
├── ParallelLists       DOCUMENT_MISFIT       MongoDB cannot sort by lists in several fields
└── InternalError       INTERNAL              masked in the response
    ├── DuplicateKey                          an insert met a document with the same key
    ├── LeaseLost                             a newer fencing token is stored: stop, never retry
    ├── DamagedArchive                        a version cannot be read from what is stored of it
    ├── ReceiverAway                          a sink's receiver accepts nothing; the sink pauses
    └── DatabaseError                         any other refusal of the server; `number` is its code
        └── NotWritable UNAVAILABLE           a collection that cannot be written, such as a view

Clients compare the codes; `gql/observability/error_table.py` maps each to its log level. Messages
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
    """Error with a stable code, and with facts that clients may see."""

    code: ClassVar[str] = "INTERNAL"
    # This error ends a subscription, and a client that subscribes again can continue.
    resubscribe: bool = False

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def copy(self) -> Self:
        """Return a copy, so that facts added for one client do not reach another."""
        made = type(self).__new__(type(self), *self.args)
        made.__dict__ |= self.__dict__ | {"facts": dict(self.facts)}
        return made

    @property
    def extensions(self) -> dict[str, Any]:
        """Return the code and the facts, which graphql-core copies into the response."""
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
    """MongoDB cannot sort a document that holds lists in several fields of the order."""

    code = "DOCUMENT_MISFIT"


class InternalError(GatewayError):
    code = "INTERNAL"


class DuplicateKey(InternalError):
    """An insert or update met a document with the same unique key.

    Attributes:
        fields: Dotted stored names of the unique index; () where the server does not name it.
        places: Indexes of the refused writes, as in `DatabaseError`.
    """

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
    """Unexpected refusal by the server.

    Attributes:
        number: Error code of the server; None where the error has none.
        resumable: Whether a change stream that this error ended can be opened again.
        places: Indexes of the refused writes in a bulk write.
    """

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
    """MongoDB does not write to this kind of collection: a view, or a capped collection."""

    code = "UNAVAILABLE"


class InexactKey(ValueError):
    """An `_id` that Python's values cannot hold exactly.

    Under the inexact `_id` the document would get the history of another document.
    """


def is_fault_of_document(failure: Exception) -> bool:
    """Return whether the content of one document can be the cause of an error.

    Errors of MongoDB, of a lease and of this machine are not.
    """
    ours = isinstance(failure, GatewayError) and not isinstance(failure, DamagedArchive)
    return not ours and not isinstance(failure, OSError | MemoryError)


def reason_from_error(failure: BaseException) -> str:
    """Return an error's text for clients and logs; only our own messages are known to hold no
    secret.
    """
    if isinstance(failure, InexactKey):
        return str(failure)
    return failure.message if isinstance(failure, GatewayError) else type(failure).__name__
