"""A short run of the fuzzer; `make fuzz` is the long one."""

from __future__ import annotations

import pytest

from tests.fuzzing.run import Options, run


@pytest.mark.timeout(300)
def test_raw_documents_pass_through_the_whole_pipeline() -> None:
    """All results agree with the writes, after some 160 raw writes in every layout.

    Results: versions, events, responses, webhooks, copies, `verify`.
    """
    said: list[str] = []
    outcome = run(Options(seed=200, before=40, steps=60), said.append)
    assert outcome.findings == [], "\n".join(said)
    # Without events a run would have no findings.
    assert outcome.writes == 160
    assert outcome.versions > 80
    assert outcome.deliveries > 80
    assert outcome.posted > 3
    assert outcome.answers > 200
