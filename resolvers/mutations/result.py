"""Results of writes: a write that was made, or the reason for its refusal.

Refusals are raised as exceptions internally and returned to clients as data, not as errors.

WriteRefused
├── VersionConflict    the document is at another version than expected
├── DocumentNotFound   no such document, version or draft
├── AlreadyExists      another document has this value of a unique field
├── StaleWrite         the fence value is at or below the stored one
└── InvalidDocument    the document does not match the model, or is impossible; `path` says where
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
    """Author and reason of a write, with its idempotency key.

    Args:
        by: name of the author.
        owner: the caller to whom stored data counts, since the same name can exist in several
            sign-in methods; None for all anonymous callers together.
        why: the reason.
        traceparent: the trace of the request.
        repeat: the client's idempotency key, made unique to this mutation of the request.
        fingerprint: hash of the mutation and its arguments; another one under the same key is
            refused.
    """

    by: str | None = None
    owner: str | None = None
    why: str | None = None
    traceparent: str | None = None
    repeat: str | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Write that was made.

    Attributes:
        at: its cluster time, which is that of its change event.
        change: the `id` of its `_change`.
        document: the document after the write; None after a deletion.
        number: number of the new version, if known before it is archived.
    """

    key: Any
    at: Timestamp
    change: str
    document: RawBSONDocument | None
    number: int | None = None


class WriteRefused(Exception):
    """Refused write; nothing was written."""

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
