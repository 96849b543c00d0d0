"""Extent of a test: representatives in `make test`, all cases in `make test-all`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest
from hypothesis import settings

__all__ = ["examples", "exhaustive", "representatives", "scaled"]

T = TypeVar("T")

exhaustive = pytest.mark.exhaustive

_ALL = 100
"""Hypothesis' own default, which the profile `all` keeps."""


def representatives(values: Iterable[Any], *kept: Any) -> list[Any]:
    """Return all values as parameters of a test, each one that is not kept marked `exhaustive`.

    A tuple is one value for each of several parameters.
    """
    values = list(values)
    for each in kept:
        assert each in values, f"no value of the test: {each!r}, expected one of {values}"
    return [
        pytest.param(
            *(each if isinstance(each, tuple) else (each,)),
            marks=() if each in kept else exhaustive,
        )
        for each in values
    ]


def scaled(*, all: T, fast: T) -> T:
    """Return the value for the profile of Hypothesis that is loaded."""
    return all if settings().max_examples >= _ALL else fast


def examples(number: int) -> int:
    """Return how many examples to draw: that number in the profile `all`, fewer in `fast`.

    `REVSTREAM_FUZZ=100` draws a hundred times as many.
    """
    wanted = max(1, number * settings().max_examples // _ALL)
    return wanted * int(os.environ.get("REVSTREAM_FUZZ", "1"))
