"""The writes as their writers know them: the truth with which archive and streams are compared.

A document is either one writer's own, or shared. Every write to an own document is conditional on
the state before it (`op`), so that the fate of unknown writes can be decided: once a later write
has succeeded, or the document was read with its `op`, exactly one sequence is possible. Writes to
shared documents increment `n`, which gives them their order.
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
        op: unique in the run; stored in the document's field `op`, except for a deletion.
        kind: INSERT, UPDATE, REPLACE or DELETE.
        content: BSON of the document after the write, without `_change`; None for a deletion, and
            if it was not read.
        by: the author that the write stored.
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
    """All writes of a run.

    Attributes:
        chains: own documents: their writes in order.
        shared: shared documents: acknowledged writes by `n`.
        shared_unknown: their writes of unknown fate, by op.
        never: ops that were refused or aborted: they must never be visible.
        doomed: acknowledged by a primary that was cut off: the database decides in the end.
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
        """Count an error of a writer; an error of the harness itself is raised."""
        self.errors[f"{type(error).__name__} {getattr(error, 'code', None) or ''}".strip()] += 1

    def next_op(self) -> int:
        self._last_op += 1
        return self._last_op


def content_of(document: Mapping[str, Any]) -> bytes:
    """Return the document's bytes without `_change`; nested raw values stay unchanged.

    Decoded documents give the same bytes as raw ones for the types that writers use.
    """
    kept = {name: value for name, value in document.items() if name != CHANGE_FIELD}
    return bytes(bson.encode(kept, codec_options=RAW))
