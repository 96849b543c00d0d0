"""Current documents that are shown and nothing else, with what a response has of each, which is
made for all that are read together."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from resolvers.own_writes import Seen
from resolvers.rows import Rows
from streams.documents import Document

__all__ = ["Asked", "Show", "Shown"]


class Show(Protocol):
    """What responses have of documents that are shown, and nothing else.

    Attributes:
        name: the same of all that make the same.
        version: it takes the numbers of their versions.
    """

    @property
    def name(self) -> Hashable: ...

    @property
    def version(self) -> bool: ...

    def show(self, documents: Sequence[Document], numbers: Sequence[int | None]) -> Sequence[Any]:
        """One for each, in their order; None of who takes a closer look.

        Args:
            numbers: None of those that are not known, and none at all where they are not taken.
        """


Shown: TypeAlias = "tuple[Document, Any, Seen]"
"""A document; what a response has of it: None where that takes a closer look; and what was `seen`
before it was read."""


@dataclass(slots=True)
class Asked:
    """Documents that are being read to be shown.

    Args:
        reading: of whoever they are there for. rows: of these, those of the caller.
    """

    reading: asyncio.Future[Sequence[Shown | None]]
    rows: Rows

    def shown(self) -> list[Shown | None]:
        """Once they are read: one for each id, None where nothing is there for the caller. Raises
        what reading has raised."""
        # Judged here: whoever asks for the same fields shares the read, whatever he may see.
        allow = self.rows.allow
        found = self.reading.result()
        return [each if each is not None and allow(each[0]) else None for each in found]
