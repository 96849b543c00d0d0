"""Current documents rendered for the response without an object per document.

One generated function renders all documents of a page. A document with an unusual value becomes a
record and is rendered by `gql.engine.execution.compiled_object`, which may return FALLBACK; then
the executor resolves all documents, from the data that was read here.

Source: docs/decisions/0027-compiled-operations.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from graphql import GraphQLObjectType, get_nullable_type, is_non_null_type

from revstream.gql.engine.definitions.arguments import compile_arguments
from revstream.gql.engine.definitions.code_generator import RowGenerator
from revstream.gql.engine.definitions.field import (
    CompleteValue,
    IdOnlyField,
    Read,
    Resolve,
    strawberry_field,
)
from revstream.gql.engine.definitions.object_type import Link, ObjectTypeInfo
from revstream.gql.engine.definitions.value_tests import FALLBACK, NAMES, usual_value_code
from revstream.gql.engine.execution.compiled_object import Make, compile_object, give_up
from revstream.gql.engine.execution.linked_documents import linked_ids, render_list
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.request.context import RequestContext
from revstream.gql.engine.request.prefetch import id_only_reads
from revstream.gql.engine.request.source import CurrentDocument
from revstream.gql.observability.fallback_metrics import FallbackCounter
from revstream.model.definition import Scalar
from revstream.resolvers.values.dates import date_texts
from revstream.resolvers.values.json_value import REFUSED
from revstream.resolvers.values.points import point_to_api
from revstream.streams.changefeed.event import PLAIN_KEY_TYPES
from revstream.streams.core.errors import GatewayError
from revstream.streams.mongo.driver.codecs import Document

__all__ = [
    "NO_RELATED_DATA",
    "CompiledDocuments",
    "RelatedData",
    "compile_documents",
    "field_growth",
]

_DEPTH = 6

# Bytes of a control character in JSON; of a value that is not read, as a type name, with its
# punctuation; of the shortest document.
_ESCAPED = 6.0
_SHORT_VALUE = 60
_SHORTEST = 14

_Unusual: TypeAlias = "Callable[[Document, Any], Any]"
"""(document, its version number) -> its part of the response, or FALLBACK."""
_Rows: TypeAlias = "Callable[[Sequence[Document], RelatedData, _Unusual], Any]"
"""(documents, related data, rendering of an unusual one) -> their parts of the response, or
FALLBACK."""


@dataclass(slots=True)
class RelatedData:
    """Data that was read with documents.

    Attributes:
        numbers: version numbers, in the documents' order; None for unknown ones; empty if not
            selected.
        followed: data of each reference, in the order of the selected references.
        id_only: for each field that was read ahead, its part of the response per document, or
            FALLBACK.
    """

    numbers: Sequence[int | None] = ()
    followed: list[_Followed] = field(default_factory=list)
    id_only: Sequence[Sequence[Any]] = ()


@dataclass(frozen=True, slots=True)
class _Followed:
    """Documents that one reference leads to, by `identity` of the id.

    Attributes:
        found: the documents; None if there is none.
        rendered: their parts of the response, None if there is none; empty if one of them needs
            the fallback.
        related: data that was read with them.
    """

    found: Mapping[Any, Document | None]
    rendered: Mapping[Any, Any]
    related: RelatedData


NO_RELATED_DATA = RelatedData()


class CompiledDocuments:
    """Compiled selection of a type of current documents.

    Args:
        fields: the stored fields that have to be read.
        make: renders one record.
        fallbacks: counts the exceptions of generated code.

    Attributes:
        growth: maximum bytes of the response per byte of a document; None if it shows values of
            other documents.
    """

    def __init__(
        self,
        shape: ObjectTypeInfo,
        fields: frozenset[str],
        make: Make,
        fallbacks: FallbackCounter,
    ) -> None:
        self.shape = shape
        self.fields = fields
        self.version = False
        self.growth: float | None = None
        self.links: list[tuple[Link, CompiledDocuments]] = []
        self.id_only_fields: list[IdOnlyField] = []
        # Renders the value of each of `id_only_fields`.
        self.ready: list[Make] = []
        self._make = make
        self._fallbacks = fallbacks
        self._rows: _Rows

    async def related(self, context: RequestContext, documents: Sequence[Document]) -> RelatedData:
        """Read related data: one read for each reference, and one for the version numbers.

        A read that fails is left to the executor, which reports the error.
        """
        if not documents or not (self.version or self.links or self.id_only_fields):
            return NO_RELATED_DATA
        related = RelatedData()
        if self.version:
            related.numbers = context.loads.known_numbers(self.shape.entity, documents)
        reads: list[Any] = [self._follow(context, documents, *each) for each in self.links]
        if None in related.numbers:
            reads.append(self._number(context, documents, related))
        if self.id_only_fields:
            reads += id_only_reads(context, documents, self.id_only_fields)
        if not reads:
            return related
        found = [await reads[0]] if len(reads) == 1 else await asyncio.gather(*reads)
        related.followed = found[: len(self.links)]
        return related

    async def _number(
        self, context: RequestContext, documents: Sequence[Document], related: RelatedData
    ) -> None:
        with suppress(GatewayError):
            related.numbers = await context.loads.numbers(self.shape.entity, documents)

    async def _follow(
        self,
        context: RequestContext,
        documents: Sequence[Document],
        link: Link,
        target: CompiledDocuments,
    ) -> _Followed:
        found: dict[Any, Document | None] = {}
        with suppress(GatewayError):
            if wanted := linked_ids(link, documents):
                entity, ids, fields = target.shape.entity, list(wanted.values()), target.fields
                read = await context.services.current.by_ids(entity, ids, fields, for_output=True)
                found = dict(zip(wanted, read, strict=True))
        there = {name: each for name, each in found.items() if each is not None}
        related = await target.related(context, list(there.values()))
        try:
            made = target.render(list(there.values()), related, context)
        except Exception as exc:
            # Raised by generated code, and not by the read: the documents are there.
            self._fallbacks.count_exception("query", exc)
            made = FALLBACK
        return _Followed(
            found,
            {} if made is FALLBACK else dict.fromkeys(found) | dict(zip(there, made, strict=True)),
            related,
        )

    def render(
        self, documents: Sequence[Document], related: RelatedData, context: RequestContext
    ) -> Any:
        """Return the documents' parts of the response, in their order, or FALLBACK."""
        if not documents:
            return []
        remembered = False

        if self.id_only_fields:
            shown = [CurrentDocument(self.shape, each) for each in documents]
            related = replace(
                related,
                id_only=[[ready(each, context) for each in shown] for ready in self.ready],
            )

        def unusual(document: Document, number: Any) -> Any:
            nonlocal remembered
            if not remembered:
                remembered = True
                self._remember(related, context)
            return self._make(CurrentDocument(self.shape, document, number), context)

        return self._rows(documents, related, unusual)

    def records(
        self, documents: Sequence[Document], related: RelatedData, context: RequestContext
    ) -> list[CurrentDocument]:
        """Return records for the executor, with the related data in the context."""
        self._remember(related, context)
        numbers = related.numbers or [None] * len(documents)
        return [
            CurrentDocument(self.shape, document, number)
            for document, number in zip(documents, numbers, strict=True)
        ]

    def _remember(self, related: RelatedData, context: RequestContext) -> None:
        """Store referenced documents in the context, where the fields find them."""
        for (_, target), each in zip(self.links, related.followed, strict=False):
            known = context.known.setdefault((target.shape.name, target.fields), {})
            there = {name: one for name, one in each.found.items() if one is not None}
            records = target.records(list(there.values()), each.related, context)
            known |= dict.fromkeys(each.found) | dict(zip(there, records, strict=True))


def field_growth(name: str) -> float:
    """Return the maximum bytes of the response per byte of a document that a field name adds."""
    return _ESCAPED + (len(name) + _SHORT_VALUE) / _SHORTEST


def compile_documents(
    executor: PlannedExecution, shape: ObjectTypeInfo, details: Any, depth: int = 0
) -> CompiledDocuments | None:
    """Compile the selection of a type of current documents.

    Args:
        details: its collected selections.

    Returns:
        None if a field cannot be compiled.
    """
    selections = executor.plan.selections
    type_ = executor.schema.type_map[shape.name]
    if not isinstance(type_, GraphQLObjectType):
        return None  # The fields depend on the type of each document.
    make = compile_object(executor, type_, details) or give_up
    if selections is None or depth > _DEPTH:
        return None
    nodes = [each.node for each in details]
    stored = selections.stored(nodes, shape, shape.name)
    rendering = CompiledDocuments(shape, stored, make, executor.fallbacks)
    code = _DocumentsCode(executor, rendering, depth)
    for name, found in executor.selected_fields(type_, details).items():
        if not code.add(name, type_, found):
            return None
    rendering._rows = code.function()
    if not (rendering.links or rendering.id_only_fields):
        rendering.growth = code.growth
    return rendering


class _DocumentsCode(RowGenerator):
    """Function that renders the documents of a page."""

    def __init__(
        self, executor: PlannedExecution, rendering: CompiledDocuments, depth: int
    ) -> None:
        names = {**NAMES, "PLAIN_KEY_TYPES": PLAIN_KEY_TYPES, "date_texts": date_texts}
        super().__init__(names, {"document": "documents"})
        self._executor = executor
        self._rendering = rendering
        self._depth = depth
        self.growth = 0.0

    def add(self, name: str, parent: GraphQLObjectType, details: Any) -> bool:
        """Add a field, and return whether it can be compiled."""
        field_name = details[0].node.name.value
        self.growth += field_growth(name)
        if field_name == "__typename":
            self.item(name, repr(parent.name))
            return True
        definition = self._executor.schema.get_field(parent, field_name)
        made = strawberry_field(definition)
        if definition is None:
            return False
        required = is_non_null_type(definition.type)
        if isinstance(made, Read) and made.stored is not None:
            if made.stored.type is Scalar.POINT:
                return self._add_point(name, made.stored.stored, required, definition, details)
            return self._add_stored(name, made, required)
        shape = self._rendering.shape
        link = shape.links.get(field_name) or shape.list_links.get(field_name)
        if link is not None and field_name not in shape.guarded:
            return self._add_link(name, link, required, details)
        if not isinstance(made, Resolve) or made.ready is None:
            return False
        if field_name == "version":
            self._rendering.version = True
            self._columns["number"] = "related.numbers"
            self.test("number.__class__ is int and number < 2147483648")
            self.item(name, "number")
            return True
        return made.id_only is not None and self._add_id_only(name, made, definition, details)

    def _add_stored(self, name: str, made: Read, required: bool) -> bool:
        assert made.stored is not None
        usual = usual_value_code(made.stored)
        if usual is None:
            return False
        if made.stored.type is Scalar.DATETIME:
            self._add_date(name, made.stored.stored, required)
            return True
        var = self._read(made.stored.stored, required)
        test, shown = (each.format(var) for each in usual)
        if not required:
            test = f"({var} is None or {test})"
            shown = shown if shown == var else f"None if {var} is None else {shown}"
        self.test(test)
        self.item(name, shown)
        return True

    def _add_point(
        self, name: str, stored: str, required: bool, definition: Any, details: Any
    ) -> bool:
        var = self._read(stored, required)
        self.names["point_to_api"] = point_to_api
        self.line(f"{var} = None if {var} is None else point_to_api({var})")
        self.test(f"{var}.__class__ is dict" if required else f"{var} is not REFUSED")
        self.names["REFUSED"] = REFUSED
        type_: Any = get_nullable_type(definition.type)
        items = []
        for key, found in self._executor.selected_fields(type_, details).items():
            self.growth += field_growth(key)
            field_name = found[0].node.name.value
            typed = field_name == "__typename"
            items.append(f"{key!r}: {type_.name!r}" if typed else f"{key!r}: {var}[{field_name!r}]")
        shown = f"{{{', '.join(items)}}}"
        self.item(name, shown if required else f"None if {var} is None else {shown}")
        return True

    def _add_date(self, name: str, stored: str, required: bool) -> None:
        var = self.column("t", f"date_texts([each.get({stored!r}) for each in documents])")
        there = f"{var} is not None"
        self.test(there if required else f"({there} or document.get({stored!r}) is None)")
        self.item(name, var)

    def _add_id_only(self, name: str, made: Resolve, definition: Any, details: Any) -> bool:
        assert made.ready is not None
        assert made.id_only is not None
        ready, id_only_fields = made.ready(self._executor, details), self._rendering.id_only_fields
        if not isinstance(ready, CompleteValue):
            return False
        var = self.column("b", f"related.id_only[{len(id_only_fields)}]")
        self.test(f"{var} is not FALLBACK")
        self.item(name, var)
        nodes = [each.node for each in details]
        arguments = compile_arguments(definition, nodes[0], made)
        id_only_fields.append(made.id_only(self._executor.plan.selections, nodes, arguments))
        self._rendering.ready.append(ready.make)
        return True

    def _add_link(self, name: str, link: Link, required: bool, details: Any) -> bool:
        target = compile_documents(self._executor, link.target, details, self._depth + 1)
        if target is None:
            return False
        links = self._rendering.links
        number = len(links)
        links.append((link, target))
        var = self._read(link.by.stored, False)
        if link.reference.is_list:
            self.names["render_list"] = render_list
            self.line(f"l{number} = render_list({var}, related.followed[{number}].rendered)")
            self.test(f"l{number} is not FALLBACK")
            self.item(name, f"l{number}")
            return True
        self.head(f"k{number} = related.followed[{number}].rendered.get")
        self.line(f"l{number} = k{number}({var}) if {var}.__class__ in PLAIN_KEY_TYPES else None")
        there = f"l{number} is not None"
        self.test(there if required else f"({var} is None or {there})")
        self.item(name, f"l{number}")
        return True

    def _read(self, stored: str, required: bool) -> str:
        return self.value(f"document[{stored!r}]" if required else f"document.get({stored!r})")

    def function(self) -> _Rows:
        number = "number" if self._rendering.version else "None"
        rows: _Rows = self.compile_rows(
            "documents, related, unusual", unusual=f"unusual(document, {number})"
        )
        return rows
