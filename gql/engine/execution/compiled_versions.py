"""Versions rendered from the archive's records without an object per version.

One generated function renders the records of a page, as `gql.engine.execution.compiled_documents`
does for documents. A version with an unusual value becomes a record of the API and is rendered by
`gql.engine.execution.compiled_object`, which may return FALLBACK; then the executor resolves all
versions.

Source: docs/decisions/0027-compiled-operations.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from bson import Timestamp
from graphql import GraphQLObjectType

from revstream.gql.engine.definitions.code_generator import UNUSUAL, RowGenerator
from revstream.gql.engine.definitions.field import Read, internal_name, strawberry_field
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.definitions.value_tests import FALLBACK, NAMES, usual_value_code
from revstream.gql.engine.execution.compiled_object import Make, compile_object
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.execution.worker_thread import count_items
from revstream.gql.engine.request.context import RequestContext
from revstream.gql.engine.request.source import VersionRecord
from revstream.model.definition import Scalar
from revstream.resolvers.history.version_filter import OPERATION
from revstream.resolvers.pagination.page import Page
from revstream.resolvers.values.dates import date_texts
from revstream.resolvers.values.field_diff import FieldDiff
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version

__all__ = ["CompiledRecords", "compile_records", "compile_snapshots"]

_Unusual: TypeAlias = "Callable[[Document, Document | None], Any]"
"""(record, record of the version before) -> its part of the response, or FALLBACK."""
_Rows: TypeAlias = (
    "Callable[[Sequence[Document], Sequence[Document | None], Mapping[str, datetime | None],"
    " FieldDiff, RequestContext, _Unusual], Any]"
)
"""Function that renders records: it returns their parts of the response, or FALLBACK.

Its arguments: records, records of the versions before, times of replacement, comparison, context,
rendering of an unusual record."""

_TEXT = "({0} is None or {0}.__class__ is str)"
_INT = "{0}.__class__ is int and -2147483648 <= {0} <= 2147483647"
_NUMBER = f"({{0}} is None or {_INT})"
# Key of each field in the record, and the test of its usual value.
_FACTS: Mapping[str, tuple[str, str]] = {
    "version": ("v", _INT),
    "operation": ("op", "{0} in OPERATIONS"),
    "author": ("by", _TEXT),
    "comment": ("why", _TEXT),
    "restoredFrom": ("restoredFrom", _NUMBER),
    "fromDraft": ("draft", _NUMBER),
    "traceparent": ("traceparent", _TEXT),
}
_CHANGE = ("path", "kind", "before", "after")


class CompiledRecords:
    """Compiled selection of an entity's versions.

    Args:
        make: renders one record of the API.

    Attributes:
        diff: each version is compared with the one before.
        ended: the time of replacement is selected.
    """

    def __init__(self, shape: ObjectTypeInfo, make: Make) -> None:
        self.shape = shape
        self.diff = False
        self.ended = False
        self._make = make
        self._rows: _Rows

    def render(
        self, page: Page[Document], context: RequestContext, moment: Timestamp | None = None
    ) -> list[Any] | Any:
        """Return the parts of the response of a page of records, in their order, or FALLBACK.

        Args:
            moment: see `VersionRecord`.
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
        return self._rows(records, befores, ends or {}, comparison, context, unusual)


def _befores(page: Page[Document]) -> list[Document | None]:
    """Return the version before each version of a page, if it was read."""
    read: dict[Any, Document] = {each["_id"]: each for each in page.items}
    if page.beyond is not None:
        read[page.beyond["_id"]] = page.beyond
    return [read.get(each.get("prev")) for each in page.items]


def compile_records(
    executor: PlannedExecution, shape: ObjectTypeInfo, details: Any
) -> CompiledRecords | None:
    """Compile the selection of an entity's versions.

    Args:
        details: its collected selections.

    Returns:
        None if a field cannot be compiled.
    """
    type_ = executor.schema.type_map[shape.version]
    assert isinstance(type_, GraphQLObjectType)
    make = compile_object(executor, type_, details)
    if make is None:
        return None
    rendering = CompiledRecords(shape, make)
    code = _VersionsCode(executor, rendering)
    for name, found in executor.selected_fields(type_, details).items():
        if not code.add(name, type_, found):
            return None
    rendering._rows = code.function()
    return rendering


def compile_snapshots(
    executor: PlannedExecution, shape: ObjectTypeInfo, details: Any
) -> CompiledRecords | None:
    """Compile the selection of an entity's past documents, rendered from records of versions.

    Args and result: see `compile_records`.
    """
    type_ = executor.schema.type_map[shape.snapshot]
    assert isinstance(type_, GraphQLObjectType)
    make = compile_object(executor, type_, details)
    if make is None:
        return None

    def make_snapshot(record: VersionRecord, context: RequestContext) -> Any:
        snapshot = record.snapshot
        return FALLBACK if snapshot is None else make(snapshot, context)

    rendering = CompiledRecords(shape, make_snapshot)
    code = _VersionsCode(executor, rendering)
    shown = code.snapshot_items(details)
    if shown is None:
        return None
    for name, value in shown.items():
        code.item(name, value)
    rendering._rows = code.function()
    return rendering


class _VersionsCode(RowGenerator):
    """Function that renders the versions of a page from the archive's records."""

    def __init__(self, executor: PlannedExecution, rendering: CompiledRecords) -> None:
        names = {
            **NAMES,
            "OPERATIONS": frozenset(OPERATION.values),
            "count_items": count_items,
            "NOTHING": {},
            "date_texts": date_texts,
        }
        super().__init__(names, {"record": "records", "before": "befores"})
        self._executor = executor
        self._rendering = rendering
        self._reads_state = False
        self.line("get = record.get")

    def add(self, name: str, parent: GraphQLObjectType, details: Any) -> bool:
        """Add a field, and return whether it can be compiled."""
        field_name = internal_name(parent, details[0].node.name.value)
        match field_name:
            case "__typename":
                self.item(name, repr(parent.name))
            case "at":
                var = self._dates("each.get('wall')")
                self.test(f"{var} is not None")
                self.item(name, var)
            case "until":
                self._rendering.ended = True
                var = self._dates("ends[each['_id']]")
                self.test(f"({var} is not None or ends[record['_id']] is None)")
                self.item(name, var)
            case "documentId" | "id":
                shown = self._id("get", "doc", numbered=field_name == "id")
                self.item(name, str(shown))
                return shown is not None
            case "gap":
                var = self._read("get", "gap", "get('spanning', False)")
                self.test(f"{var}.__class__ is bool")
                self.item(name, var)
            case "resumeToken":
                self.item(name, "context.token_out(record['_id'])")
            case "changedFields":
                self.item(name, "comparison.paths(tuple(get('changed', ())))")
            case "document":
                return self._add_document(name, details)
            case "diff":
                return self._add_diff(name, details)
            case _:
                return self._add_fact(name, field_name)
        return True

    def _add_fact(self, name: str, field_name: str) -> bool:
        fact = _FACTS.get(field_name)
        if fact is None:
            return False
        stored, test = fact
        var = self._read("get", stored)
        self.test(test.format(var))
        self.item(name, var)
        return True

    def _dates(self, each: str) -> str:
        """Return the variable of a date as text, or None; the page's dates are converted at
        once.
        """
        return self.column("t", f"date_texts([{each} for each in records])")

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

    def _add_document(self, name: str, details: Any) -> bool:
        items = self.snapshot_items(details)
        if items is None:
            return False
        shown = ", ".join(f"{inner!r}: {value}" for inner, value in items.items())
        self.item(name, f"None if operation == 'DELETE' else {{{shown}}}")
        return True

    def snapshot_items(self, details: Any) -> Mapping[str, str] | None:
        """Return the code of each selected field of the snapshot; None if one has none."""
        type_: Any = self._executor.schema.type_map[self._rendering.shape.snapshot]
        self._read_state()
        items: dict[str, str] = {}
        for inner, found in self._executor.selected_fields(type_, details).items():
            shown = self._snapshot_field(type_, found[0].node.name.value)
            if shown is None:
                return None
            items[inner] = shown
        return items

    def _snapshot_field(self, type_: GraphQLObjectType, field_name: str) -> str | None:
        if field_name == "__typename":
            return repr(type_.name)
        made = strawberry_field(self._executor.schema.get_field(type_, field_name))
        if not isinstance(made, Read):
            return None
        if made.stored is not None:
            usual = usual_value_code(made.stored)
            return usual and self._shown(made.stored.type, made.stored.stored, usual)
        match made.python_name:
            case "id" | "documentId" as name:
                return self._id("full.get", "_id", numbered=name == "id")
            case "version":
                var = self._read("get", "v")
                self.test(_INT.format(var))
                return var
        return None

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

    def _add_diff(self, name: str, details: Any) -> bool:
        type_: Any = self._executor.schema.type_map["FieldChange"]
        items = []
        fields = self._executor.selected_fields(type_, details)
        for inner, found in fields.items():
            field_name = found[0].node.name.value
            if field_name not in (*_CHANGE, "__typename"):
                return False
            shown = repr(type_.name) if field_name == "__typename" else field_name
            items.append(f"{inner!r}: {shown}")
        var = f"change{len(self._head)}"
        self.head(f"{var} = lambda {', '.join(_CHANGE)}: {{{', '.join(items)}}}")
        self._rendering.diff = True
        self.test("get('cut') is None and (before is not None or get('prev') is None)")
        earlier = "None if before is None else before.get('full')"
        changed = "tuple(get('changed', ()))"
        diff = f"comparison.changes({earlier}, get('full'), {changed}, {var})"
        self.item(name, f"count_items({diff})")
        return True

    def _read(self, get: str, stored: str, default: str = "None") -> str:
        return self.value(f"{get}({stored!r}, {default})")

    def function(self) -> _Rows:
        rows: _Rows = self.compile_rows(
            "records, befores, ends, comparison, context, unusual",
            unusual="unusual(record, before)",
        )
        return rows
