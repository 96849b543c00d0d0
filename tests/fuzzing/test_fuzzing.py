"""A short run of the fuzzer; `make fuzz` is the long one."""

from __future__ import annotations

import pytest

from tests.fuzzing.run import Options, run


@pytest.mark.timeout(300)
def test_no_document_is_lost_shown_wrongly_or_harms_another() -> None:
    """Of some 160 raw writes in every layout: states, events, answers, posts, copies, verify."""
    said: list[str] = []
    outcome = run(Options(seed=200, before=40, steps=60), said.append)
    assert outcome.findings == [], "\n".join(said)
    # It would find nothing where nothing happened.
    assert outcome.writes == 160
    assert outcome.versions > 80
    assert outcome.deliveries > 80
    assert outcome.posted > 3
    assert outcome.answers > 200
