"""Response size: an estimate of the JSON's length, without writing it."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from revstream.gql.engine.limits.response_size import check_response
from revstream.resolvers.errors import LimitExceeded
from tests.support.exhaustive import examples

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=40)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=50,
)


@given(data=DATA)
@settings(max_examples=examples(200), deadline=None)
def test_a_smaller_response_passes_and_a_larger_one_does_not(data: Any) -> None:
    """The estimate is within a small factor."""
    size = len(orjson.dumps(data))
    check_response(data, 3 * size + 10)
    if size > 100:
        with pytest.raises(LimitExceeded):
            check_response(data, size // 10)


def test_a_value_under_many_aliases_counts_each_time() -> None:
    """It is one object in memory; the estimate takes no longer than a look at each."""
    text = "x" * 16_000_000
    data = {"thing": {f"a{number}": text for number in range(99)}}
    began = time.process_time()
    with pytest.raises(LimitExceeded) as refused:
        check_response(data, 20_000_000)
    assert time.process_time() - began < 0.1
    assert refused.value.facts["limit"] == "max_response_bytes"
    check_response(data, 0)
    check_response({"thing": {"a0": text}}, 20_000_000)
