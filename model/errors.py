"""Errors of a schema.graphql: one per mistake, all of them together.

`model.compiler.loader.read_model` raises `ModelErrors`. Its text has one line per mistake:

    schema.graphql:12: Product.stock: "Itn": unknown type; mend: did you mean "Int"?

Guarantees: every error has the location (file, line, column, type, field), the expected and the
actual value, and a way to mend it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["ModelError", "ModelErrors"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelError:
    """One mistake. Lines and columns count from 1.

    `type` and `field` are None for a mistake without them, as in the syntax. For an enum, `type` is
    the enum's name and `field` its value's.
    """

    filename: str
    line: int
    column: int
    type: str | None
    field: str | None
    problem: str
    mend: str

    @property
    def subject(self) -> str | None:
        """`Product.supplier`, `Product`, or None."""
        if self.type is None or self.field is None:
            return self.type
        return f"{self.type}.{self.field}"

    def __str__(self) -> str:
        subject = f" {self.subject}:" if self.subject else ""
        return f"{self.filename}:{self.line}:{subject} {self.problem}; mend: {self.mend}"


class ModelErrors(Exception):
    """Every mistake of one schema.graphql, in the order of its lines; never empty."""

    def __init__(self, errors: Iterable[ModelError]) -> None:
        # A shared field of an interface is checked with each member. sorted() is stable: two
        # mistakes at one place stay in the order in which they were found.
        self.errors: tuple[ModelError, ...] = tuple(
            sorted(dict.fromkeys(errors), key=lambda each: (each.line, each.column))
        )
        super().__init__(self.errors)

    def __str__(self) -> str:
        count = f"{len(self.errors)} errors" if len(self.errors) > 1 else "1 error"
        return "\n".join([f"{self.errors[0].filename} has {count}:", *map(str, self.errors)])
