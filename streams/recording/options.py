"""Options of a recorder."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["RecorderOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderOptions:
    """Sizes and intervals of a recorder.

    Attributes:
        cache_bytes: Size of the cache of last versions.
        chunk_documents: Documents per chunk of the initial snapshot.
        idle_save_s: Seconds between checkpoints of a quiet stream, so that its position stays
            within
            the oplog.
    """

    cache_bytes: int = 64 * 1024 * 1024
    chunk_documents: int = 2000
    idle_save_s: float = 5.0
