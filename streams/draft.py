"""What is to be written to the archive at once."""

from __future__ import annotations

from typing import Any

from streams.archive import Until, closing
from streams.documents import Document
from streams.events import identity
from streams.versions import Last

__all__ = ["Draft"]


class Draft:
    """Records to be inserted together, in stream order, and the stored versions that they close."""

    def __init__(self) -> None:
        self.records: list[Document] = []
        self.untils: list[Until] = []
        self._open: dict[Any, Document] = {}

    def add(self, record: Document, last: Last | None) -> None:
        key = identity(record["doc"])
        earlier = self._open.get(key)
        if earlier is not None:
            earlier |= closing(earlier["at"], record["at"], record["wall"])
        elif last is not None:
            self.untils.append((last.token, record["at"], record["wall"]))
        self._open[key] = record
        self.records.append(record)
