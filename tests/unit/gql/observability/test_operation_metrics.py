"""Operation metrics: durations, as in the metrics library."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Histogram

from revstream.gql.observability.operation_metrics import Operations

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

TOOK = st.lists(
    st.tuples(st.sampled_from(["query", "mutation"]), st.sampled_from(BOUNDS) | st.floats(0, 100))
)


@given(took=TOOK)
def test_durations_equal_those_of_the_library(took: list[tuple[str, float]]) -> None:
    """Buckets, sums and counts are the same."""
    operations = Operations()
    expected = Histogram(
        "revstream_operation_seconds",
        "Duration of queries and mutations.",
        ["kind"],
        buckets=BOUNDS,
        registry=None,
    )
    for kind in ("query", "mutation"):
        expected.labels(kind)
    for kind, seconds in took:
        operations.took(kind, seconds)
        expected.labels(kind).observe(seconds)
    # These have no duration.
    operations.took("subscription", 1.0)
    [theirs], ours = expected.collect(), operations.durations()
    assert (ours.name, ours.documentation, ours.type) == (
        *(theirs.name, theirs.documentation, theirs.type),
    )
    assert samples(ours) == samples(theirs)


def samples(metric: Any) -> dict[Any, float]:
    """Return the samples, without the time of creation."""
    return {
        (each.name, *sorted(each.labels.items())): each.value
        for each in metric.samples
        if not each.name.endswith("_created")
    }
