"""Errors for reads that the archive cannot answer yet."""

from __future__ import annotations

from revstream.streams.coordination.checkpoint import Checkpoint
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind

__all__ = ["archive_behind_error", "snapshot_unread_error"]


def archive_behind_error(collection: str, known: str, token: str, limit_s: float) -> ArchiveBehind:
    """Return the error for a read whose token is not archived within `limit_s`."""
    wanted_at = resume_tokens.cluster_time(token).as_datetime()
    if not known:
        return ArchiveBehind(
            f"archive of {collection}: empty, expected a recorder; start `revstream serve` or "
            "`revstream record`",
            collection=collection,
        )
    reached_at = resume_tokens.cluster_time(known).as_datetime()
    lag_s = max(0.0, (wanted_at - reached_at).total_seconds())
    return ArchiveBehind(
        f"archive of {collection}: recorded up to {reached_at:%F %T}Z after a wait of "
        f"{limit_s:g} s, expected {wanted_at:%F %T}Z; try again, or check Query.streams",
        collection=collection,
        lagSeconds=lag_s,
    )


def snapshot_unread_error(
    collection: str, checkpoint: Checkpoint | None, limit_s: float
) -> ArchiveBehind:
    """Return the error for a read that needs the complete initial snapshot."""
    read, total = 0, 0
    if checkpoint is not None:
        read, total = checkpoint.baseline.read, checkpoint.baseline.total
    return ArchiveBehind(
        f"archive of {collection}: {read:,} of about {total:,} existing documents read after a "
        f"wait of {limit_s:g} s, expected all; try again, or check Query.streams",
        collection=collection,
    )
