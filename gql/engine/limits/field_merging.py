"""The specification's rule "Field Selection Merging", in time linear in the number of fields.

graphql-core compares every field with every other field of the same name: a document of 7 KB that
repeats one field takes seconds. Mergeability is transitive, so that each field is compared only
with the first one of its name; which fields can be in one object is decided once per type. The
remaining expensive case, fields of interfaces repeated beside those of many types, ends at a
maximum number of steps.

Source: GraphQL specification, 5.3.2; docs/decisions/0025. Its results are those of graphql-core's
rule on random documents (tests/unit/gql/engine/limits/test_field_merging.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from graphql import (
    FieldNode,
    FragmentSpreadNode,
    GraphQLError,
    GraphQLField,
    GraphQLInterfaceType,
    GraphQLNamedType,
    GraphQLObjectType,
    InlineFragmentNode,
    OperationDefinitionNode,
    OverlappingFieldsCanBeMergedRule,
    SelectionSetNode,
    ValidationRule,
    get_named_type,
    is_leaf_type,
    is_object_type,
    print_ast,
    specified_rules,
)

from revstream.gql.engine.internals.graphql_core import sort_value_node
from revstream.resolvers.errors import LimitExceeded

__all__ = ["RULES", "MergeableFields"]

MOST_STEPS = 50_000
"""Maximum number of fields visited in one operation.

Without interfaces each selected field is visited once."""


class _Selected(NamedTuple):
    """One selection of a field; `parent` and `field` are None if the schema has none."""

    node: FieldNode
    parent: GraphQLNamedType | None
    field: GraphQLField | None


Level = Sequence[tuple[SelectionSetNode, GraphQLNamedType | None]]
"""Selection sets whose fields are merged into one object of the response."""


class _Conflict(Exception):
    def __init__(self, reason: str, nodes: Sequence[FieldNode]) -> None:
        self.reason = reason
        self.nodes = nodes


class MergeableFields(ValidationRule):
    """Validation rule: fields of one response name in one object can be merged.

    Fragment cycles must have been refused before.
    """

    def enter_operation_definition(self, node: OperationDefinitionNode, *_args: Any) -> None:
        self._steps = 0
        self._arguments: dict[int, str] = {}
        root = self.context.schema.get_root_type(node.operation)
        try:
            self._merge([(node.selection_set, root)])
        except _Conflict as conflict:
            self.report_error(GraphQLError(f"{conflict.reason}.", conflict.nodes))
        except LimitExceeded as exc:
            self.report_error(GraphQLError(exc.message, node, original_error=exc))

    def _merge(self, level: Level) -> None:
        for name, group in self._collected(level).items():
            parts = list(_parts(group))
            for part in parts:
                self._one_field(name, part)
            self._one_shape(name, group)
            for part in parts:
                self._within(name, self._merge, part)
            if len(parts) > 1:
                self._within(name, self._shapes, group)

    def _shapes(self, level: Level) -> None:
        """Check fields of different objects: their types must have the same form."""
        for name, group in self._collected(level).items():
            self._one_shape(name, group)
            self._within(name, self._shapes, group)

    def _within(self, name: str, check: Any, group: Sequence[_Selected]) -> None:
        below = [
            (each.node.selection_set, get_named_type(each.field.type) if each.field else None)
            for each in group
            if each.node.selection_set is not None
        ]
        if not below:
            return
        try:
            check(below)
        except _Conflict as conflict:
            conflict.reason = conflict.reason.replace("Fields", "subfields", 1)
            raise _Conflict(
                f"Fields '{name}' conflict because {conflict.reason}", conflict.nodes
            ) from None

    def _one_shape(self, name: str, group: Iterable[_Selected]) -> None:
        first: _Selected | None = None
        for each in group:
            if each.field is None:
                continue
            if first is None or first.field is None:
                first = each
            elif _shape(first.field) != _shape(each.field):
                raise _Conflict(
                    f"Fields '{name}' conflict because they return conflicting types "
                    f"'{first.field.type}' and '{each.field.type}'",
                    [first.node, each.node],
                )

    def _one_field(self, name: str, group: Sequence[_Selected]) -> None:
        first = group[0].node
        for each in group[1:]:
            node = each.node
            if node.name.value != first.name.value:
                reason = f"'{first.name.value}' and '{node.name.value}' are different fields"
            elif self._arguments_of(node) != self._arguments_of(first):
                reason = "they have differing arguments"
            else:
                continue
            raise _Conflict(
                f"Fields '{name}' conflict because {reason}. Use different aliases on the fields "
                "to fetch both if this was intentional",
                [first, node],
            )

    def _arguments_of(self, node: FieldNode) -> str:
        if not node.arguments:
            return ""
        found = self._arguments.get(id(node))
        if found is None:
            written = [
                f"{each.name.value}: {print_ast(sort_value_node(each.value))}"
                for each in node.arguments
            ]
            found = self._arguments[id(node)] = "\n".join(sorted(written))
        return found

    def _collected(self, level: Level) -> dict[str, list[_Selected]]:
        found: dict[str, list[_Selected]] = defaultdict(list)
        seen: set[str] = set()
        schema = self.context.schema
        waiting = [(iter(each.selections), type_) for each, type_ in reversed(level)]
        while waiting:
            selections, parent = waiting[-1]
            node = next(selections, None)
            if node is None:
                waiting.pop()
            elif isinstance(node, FieldNode):
                self._step()
                name = node.alias.value if node.alias else node.name.value
                # As graphql-core: `__typename` and the like have no type that could differ.
                fields = (
                    parent.fields
                    if isinstance(parent, GraphQLObjectType | GraphQLInterfaceType)
                    else {}
                )
                field = fields.get(node.name.value)
                found[name].append(_Selected(node, parent, field))
            elif isinstance(node, InlineFragmentNode):
                condition = node.type_condition
                inner = schema.get_type(condition.name.value) if condition else parent
                waiting.append((iter(node.selection_set.selections), inner))
            elif isinstance(node, FragmentSpreadNode) and node.name.value not in seen:
                seen.add(node.name.value)
                fragment = self.context.get_fragment(node.name.value)
                if fragment is not None:
                    self._step()
                    type_ = schema.get_type(fragment.type_condition.name.value)
                    waiting.append((iter(fragment.selection_set.selections), type_))
        return found

    def _step(self) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise LimitExceeded(
                f"steps to merge the operation's fields: over {MOST_STEPS:,}, maximum is "
                f"{MOST_STEPS:,}; repeat fewer fields",
                limit="overlaps",
                asked=self._steps,
                bound=MOST_STEPS,
            )


def _parts(group: Sequence[_Selected]) -> Iterator[list[_Selected]]:
    """Group fields that may be in one object: those of one object type with those of interfaces."""
    objects: dict[Any, list[_Selected]] = defaultdict(list)
    others = []
    for each in group:
        if is_object_type(each.parent):
            objects[each.parent].append(each)
        else:
            others.append(each)
    if not objects:
        yield others
    for those in objects.values():
        yield [*those, *others]


def _shape(field: GraphQLField) -> str:
    """Return the field's type as text, without the name of a type that has fields."""
    written = str(field.type)
    named = get_named_type(field.type)
    return written if is_leaf_type(named) else written.replace(named.name, "")


RULES = tuple(
    MergeableFields if rule is OverlappingFieldsCanBeMergedRule else rule
    for rule in specified_rules
)
"""graphql-core's specified rules, with this rule instead of its own."""
