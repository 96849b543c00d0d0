"""A short fault-injection run; `make faults` is the long one."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.run import Options, run

PLAN = ("kill_primary", "kill_holder", "stop_holder", "step_down", "cut_gateway", "roll_back")


@pytest.mark.timeout(400)
def test_no_change_is_lost_repeated_or_reordered_under_faults() -> None:
    """Archive and streams equal the writes, with many faults.

    Faults: primary and recorder killed, recorder suspended for longer than its lease, a gateway cut
    off, writes rolled back.
    """
    options = Options(seed=4, duration_s=0, rate=60, fault_every_s=1, lease_s=3, plan=PLAN)
    said: list[str] = []
    outcome = asyncio.run(run(options, said.append))
    story = "\n".join([*said, *outcome.lines])
    assert outcome.findings == [], story
    # Without events a run would have no findings.
    assert outcome.versions > 300, story
    assert outcome.deliveries > 2 * outcome.versions, story
    assert outcome.takeovers >= 2, story
    assert outcome.elections >= 2, story
