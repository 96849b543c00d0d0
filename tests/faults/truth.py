"""What was written, as those who wrote it know it: the truth that archive and streams are compared
with.

A document is either one writer's own, or shared. Every write to an own document asks for the state
that it follows (`op`), so that writes of unknown fate can be told: once a later one has succeeded,
or the document was read with its `op`, exactly one story is left. Writes to shared documents count
`n` up, which gives them their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.errors import PyMongoError

__all__ = ["CHANGE_FIELD", "RAW", "Place", "Truth", "Write", "content_of"]

CHANGE_FIELD = "_change"
RAW = CodecOptions(document_class=RawBSONDocument)
Place = tuple[str, str]
"""A collection and an `_id`."""


@dataclass(slots=True)
class Write:
    """One write of one document.

    Attributes:
        op: unique in the run; stands in the document's field `op` afterwards, but for a deletion.
        kind: INSERT, UPDATE, REPLACE or DELETE.
        content: BSON of the document afterwards, without `_change`; None for a deletion, and where
            nobody has seen it.
        by: who, where the write said so.
        transaction: number of the transaction, if any.
    """

    op: int
    place: Place
    kind: str
    content: bytes | None = None
    by: str | None = None
    transaction: int | None = None


@dataclass
class Truth:
    """Attributes:
    chains: own documents: their writes in order.
    shared: shared documents: acknowledged writes by `n`.
    shared_unknown: their writes of unknown fate, by op.
    never: ops that were refused or undone: nobody may ever see them.
    doomed: acknowledged by a primary that was cut off: there or not, as the database says in the
        end.
    transactions: ops of committed transactions, in order, by number.
    """

    chains: dict[Place, list[Write]] = field(default_factory=dict)
    shared: dict[Place, dict[int, Write]] = field(default_factory=dict)
    shared_unknown: dict[Place, dict[int, Write]] = field(default_factory=dict)
    never: set[int] = field(default_factory=set)
    doomed: dict[Place, Write] = field(default_factory=dict)
    transactions: dict[int, list[tuple[Place, int]]] = field(default_factory=dict)
    acknowledged: int = 0
    unknown: int = 0
    unknown_applied: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    _last_op: int = 0

    def met(self, error: PyMongoError) -> None:
        """Count what a writer was told; a fault of the harness itself shows here."""
        self.errors[f"{type(error).__name__} {getattr(error, 'code', None) or ''}".strip()] += 1

    def next_op(self) -> int:
        self._last_op += 1
        return self._last_op


def content_of(document: Mapping[str, Any]) -> bytes:
    """The document's bytes without `_change`; what is below a raw one stays as it was.

    Decoded ones give the same bytes as raw ones: the types that writers use survive that.
    """
    kept = {name: value for name, value in document.items() if name != CHANGE_FIELD}
    return bytes(bson.encode(kept, codec_options=RAW))
