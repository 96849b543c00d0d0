"""Random mutations, direct writes, drafts and restores against a plain Python model."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.support import editing_steps as steps
from tests.support.editing import Shop
from tests.support.editing_run import Run
from tests.support.exhaustive import examples

pytestmark = pytest.mark.asyncio(loop_scope="module")

RANDOM = settings(
    max_examples=examples(6),
    deadline=None,
    # A run takes a second, and shrinking one takes hundreds: two dozen steps can be read.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("entity", ["Product", "Sample"])
@RANDOM
@given(run=steps.runs())
async def test_whatever_is_written_the_past_and_the_present_are_the_models(
    shop: Shop, entity: str, run: list[steps.Step]
) -> None:
    """Present, history, blame, diff and as-of agree with the model, and so does every answer on the
    way; where documents count their writes, and where they do not."""
    running = Run(shop, entity)
    try:
        await running.begin()
        for step in run:
            await running.take(step)
        await running.check()
    finally:
        # The next run has the same values of unique fields.
        running.collection.delete_many({})
