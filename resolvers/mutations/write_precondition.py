"""Conditions on the stored document, which are checked in the write itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["WritePrecondition"]


@dataclass(frozen=True, slots=True)
class WritePrecondition:
    """Condition on the stored document that a write requires.

    Attributes:
        path: API path of the field.
        problem: message if the condition does not hold.
        query: the condition as a MongoDB query.
        stored: stored path that must have a value, if the condition is that one.
        value: the value that it must have, if only one is right.
    """

    path: str
    problem: str
    query: Mapping[str, Any]
    stored: tuple[str, ...] = ()
    value: str | None = None
