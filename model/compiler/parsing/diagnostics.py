"""Diagnostics: collect the mistakes of one schema.graphql, so that all are reported together.

A check reports to a `DeclarationLocation`, which knows the type and the field and takes the line
from the syntax node of the mistake.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphql.language import Node, Source, SourceLocation, get_location

from revstream.model.errors import ModelError, ModelErrors

__all__ = ["DeclarationLocation", "Report", "shortened", "written"]

# Characters of a value that a message repeats; enough to find it in the line.
_LONGEST = 60


def written(node: Node) -> str:
    """The text that a node was read from, on one line and shortened."""
    return shortened(node.loc.source.body[node.loc.start : node.loc.end]) if node.loc else ""


def shortened(text: str) -> str:
    """Return a text on one line, cut if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


class Report:
    """The mistakes found so far in one file."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._errors: list[ModelError] = []

    @property
    def start(self) -> SourceLocation:
        """The location of mistakes that concern the whole file."""
        return SourceLocation(1, 1)

    def place(self, type: str | None = None) -> DeclarationLocation:
        """The file as a whole, or one of its types."""
        return DeclarationLocation(report=self, type=type)

    def add(
        self,
        location: SourceLocation,
        problem: str,
        mend: str,
        *,
        type: str | None = None,
        field: str | None = None,
    ) -> None:
        """Take down one mistake."""
        self._errors.append(
            ModelError(
                filename=self.source.name,
                line=location.line,
                column=location.column,
                type=type,
                field=field,
                problem=problem,
                mend=mend,
            )
        )

    def raise_if_any(self) -> None:
        """Raise the mistakes that were reported.

        Raises:
            ModelErrors: There is at least one.
        """
        if self._errors:
            raise self.failure()

    def failure(self) -> ModelErrors:
        """Return the exception for the mistakes that were reported; there must be one at least."""
        return ModelErrors(self._errors)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclarationLocation:
    """The type and field that a mistake is about."""

    report: Report
    type: str | None = None
    field: str | None = None

    def for_field(self, field: str) -> DeclarationLocation:
        """Return the location of one field, or enum value, of this type."""
        return replace(self, field=field)

    def error(self, node: Node, problem: str, mend: str) -> None:
        """Take down a mistake that stands where `node` begins."""
        offset = node.loc.start if node.loc else 0
        location = get_location(self.report.source, offset)
        self.report.add(location, problem, mend, type=self.type, field=self.field)
