"""gql.context: what belongs to a request, and what to one response."""

from __future__ import annotations

import pytest

from gql.plans import Plan
from streams.errors import ResumeTokenInvalid
from tests.support.reads import DEPLOYMENT, Memory


def test_a_fresh_context_has_the_services_and_nothing_that_was_read(memory: Memory) -> None:
    """Nor the problems of another response."""
    context = memory.context()
    context.principal = "ann"
    fresh = context.fresh(Plan())
    assert fresh.current is context.current
    assert fresh.live is context.live
    assert fresh.principal == "ann"
    assert fresh.loads is not context.loads
    assert fresh.problems is not context.problems


def test_tokens_carry_the_deployments_tag_outside_and_not_inside(memory: Memory) -> None:
    """One of another deployment is refused."""
    context = memory.context()
    token = "66322EC000000001~"
    assert context.token_out(token) == f"{token}.{DEPLOYMENT}"
    assert context.token_in(context.token_out(token)) == token
    with pytest.raises(ResumeTokenInvalid):
        context.token_in(f"{token}.elsewhere")
