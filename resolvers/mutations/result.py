"""What became of a write: it was made, or something stood in its way. The latter are data to the
one who asked, not errors of the API, and raised only on the way there.

WriteRefused
├── VersionConflict    the document is at another version than the one expected
├── DocumentNotFound   there is no such document, version or draft
├── AlreadyExists      another document has that value of a unique field
├── StaleWrite         the fencing token is at or below the one applied already
└── InvalidDocument    it would not fit the model, or is not possible; `path` says where
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

__all__ = [
    "AlreadyExists",
    "Author",
    "DocumentNotFound",
    "InvalidDocument",
    "StaleWrite",
    "VersionConflict",
    "WriteRefused",
    "Written",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Who writes, why, and under which key the write may be repeated.

    Args:
        owner: the caller to whom what is stored counts: others of the same name may have signed in
            otherwise. None for all anonymous callers together.
        repeat: the client's idempotency key, made unique to this mutation of the request.
        fingerprint: of the mutation and its arguments; the same key with another is refused.
    """

    by: str | None = None
    owner: str | None = None
    why: str | None = None
    repeat: str | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A write that was made.

    Attributes:
        at: its cluster time, that of its change event.
        change: the `id` of its `_change`.
        document: as it left it; None where it deleted it.
        number: of the version that it made, where that is known before it is archived.
    """

    key: Any
    at: Timestamp
    change: str
    document: RawBSONDocument | None
    number: int | None = None


class WriteRefused(Exception):
    """Nothing was written."""

    type_name: ClassVar[str]

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class VersionConflict(WriteRefused):
    type_name = "VersionConflict"

    def __init__(self, message: str, *, expected: int, actual: int, key: Any) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual
        self.key = key


class DocumentNotFound(WriteRefused):
    type_name = "DocumentNotFound"


class AlreadyExists(WriteRefused):
    type_name = "AlreadyExists"

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class StaleWrite(WriteRefused):
    type_name = "StaleWrite"

    def __init__(self, message: str, *, fence: int, applied: int) -> None:
        super().__init__(message)
        self.fence = fence
        self.applied = applied


class InvalidDocument(WriteRefused):
    type_name = "InvalidDocument"

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path
