"""A short run of the harness; `make faults` is the long one."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults.run import Options, run

PLAN = ("kill_primary", "kill_holder", "stop_holder", "step_down", "cut_gateway", "roll_back")


@pytest.mark.timeout(400)
def test_nothing_is_lost_told_twice_or_out_of_order_while_everything_breaks() -> None:
    """Primary and recorder killed, recorder stopped for longer than its lease, a gateway cut off,
    writes rolled back: archive and every stream are what was written."""
    options = Options(seed=4, duration_s=0, rate=60, fault_every_s=1, lease_s=3, plan=PLAN)
    said: list[str] = []
    outcome = asyncio.run(run(options, said.append))
    story = "\n".join([*said, *outcome.lines])
    assert outcome.findings == [], story
    # It would find nothing where nothing happened.
    assert outcome.versions > 300, story
    assert outcome.deliveries > 2 * outcome.versions, story
    assert outcome.takeovers >= 2, story
    assert outcome.elections >= 2, story
