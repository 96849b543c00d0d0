"""The fields that an operation selects, and the data that has to be read for them.

Guarantees: aliases, fragments, type conditions, @skip and @include are followed as in execution.
The time is linear in the size of the document, however fragments are nested, and is spent once per
operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from graphql import (
    BooleanValueNode,
    FieldNode,
    FragmentSpreadNode,
    GraphQLResolveInfo,
    GraphQLSchema,
    InlineFragmentNode,
    SelectionSetNode,
    VariableNode,
    is_abstract_type,
)

from revstream.gql.engine.definitions.arguments import compile_arguments
from revstream.gql.engine.definitions.field import (
    IdOnlyField,
    Resolve,
    internal_name,
    strawberry_field,
)
from revstream.gql.engine.definitions.object_type import Link, ObjectTypeInfo
from revstream.resolvers.pagination.projection import ENDED

__all__ = ["ConnectionSelection", "Nodes", "SelectionNeeds", "Selections", "VersionSelection"]


Nodes = Sequence[FieldNode]
"""All selections of one field of one object; its sub-selections are merged."""


_FACTS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(
        (
            "__typename",
            "nodeId",
            "id",
            "documentId",
            "version",
            "operation",
            "at",
            "resumeToken",
            "document",
            "comments",
        ),
        (),
    ),
    "until": (ENDED, "prev"),
    "author": ("by",),
    "comment": ("why",),
    "changedFields": ("changed",),
    "restoredFrom": ("restoredFrom",),
    "fromDraft": ("draft",),
    "draft": ("draft",),
    "traceparent": ("traceparent",),
    "gap": ("gap",),
    "cut": ("cut",),
    "previous": ("prev",),
    "diff": ("prev", "cut", "changed"),
}
"""Keys of an archive record that each field of a version needs, beside those of all versions."""


@dataclass(frozen=True, slots=True)
class ConnectionSelection:
    """Selection of a page.

    Attributes:
        items: selections of its objects, under `nodes` and under `edges`.
    """

    items: Nodes
    total: bool
    token: bool


@dataclass(frozen=True, slots=True)
class VersionSelection:
    """Selection of versions.

    Attributes:
        fields: fields of the documents that have to be read; None if no document is selected.
        facts: fields of the record, beside those of all versions
            (`resolvers.pagination.projection`).
    """

    fields: frozenset[str] | None
    facts: frozenset[str]


@dataclass(frozen=True, slots=True)
class SelectionNeeds:
    """Data to be read with documents: version numbers, references, fields that are read ahead."""

    version: bool
    links: Sequence[tuple[str, Link, Nodes]]
    id_only: Sequence[IdOnlyField]


P = ParamSpec("P")
T = TypeVar("T")


def _once(
    look: Callable[Concatenate[Selections, Nodes, P], T],
) -> Callable[Concatenate[Selections, Nodes, P], T]:
    """Cache a method's result per selection, and type."""

    @wraps(look)
    def known(self: Selections, nodes: Nodes, /, *of: P.args, **none: P.kwargs) -> T:
        names = (each.name if isinstance(each, ObjectTypeInfo) else each for each in of)
        key = (look.__name__, *names, *map(id, nodes))
        found: T | None = self.known.get(key)
        if found is None:
            found = self.known[key] = look(self, nodes, *of, **none)
        return found

    return known


class Selections:
    """Selected fields of one operation, with its variables."""

    def __init__(self, info: GraphQLResolveInfo[Any]) -> None:
        self._schema: GraphQLSchema = info.schema
        self._fragments = info.fragments
        self._variables: Mapping[str, Any] = info.variable_values  # type: ignore[assignment]
        self._stored: dict[tuple[str, object], frozenset[str]] = {}
        self.known: dict[tuple[Any, ...], Any] = {}

    @_once
    def under(self, nodes: Nodes, type_name: str) -> Mapping[str, Nodes]:
        """Return the selected fields of an object type by name, with all their selections."""
        found: dict[str, list[FieldNode]] = {}
        seen: set[str] = set()
        for node in nodes:
            self._collect(node.selection_set, type_name, found, seen)
        return found

    @_once
    def needs(self, nodes: Nodes, shape: ObjectTypeInfo) -> SelectionNeeds:
        """Return the data to be read with current documents, for the selected fields."""
        selected = self.under(nodes, shape.name)
        return SelectionNeeds(
            version=self.selects(nodes, shape, "version"),
            links=[
                (name, shape.links[name], places)
                for name, places in selected.items()
                if name in shape.links
            ],
            id_only=[
                each
                for name, places in selected.items()
                for each in self._beside(shape, name, places)
            ],
        )

    def selects(self, nodes: Nodes, shape: ObjectTypeInfo, *names: str, past: bool = False) -> bool:
        """Return whether one of the fields is selected of a document, whatever its type."""
        return any(
            name in self.under(nodes, each.snapshot if past else each.name)
            for each in shape.variants
            for name in names
        )

    def _beside(self, shape: ObjectTypeInfo, name: str, places: Nodes) -> Iterable[IdOnlyField]:
        """Yield the fields to be read ahead, one per response name: their arguments differ."""
        type_: Any = self._schema.type_map[shape.name]
        definition = type_.fields.get(name)
        made = strawberry_field(definition)
        if not isinstance(made, Resolve) or made.id_only is None:
            return
        aliased: dict[str, list[FieldNode]] = {}
        for node in places:
            aliased.setdefault(node.alias.value if node.alias else name, []).append(node)
        for nodes in aliased.values():
            yield made.id_only(self, nodes, compile_arguments(definition, nodes[0], made))

    @_once
    def stored(self, nodes: Nodes, shape: ObjectTypeInfo, type_name: str) -> frozenset[str]:
        """Return the stored names that the selected fields of a document need.

        Names are dotted below embedded documents. A path may be part of another one, if a reference
        is stored in an embedded document that is also read completely.

        Args:
            type_name: the document's type in the API, current or snapshot.
        """
        paths: set[str] = set()
        for node in nodes:
            paths |= self._stored_below(node, shape, past=type_name == shape.snapshot)
        return frozenset(paths)

    @_once
    def connection(self, nodes: Nodes, type_name: str, edge_name: str) -> ConnectionSelection:
        """Return the selection of a connection."""
        selected = self.under(nodes, type_name)
        edges = self.under(selected.get("edges", ()), edge_name)
        return ConnectionSelection(
            items=(*selected.get("nodes", ()), *edges.get("node", ())),
            total="totalCount" in selected,
            token="resumeToken" in selected,
        )

    @_once
    def version(self, nodes: Nodes, shape: ObjectTypeInfo) -> VersionSelection:
        """Return the selection of versions."""
        selected = self.under(nodes, shape.version)
        document = selected.get("document")
        fields = self.stored(document, shape, shape.snapshot) if document else None
        return VersionSelection(
            fields=shape.everything if "diff" in selected else fields,
            facts=frozenset(fact for name in selected for fact in _FACTS[name]),
        )

    def _collect(
        self,
        selections: SelectionSetNode | None,
        type_name: str,
        found: dict[str, list[FieldNode]],
        seen: set[str],
    ) -> None:
        for node in self._included(selections):
            if isinstance(node, FieldNode):
                name = internal_name(self._schema.type_map[type_name], node.name.value)
                found.setdefault(name, []).append(node)
            elif isinstance(node, InlineFragmentNode):
                if self._applies(node, type_name):
                    self._collect(node.selection_set, type_name, found, seen)
            elif node.name.value not in seen:
                seen.add(node.name.value)
                fragment = self._fragments[node.name.value]
                if self._applies(fragment, type_name):
                    self._collect(fragment.selection_set, type_name, found, seen)

    def _stored_in(
        self, selections: SelectionSetNode | None, shape: ObjectTypeInfo, type_name: str
    ) -> frozenset[str]:
        """Return the stored names of a selection set; each is visited once per type."""
        paths: set[str] = set()
        for node in self._included(selections):
            if isinstance(node, FieldNode):
                key = (type_name, id(node))
                if key not in self._stored:
                    self._stored[key] = self._stored_by(node, shape, type_name)
                paths |= self._stored[key]
            elif isinstance(node, InlineFragmentNode):
                if self._applies(node, type_name):
                    paths |= self._stored_in(node.selection_set, shape, type_name)
            else:
                paths |= self._stored_by_fragment(node.name.value, shape, type_name)
        return frozenset(paths)

    def _stored_by_fragment(
        self, name: str, shape: ObjectTypeInfo, type_name: str
    ) -> frozenset[str]:
        key = (type_name, name)
        if key not in self._stored:
            fragment = self._fragments[name]
            self._stored[key] = (
                self._stored_in(fragment.selection_set, shape, type_name)
                if self._applies(fragment, type_name)
                else frozenset()
            )
        return self._stored[key]

    def _stored_by(self, node: FieldNode, shape: ObjectTypeInfo, type_name: str) -> frozenset[str]:
        name = internal_name(self._schema.type_map[type_name], node.name.value)
        link = shape.links.get(name) or shape.list_links.get(name) or shape.list_pages.get(name)
        if link is not None:
            return frozenset({link.by.stored})
        field = shape.fields.get(name)
        if field is None:
            counted = name == "version" and shape.is_entity and shape.entity.version
            return frozenset({counted}) if counted else frozenset()
        embedded = shape.embedded.get(name)
        # A list is read whole: from a projection inside of it, MongoDB leaves out the items that
        # are no documents, so that null and misfits would be missing.
        if embedded is None or field.is_list:
            return frozenset({field.stored})
        inner = self._stored_below(node, embedded, past=type_name == shape.snapshot)
        # With only __typename below it, the field is still read, since it may be null.
        return frozenset(f"{field.stored}.{path}" for path in inner) or frozenset({field.stored})

    def _stored_below(self, node: FieldNode, shape: ObjectTypeInfo, *, past: bool) -> set[str]:
        """Return the stored names that the selections below a field need, whatever the document."""
        paths: set[str] = set()
        for each in shape.variants:
            type_name = each.snapshot if past else each.name
            paths |= self._stored_in(node.selection_set, each, type_name)
        if shape.discriminator is not None:
            paths.add(shape.discriminator.stored)
        return paths

    def _included(
        self, selections: SelectionSetNode | None
    ) -> Iterable[FieldNode | InlineFragmentNode | FragmentSpreadNode]:
        for node in () if selections is None else selections.selections:
            if not node.directives or self._is_included(node):
                yield node  # type: ignore[misc]

    def _is_included(self, node: Any) -> bool:
        for directive in node.directives:
            wanted = {"skip": False, "include": True}.get(directive.name.value)
            if wanted is not None and self._flag(directive) is not wanted:
                return False
        return True

    def _flag(self, directive: Any) -> bool:
        value = directive.arguments[0].value
        if isinstance(value, VariableNode):
            return bool(self._variables[value.name.value])
        assert isinstance(value, BooleanValueNode)
        return value.value

    def _applies(self, fragment: Any, type_name: str) -> bool:
        condition = fragment.type_condition
        if condition is None:
            return True
        name = condition.name.value
        if name == type_name:
            return True
        # An interface, or the result union of a mutation.
        abstract, type_ = self._schema.type_map[name], self._schema.type_map[type_name]
        return is_abstract_type(abstract) and self._schema.is_sub_type(abstract, type_)
