"""Cost of an operation before it is validated or executed: depth, fields, documents, conditions.

Guarantees: the time is linear in the size of the document, however often fragments spread one
another: each definition is visited once, and a fragment's cost is known before it is added where it
is spread. Nothing is expanded and nothing recurses. The document was parsed, but not validated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphql import (
    DirectiveNode,
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLField,
    GraphQLNamedType,
    GraphQLSchema,
    IntValueNode,
    ListValueNode,
    ObjectValueNode,
    OperationDefinitionNode,
    SelectionSetNode,
    ValueNode,
    get_named_type,
    get_nullable_type,
    is_list_type,
)

from revstream.gql.engine.definitions.field import strawberry_field
from revstream.gql.engine.limits.filter_conditions import FilterConditions
from revstream.gql.engine.limits.page_sizes import PageSizes
from revstream.resolvers.errors import BadUserInput

__all__ = ["CostCalculator", "DocumentCost", "OperationCost"]

_MOST_DIGITS = 4300
"""Maximum number of digits of an integer that Python converts: its own limit."""

REFERENCE_COST = 100
"""Cost of a reference in a filter or in groups: one read of up to 10,000 small documents."""

SEARCH_COST = 100
"""Cost of a search: each document with one of its words is read and scored."""

_FILTERS = ("where", "having")
"""Arguments that are filters."""

RELATED_ORDER_COST = 1000
"""Cost of a value of another document in an order: up to 10,000 documents are read and sorted, for
all pages of a list together.
"""

LIST_ITEMS = 10
"""Assumed number of items of a list whose length depends on the data."""

# Average lengths of the lists of an introspection response, measured with the example shop. Not of
# the schema that is served, or a large schema could not be introspected.
_ITEMS: Mapping[tuple[str, str], int] = {
    ("__Schema", "types"): 175,
    ("__Schema", "directives"): 5,
    ("__Type", "fields"): 4,
    ("__Type", "inputFields"): 1,
    ("__Type", "enumValues"): 1,
    ("__Type", "interfaces"): 1,
    ("__Type", "possibleTypes"): 1,
    ("__Field", "args"): 1,
    ("__Directive", "args"): 1,
    ("__Directive", "locations"): 3,
}

Variables = Mapping[str, Any]


@dataclass(slots=True)
class OperationCost:
    """Cost of an operation, or of one spread of a fragment.

    Fields, aliases, directives and root fields count once per spread.

    Attributes:
        cost: documents and versions that may have to be read, and filter conditions that may have
            to be parsed and evaluated.
        values: maximum number of values of the response.
        nested: depth of the deepest value of an argument.
        conditions: number of conditions of the largest filter.
        batched: the part of the cost that does not grow with the number of objects, because it is
            one read for all of them. The cost of an operation includes it.
    """

    depth: int = 0
    fields: int = 0
    aliases: int = 0
    directives: int = 0
    root_fields: int = 0
    nested: int = 0
    cost: int = 0
    values: int = 0
    conditions: int = 0
    batched: int = 0
    introspects: bool = False

    def add(self, other: OperationCost, depth: int, times: int) -> None:
        """Add the cost of a fragment that is spread at a depth, for a number of objects."""
        self.depth = max(self.depth, depth + other.depth)
        self.fields += other.fields
        self.aliases += other.aliases
        self.directives += other.directives
        self.root_fields += other.root_fields if depth == 0 else 0
        self.nested = max(self.nested, other.nested)
        self.cost += times * other.cost
        self.batched += other.batched
        self.values += times * other.values
        self.conditions = max(self.conditions, other.conditions)
        self.introspects |= other.introspects


@dataclass(slots=True)
class _Definition:
    """Cost of a definition without its spreads.

    Attributes:
        spreads: fragment, depth and factor of each.
    """

    own: OperationCost = field(default_factory=OperationCost)
    spreads: list[tuple[str, int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DocumentCost:
    """Costs of a document's operations by name; None is the name of an anonymous one.

    Attributes:
        varies: the cost depends on variables.
    """

    operations: Mapping[str | None, OperationCost]
    varies: bool

    def operation(self, name: str | None) -> OperationCost | None:
        """Return the cost of an operation; the name None means the only one."""
        if name is None and len(self.operations) == 1:
            return next(iter(self.operations.values()))
        return self.operations.get(name)


class CostCalculator:
    """Calculator of the costs of documents of one schema."""

    def __init__(self, schema: GraphQLSchema) -> None:
        self._schema = schema

    def calculate(self, document: DocumentNode, variables: Variables) -> DocumentCost:
        """Calculate the cost of a document.

        Raises:
            BadUserInput: a fragment cycle, two definitions of one name, or a number with too many
                digits.
        """
        fragments: dict[str | None, _Definition] = {}
        operations: dict[str | None, _Definition] = {}
        pages = PageSizes(document, variables)
        filters = FilterConditions(self._schema, document, variables)
        for each in document.definitions:
            if isinstance(each, FragmentDefinitionNode):
                name: str | None = each.name.value
                type_ = self._schema.type_map.get(each.type_condition.name.value)
                found, kind = fragments, "fragment"
            elif isinstance(each, OperationDefinitionNode):
                name = each.name.value if each.name else None
                type_ = self._schema.get_root_type(each.operation)
                found, kind = operations, "operation"
            else:
                continue
            # Validation refuses this too, but the cost would be that of one of the two.
            if name is not None and name in found:
                raise BadUserInput(
                    f"{kind}s named '{name:.40}': 2 or more, expected 1; rename one of them"
                )
            if found is operations and (None in found or (name is None and found)):
                raise BadUserInput(
                    "operations: 2 or more, expected a name for each; give each a name"
                )
            found[name] = self._looked_at(each, type_, pages, filters)
        weights = _resolved(fragments)
        summed = {name: _sum(definition, weights) for name, definition in operations.items()}
        for operation in summed.values():
            operation.cost += operation.batched
        return DocumentCost(summed, pages.varied or filters.varied)

    def _looked_at(
        self,
        definition: OperationDefinitionNode | FragmentDefinitionNode,
        type_: GraphQLNamedType | None,
        pages: PageSizes,
        filters: FilterConditions,
    ) -> _Definition:
        found = _Definition()
        own = found.own
        own.directives = len(definition.directives or ())
        for each in definition.variable_definitions or ():
            if each.default_value is not None:
                own.nested = max(own.nested, _depth(each.default_value))
        # Selection sets with their type, depth and number of objects.
        waiting: list[tuple[SelectionSetNode, GraphQLNamedType | None, int, int]]
        waiting = [(definition.selection_set, type_, 0, 1)]
        while waiting:
            selections, type_, depth, times = waiting.pop()
            for node in selections.selections:
                own.directives += len(node.directives or ())
                if isinstance(node, FragmentSpreadNode):
                    found.spreads.append((node.name.value, depth, times))
                elif isinstance(node, FieldNode):
                    below = self._count(own, node, type_, depth, times, pages, filters)
                    if node.selection_set is not None:
                        waiting.append((node.selection_set, *below))
                else:
                    condition = node.type_condition  # type: ignore[attr-defined]
                    known = self._schema.type_map
                    inner = known.get(condition.name.value) if condition else type_
                    waiting.append((node.selection_set, inner, depth, times))  # type: ignore[attr-defined]
        return found

    def _count(
        self,
        own: OperationCost,
        node: FieldNode,
        parent: GraphQLNamedType | None,
        depth: int,
        times: int,
        pages: PageSizes,
        filters: FilterConditions,
    ) -> tuple[GraphQLNamedType | None, int, int]:
        """Add a field, and return the type, depth and factor of its selection set."""
        name = node.name.value
        own.fields += 1
        own.aliases += node.alias is not None
        own.root_fields += depth == 0
        own.depth = max(own.depth, depth + 1)
        own.values += times
        owners: list[FieldNode | DirectiveNode] = [node, *(node.directives or ())]
        for owner in owners:
            for argument in owner.arguments or ():
                own.nested = max(own.nested, _depth(argument.value))
        if name in ("__schema", "__type"):
            own.introspects = True
        found: GraphQLField | None = None
        if parent is not None:
            found = self._schema.get_field(parent, name)  # type: ignore[arg-type]
        for argument in node.arguments or ():
            if argument.name.value in _FILTERS:
                conditions = filters.count(argument.value)
                own.conditions = max(own.conditions, conditions)
                own.cost += times * conditions
            given = argument.name.value
            if found is not None and given in (*_FILTERS, "groupBy") and given in found.args:
                references = filters.references(found.args[given].type, argument.value)
                own.cost += times * references * REFERENCE_COST
            elif found is not None and given == "orderBy" and given in found.args:
                related = filters.references(found.args[given].type, argument.value)
                own.batched += related * RELATED_ORDER_COST
            if given == "search" and found is not None and given in found.args:
                own.cost += times * SEARCH_COST
        if found is None:
            return None, depth + 1, times
        items = 1
        if "first" in found.args and "last" in found.args:
            items = pages.size(node)
            own.cost += times * items
        elif "first" in found.args and "groupBy" in found.args:
            items = pages.group_count(node)
            own.cost += times * items
        elif not getattr(strawberry_field(found), "is_basic_field", True):
            # It may have to be read; see `gql.engine.definitions.field.Resolve`.
            own.cost += times * strawberry_field(found).cost
        if is_list_type(get_nullable_type(found.type)):
            items = _ITEMS.get((parent.name, name), LIST_ITEMS)  # type: ignore[union-attr]
            # The field of the connection has counted them.
            if name in ("nodes", "edges") or getattr(strawberry_field(found), "counted", False):
                items = 1
        return get_named_type(found.type), depth + 1, times * items


def _depth(value: ValueNode) -> int:
    """Return the depth of lists and objects in a value.

    Raises:
        BadUserInput: a number has too many digits.
    """
    deepest = 0
    waiting: list[tuple[ValueNode, int]] = [(value, 0)]
    while waiting:
        each, depth = waiting.pop()
        deepest = max(deepest, depth)
        if isinstance(each, ListValueNode):
            waiting += [(item, depth + 1) for item in each.values]
            deepest = max(deepest, depth + 1)
        elif isinstance(each, ObjectValueNode):
            waiting += [(item.value, depth + 1) for item in each.fields]
            deepest = max(deepest, depth + 1)
        elif isinstance(each, IntValueNode) and len(each.value) > _MOST_DIGITS:
            raise BadUserInput(
                f"digits of a number: {len(each.value):,}, maximum is {_MOST_DIGITS:,}; shorten it"
            )
    return deepest


def _resolved(fragments: Mapping[Any, _Definition]) -> Mapping[str, OperationCost]:
    """Add the costs of spreads to all fragments, those that are spread first."""
    weights: dict[str, OperationCost] = {}
    for start in fragments:
        path: dict[str, Any] = {}
        name: str | None = start
        while name is not None:
            if name not in path:
                path[name] = iter(fragments[name].spreads) if name not in weights else iter(())
            below = next((n for n, _, _ in path[name] if n in fragments and n not in weights), None)
            if below is None:
                del path[name]
                if name not in weights:
                    weights[name] = _sum(fragments[name], weights)
                name = next(reversed(path), None)
            elif below in path:
                circle = [*list(path)[list(path).index(below) :], below]
                raise BadUserInput(
                    f"fragments: they spread one another in a circle: {_shown(circle)}; remove one "
                    "of the spreads"
                )
            else:
                name = below
    return weights


def _shown(names: Sequence[str]) -> str:
    shown = names if len(names) <= 6 else [*names[:3], "…", *names[-2:]]
    return " → ".join(each if len(each) <= 40 else f"{each[:37]}..." for each in shown)


def _sum(definition: _Definition, weights: Mapping[str, OperationCost]) -> OperationCost:
    for name, depth, times in definition.spreads:
        # Validation refuses a missing fragment.

        if name in weights:
            definition.own.add(weights[name], depth, times)
    definition.spreads = []
    return definition.own
