"""Conditions on the stored document, which are checked in the write itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from revstream.resolvers.values.output import describe_value

__all__ = ["WritePrecondition"]


@dataclass(frozen=True, slots=True)
class WritePrecondition:
    """Condition on the stored document that a write requires.

    Attributes:
        path: API path of the field.
        problem: message if the condition does not hold.
        query: the condition as a MongoDB query.
        stored: stored path that must have a value, if the condition is that one.
        value: the value that it must have, if only one is right; the problem names the other one
            as `{found}`.
    """

    path: str
    problem: str
    query: Mapping[str, Any]
    stored: tuple[str, ...] = ()
    value: str | None = None

    def explain(self, document: Mapping[str, Any]) -> str:
        """Return the message for a document that does not satisfy the condition."""
        if self.value is None:
            return self.problem
        found: Any = document
        for name in self.stored:
            found = found.get(name) if isinstance(found, Mapping) else None
        return self.problem.replace("{found}", describe_value(found))
