"""Past documents rendered from the archive's records without an object per document.

One generated function renders the records of a page. A document with an unusual value becomes a
record of the API and is rendered by `gql.engine.execution.compiled_object`, which may return
FALLBACK; then the executor resolves all documents. References lead to documents at the same time
point, which are read with one command per reference, and rendered likewise; what is unusual there
is left to the executor, with the versions that were read.

Source: docs/decisions/0027-compiled-operations.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from bson import Timestamp
from graphql import GraphQLObjectType

from revstream.gql.engine.definitions.code_generator import UNUSUAL, RowGenerator
from revstream.gql.engine.definitions.field import Read, strawberry_field
from revstream.gql.engine.definitions.object_type import Link, ObjectTypeInfo
from revstream.gql.engine.definitions.value_tests import FALLBACK, NAMES, usual_value_code
from revstream.gql.engine.execution.compiled_object import Make, compile_object
from revstream.gql.engine.execution.linked_documents import linked_ids, render_list
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.request.context import RequestContext
from revstream.gql.engine.request.source import VersionRecord
from revstream.gql.observability.fallback_metrics import FallbackCounter
from revstream.model.definition import Scalar
from revstream.resolvers.history.time_point import TimePoint
from revstream.resolvers.pagination.page import Page
from revstream.resolvers.values.dates import date_texts
from revstream.resolvers.values.field_diff import FieldDiff
from revstream.streams.changefeed.event import PLAIN_KEY_TYPES
from revstream.streams.core.errors import GatewayError
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version

__all__ = ["INT", "CompiledRecords", "RelatedStates", "SnapshotGenerator", "compile_snapshots"]

_DEPTH = 6
INT = "{0}.__class__ is int and -2147483648 <= {0} <= 2147483647"
"""Test of a value that is an Int."""


@dataclass(frozen=True, slots=True)
class FollowedStates:
    """Past documents that one reference leads to.

    Attributes:
        found: versions by id; None for an id without a document; without those that are not known.
        rendered: their parts of the response, by `identity` of the id; empty if one of them needs
            the fallback.
        related: documents to which references of them lead.
    """

    found: Sequence[tuple[Any, Version | None]] = ()
    rendered: Mapping[Any, Any] = field(default_factory=dict)
    related: RelatedStates = ()


RelatedStates: TypeAlias = Sequence[FollowedStates]
"""Documents of each selected reference, in the order of the references."""
_Unusual: TypeAlias = "Callable[[Document, Document | None], Any]"
"""(record, record of the version before) -> its part of the response, or FALLBACK."""
_Rows: TypeAlias = (
    "Callable[[Sequence[Document], Sequence[Document | None], Mapping[str, datetime | None],"
    " FieldDiff, RequestContext, RelatedStates, _Unusual], Any]"
)
"""Function that renders records: it returns their parts of the response, or FALLBACK.

Its arguments: records, records of the versions before, times of replacement, comparison, context,
related documents, rendering of an unusual record."""


class CompiledRecords:
    """Compiled selection of an entity's versions, or of its past documents.

    Args:
        make: renders one record of the API.

    Attributes:
        diff: each version is compared with the one before.
        ended: the time of replacement is selected.
        links: selected references of the documents, each with the selection of its target, and the
            fields to read.
    """

    def __init__(self, shape: ObjectTypeInfo, make: Make, fallbacks: FallbackCounter) -> None:
        self.shape = shape
        self.diff = False
        self.ended = False
        self.links: list[tuple[Link, CompiledRecords, frozenset[str]]] = []
        self._make = make
        self._fallbacks = fallbacks
        self._rows: _Rows

    async def related(
        self, context: RequestContext, records: Iterable[Document], moment: Timestamp
    ) -> RelatedStates:
        """Read and render the documents to which references lead at a time point.

        A read that fails is left to the executor, which reports the error.
        """
        if not self.links:
            return ()
        documents = [each.get("full") or {} for each in records]
        follow = (self._follow(context, documents, *each, moment) for each in self.links)
        return await asyncio.gather(*follow)

    async def _follow(
        self,
        context: RequestContext,
        documents: Sequence[Document],
        link: Link,
        target: CompiledRecords,
        fields: frozenset[str],
        moment: Timestamp,
    ) -> FollowedStates:
        services, entity = context.services, target.shape.entity
        with suppress(GatewayError):
            wanted = linked_ids(link, documents)
            if not wanted:
                return FollowedStates()
            await services.moments.reached(entity, TimePoint(at=moment))
            asked = [(each, moment) for each in wanted.values()]
            found = dict(
                zip(wanted, await services.history.as_of(entity, asked, fields), strict=True)
            )
            there = {name: _record(each) for name, each in found.items() if _is_there(each)}
            related = await target.related(context, there.values(), moment)
            made = target._render_related(list(there.values()), related, context)
            known = {name: each for name, each in found.items() if name in there or each is None}
            rendered: Mapping[Any, Any] = {}
            if made is not FALLBACK:
                rendered = dict.fromkeys(known) | dict(zip(there, made, strict=True))
            versions = [(wanted[name], each) for name, each in known.items()]
            return FollowedStates(versions, rendered, related)
        return FollowedStates()

    def remember(self, related: RelatedStates, context: RequestContext, moment: Timestamp) -> None:
        """Store the versions in the context, where the fields find them."""
        for (_, target, fields), each in zip(self.links, related, strict=False):
            context.loads.keep_states(target.shape.entity, moment, fields, each.found)
            target.remember(each.related, context, moment)

    def _render_related(
        self, records: Sequence[Document], related: RelatedStates, context: RequestContext
    ) -> Any:
        try:
            befores = [None] * len(records)
            comparison = context.scope.compared(self.shape.comparison)
            return self._rows(records, befores, {}, comparison, context, related, _give_up)
        except Exception as exc:
            # Raised by generated code, and not by the read.
            self._fallbacks.count_exception("query", exc)
            return FALLBACK

    def render(
        self,
        page: Page[Document],
        context: RequestContext,
        moment: Timestamp | None = None,
        related: RelatedStates = (),
    ) -> list[Any] | Any:
        """Return the parts of the response of a page of records, in their order, or FALLBACK.

        Args:
            moment: see `VersionRecord`.
            related: the documents to which references lead, read for this page.
        """
        records = page.items
        if not records:
            return []
        ends = page.ends
        if ends is None and self.ended:
            return FALLBACK
        comparison = context.scope.compared(self.shape.comparison)

        def unusual(record: Document, before: Document | None) -> Any:
            try:
                version = Version.from_record(record)
                earlier = None if before is None else Version.from_record(before)
            except UNUSUAL:
                return FALLBACK
            record_ = VersionRecord(self.shape, version, moment, earlier, page.ends)
            return self._make(record_, context)

        befores = _befores(page) if self.diff else [None] * len(records)
        return self._rows(records, befores, ends or {}, comparison, context, related, unusual)


def _befores(page: Page[Document]) -> list[Document | None]:
    """Return the version before each version of a page, if it was read."""
    read: dict[Any, Document] = {each["_id"]: each for each in page.items}
    if page.beyond is not None:
        read[page.beyond["_id"]] = page.beyond
    return [read.get(each.get("prev")) for each in page.items]


def _is_there(state: object) -> bool:
    return isinstance(state, Version) and state.full is not None


def _record(version: Any) -> Document:
    """Return the part of the archive's record that a past document is rendered from."""
    return {"doc": version.document, "v": version.number, "op": "", "full": version.full}


def _give_up(_record: Document, _before: Document | None) -> Any:
    return FALLBACK


def compile_snapshots(
    executor: PlannedExecution, shape: ObjectTypeInfo, details: Any, depth: int = 0
) -> CompiledRecords | None:
    """Compile the selection of an entity's documents at a time point.

    Args:
        details: its collected selections.

    Returns:
        None if a field cannot be compiled.
    """
    type_ = executor.schema.type_map[shape.snapshot]
    if not isinstance(type_, GraphQLObjectType):
        # The fields depend on the type of each document.
        return None
    if depth > _DEPTH:
        return None
    make = compile_object(executor, type_, details)

    def make_snapshot(record: VersionRecord, context: RequestContext) -> Any:
        snapshot = record.snapshot
        return FALLBACK if snapshot is None or make is None else make(snapshot, context)

    rendering = CompiledRecords(shape, make_snapshot, executor.fallbacks)
    code = SnapshotGenerator(executor, rendering, depth=depth)
    shown = code.snapshot_items(details)
    if shown is None:
        return None
    for name, value in shown.items():
        code.item(name, value)
    rendering._rows = code.function()
    return rendering


class SnapshotGenerator(RowGenerator):
    """Generator of the function that renders past documents from records.

    Args:
        depth: number of references above these documents; None where references lead to several
            time points, and are not compiled.
    """

    def __init__(
        self,
        executor: PlannedExecution,
        rendering: CompiledRecords,
        names: Mapping[str, Any] | None = None,
        *,
        depth: int | None,
    ) -> None:
        own = {
            "NOTHING": {},
            "PLAIN_KEY_TYPES": PLAIN_KEY_TYPES,
            "date_texts": date_texts,
            "render_list": render_list,
            **(names or {}),
        }
        super().__init__(NAMES | own, {"record": "records", "before": "befores"})
        self._executor = executor
        self._rendering = rendering
        self._depth = depth
        self._reads_state = False
        self.line("get = record.get")

    def snapshot_items(self, details: Any) -> Mapping[str, str] | None:
        """Return the code of each selected field of the snapshot; None if one has none."""
        if self._rendering.shape.members:
            return None
        type_: Any = self._executor.schema.type_map[self._rendering.shape.snapshot]
        self._read_state()
        items: dict[str, str] = {}
        for inner, found in self._executor.selected_fields(type_, details).items():
            shown = self._snapshot_field(type_, found)
            if shown is None:
                return None
            items[inner] = shown
        return items

    def _snapshot_field(self, type_: GraphQLObjectType, details: Any) -> str | None:
        field_name = details[0].node.name.value
        if field_name == "__typename":
            return repr(type_.name)
        made = strawberry_field(self._executor.schema.get_field(type_, field_name))
        if not isinstance(made, Read):
            shape = self._rendering.shape
            link = shape.links.get(field_name) or shape.list_links.get(field_name)
            if link is None or field_name in shape.guarded:
                return None
            return self._link(link, details)
        if made.stored is not None:
            usual = usual_value_code(made.stored)
            return usual and self._shown(made.stored.type, made.stored.stored, usual)
        match made.python_name:
            case "id" | "documentId" as name:
                return self._id("full.get", "_id", numbered=name == "id")
            case "version":
                var = self._read("get", "v")
                self.test(INT.format(var))
                return var
        return None

    def _link(self, link: Link, details: Any) -> str | None:
        selections = self._executor.plan.selections
        if self._depth is None or selections is None:
            return None
        target = compile_snapshots(self._executor, link.target, details, self._depth + 1)
        if target is None:
            return None
        nodes, links = [each.node for each in details], self._rendering.links
        number = len(links)
        links.append((link, target, selections.stored(nodes, link.target, link.target.snapshot)))
        var = self._read("full.get", link.by.stored)
        if link.reference.is_list:
            self.line(f"l{number} = render_list({var}, related[{number}].rendered)")
        else:
            self.head(f"k{number} = related[{number}].rendered.get")
            known = f"k{number}({var}, FALLBACK)"
            usual = f"{known} if {var}.__class__ in PLAIN_KEY_TYPES else FALLBACK"
            self.line(f"l{number} = None if {var} is None else {usual}")
        self.test(f"l{number} is not FALLBACK")
        return f"l{number}"

    def _shown(self, kind: Any, stored: str, usual: tuple[str, str]) -> str:
        """Return the code of a field of the snapshot; none is required in past documents."""
        if kind is Scalar.DATETIME:
            var = self._dates(f"(each.get('full') or NOTHING).get({stored!r})")
            self.test(f"({var} is not None or full.get({stored!r}) is None)")
            return var
        var = self._read("full.get", stored)
        test, shown = (each.format(var) for each in usual)
        self.test(f"({var} is None or {test})")
        return shown if shown == var else f"None if {var} is None else {shown}"

    def _read_state(self) -> None:
        """Read the document that the version left; it is empty after a deletion."""
        if not self._reads_state:
            self._reads_state = True
            self.line("operation = record['op']")
            self.line("full = get('full') or NOTHING")

    def _id(self, get: str, stored: str, *, numbered: bool) -> str | None:
        """Return the code of the document's id, or of its snapshot in this version."""
        usual = usual_value_code(self._rendering.shape.entity.id)
        if usual is None:
            return None
        var = self._read(get, stored)
        test, shown = (each.format(var) for each in usual)
        # The snapshot of a deletion is null, and has no id.
        gone = "operation == 'DELETE' or " if get != "get" else ""
        if not numbered:
            self.test(f"({gone}{test})")
            return shown
        number = self._read("get", "v")
        self.test(f"({gone}{test} and {number}.__class__ is int)")
        return f"f'{{{shown}}}@{{{number}}}'"

    def _dates(self, each: str) -> str:
        """Return the variable of a date as text, or None; the page's dates are converted at
        once.
        """
        return self.column("t", f"date_texts([{each} for each in records])")

    def _read(self, get: str, stored: str, default: str = "None") -> str:
        return self.value(f"{get}({stored!r}, {default})")

    def function(self) -> _Rows:
        rows: _Rows = self.compile_rows(
            "records, befores, ends, comparison, context, related, unusual",
            unusual="unusual(record, before)",
        )
        return rows
