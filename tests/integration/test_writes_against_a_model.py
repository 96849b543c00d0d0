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
    # A run takes a second, and shrinking takes hundreds: two dozen steps are readable.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("entity", ["Product", "Sample"])
@RANDOM
@given(run=steps.runs())
async def test_current_documents_and_history_agree_with_the_model(
    shop: Shop, entity: str, run: list[steps.Step]
) -> None:
    """Current documents, history, blame, diff, as-of reads and every result agree with the model,
    with and without a version field.
    """
    running = Run(shop, entity)
    try:
        await running.begin()
        for step in run:
            await running.take(step)
        await running.check()
    finally:
        # The next run has the same values of unique fields.
        running.collection.delete_many({})
