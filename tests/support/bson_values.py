"""Hypothesis strategies for documents with few names and values, so that two often have some in
common.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bson import Decimal128, Int64, ObjectId
from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "0", "1", "a.b", "", "$x", "é"])
SCALARS = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        Int64(1),
        1.0,
        0.5,
        float("nan"),
        float("inf"),
        "",
        "1",
        b"1",
        Decimal128("1"),
        Decimal128("1.0"),
        Decimal128("NaN"),
        datetime(2024, 1, 1, tzinfo=UTC),
        ObjectId("0123456789abcdef01234567"),
    ]
)


def _containers(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(NAMES, values, max_size=3) | st.lists(values, max_size=3)


VALUES = st.recursive(SCALARS, _containers, max_leaves=8)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)
