"""Versions rendered from the archive's records without an object per version.

One generated function renders the records of a page, as `gql.engine.execution.compiled_documents`
does for documents. A version with an unusual value becomes a record of the API and is rendered by
`gql.engine.execution.compiled_object`, which may return FALLBACK; then the executor resolves all
versions.

Source: docs/decisions/0027-compiled-operations.md
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphql import GraphQLObjectType

from revstream.gql.engine.definitions.field import internal_name
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.execution.compiled_object import compile_object, give_up
from revstream.gql.engine.execution.compiled_snapshots import (
    INT,
    CompiledRecords,
    SnapshotGenerator,
)
from revstream.gql.engine.execution.planned_execution import PlannedExecution
from revstream.gql.engine.execution.worker_thread import count_items
from revstream.resolvers.history.version_filter import OPERATION

__all__ = ["compile_records"]

_TEXT = "({0} is None or {0}.__class__ is str)"
_NUMBER = f"({{0}} is None or {INT})"
# Key of each field in the record, and the test of its usual value.
_FACTS: Mapping[str, tuple[str, str]] = {
    "version": ("v", INT),
    "operation": ("op", "{0} in OPERATIONS"),
    "author": ("by", _TEXT),
    "comment": ("why", _TEXT),
    "restoredFrom": ("restoredFrom", _NUMBER),
    "fromDraft": ("draft", _NUMBER),
    "traceparent": ("traceparent", _TEXT),
}
_CHANGE = ("path", "kind", "before", "after")


def compile_records(
    executor: PlannedExecution, shape: ObjectTypeInfo, details: Any, *, as_of: bool = False
) -> CompiledRecords | None:
    """Compile the selection of an entity's versions.

    Args:
        details: its collected selections.
        as_of: they are of one time point, at which references are followed.

    Returns:
        None if a field cannot be compiled.
    """
    type_ = executor.schema.type_map[shape.version]
    assert isinstance(type_, GraphQLObjectType)
    make = compile_object(executor, type_, details) or give_up
    rendering = CompiledRecords(shape, make, executor.fallbacks)
    names = {"OPERATIONS": frozenset(OPERATION.values), "count_items": count_items}
    code = _VersionsCode(executor, rendering, names, depth=0 if as_of else None)
    for name, found in executor.selected_fields(type_, details).items():
        if not code.add(name, type_, found):
            return None
    rendering._rows = code.function()
    return rendering


class _VersionsCode(SnapshotGenerator):
    """Generator of the function that renders the versions of a page from the archive's records."""

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

    def _add_document(self, name: str, details: Any) -> bool:
        items = self.snapshot_items(details)
        if items is None:
            return False
        shown = ", ".join(f"{inner!r}: {value}" for inner, value in items.items())
        self.item(name, f"None if operation == 'DELETE' else {{{shown}}}")
        return True

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
