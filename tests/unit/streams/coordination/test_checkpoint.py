"""Checkpoints as values."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from revstream.streams.coordination.checkpoint import Baseline, Checkpoint


def test_a_checkpoint_cannot_be_changed() -> None:
    """A checkpoint handed to the writer stays unchanged."""
    with pytest.raises(FrozenInstanceError):
        Checkpoint("A", "A").token = "B"  # type: ignore[misc]


def test_a_new_checkpoint_has_no_snapshot() -> None:
    """The initial snapshot is neither started nor done."""
    assert Checkpoint("A", "A").baseline == Baseline(
        done=False, started=False, after=None, documents=0
    )
