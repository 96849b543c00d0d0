"""The checkpoint as a value."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from revstream.streams.coordination.checkpoint import Baseline, Checkpoint


def test_a_checkpoint_cannot_be_changed() -> None:
    """What was handed to the writer stays what it was."""
    with pytest.raises(FrozenInstanceError):
        Checkpoint("A", "A").token = "B"  # type: ignore[misc]


def test_a_new_checkpoint_has_read_nothing() -> None:
    """The first reading is neither started nor done."""
    assert Checkpoint("A", "A").baseline == Baseline(
        done=False, started=False, after=None, documents=0
    )
