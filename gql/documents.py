"""Keep the documents that clients send again and again, parsed and validated: most of what a small
query costs.

Guarantees: only documents that were found valid are kept; no more of them than so many, and so many
characters in all. One `Documents` serves one schema, whose rules it was validated by.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from graphql import DocumentNode
from strawberry.extensions import SchemaExtension

__all__ = ["Documents", "KnownDocuments"]


class Documents:
    """By their text; the one that was not asked for longest goes first.

    Args:
        most: how many.
        most_characters: of all texts together; a syntax tree takes some fifty times as many bytes.
    """

    def __init__(self, *, most: int = 500, most_characters: int = 500_000) -> None:
        self._most = most
        self._most_characters = most_characters
        self._kept: OrderedDict[str, DocumentNode] = OrderedDict()
        self._characters = 0

    def get(self, text: str) -> DocumentNode | None:
        found = self._kept.get(text)
        if found is not None:
            self._kept.move_to_end(text)
        return found

    def keep(self, text: str, document: DocumentNode) -> None:
        """A document that was found valid."""
        if text in self._kept or len(text) > self._most_characters // 4:
            return
        self._kept[text] = document
        self._characters += len(text)
        while len(self._kept) > self._most or self._characters > self._most_characters:
            gone, _ = self._kept.popitem(last=False)
            self._characters -= len(gone)

    def __len__(self) -> int:
        return len(self._kept)


class KnownDocuments(SchemaExtension):
    """Spares an operation the parsing and validation of a document that is known."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._known = False

    def on_parse(self) -> Iterator[None]:
        context = self.execution_context
        if context.query is not None:
            document = self._documents.get(context.query)
            if document is not None:
                self._known = True
                context.graphql_document = document
        yield

    def on_validate(self) -> Iterator[None]:
        context = self.execution_context
        if self._known:
            # Not None: validation has been done.
            context.pre_execution_errors = []
        yield
        document = context.graphql_document
        if not self._known and document is not None and not context.pre_execution_errors:
            self._documents.keep(context.query or "", document)
