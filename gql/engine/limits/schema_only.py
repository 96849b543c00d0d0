"""Operations that select nothing but the schema: they need neither the database nor a slot."""

from __future__ import annotations

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    InlineFragmentNode,
    OperationDefinitionNode,
    OperationType,
    SelectionSetNode,
)

__all__ = ["asks_schema_only", "operation_asks_schema_only"]


def asks_schema_only(document: DocumentNode, operation: OperationDefinitionNode) -> bool:
    """Return whether a query's root fields are `__typename`, `__schema` and `__type` alone."""
    if operation.operation is not OperationType.QUERY:
        return False
    fragments = {
        each.name.value: each
        for each in document.definitions
        if isinstance(each, FragmentDefinitionNode)
    }
    waiting: list[SelectionSetNode] = [operation.selection_set]
    visited: set[str] = set()
    while waiting:
        for each in waiting.pop().selections:
            if isinstance(each, FieldNode):
                if not each.name.value.startswith("__"):
                    return False
            elif isinstance(each, InlineFragmentNode):
                waiting.append(each.selection_set)
            elif isinstance(each, FragmentSpreadNode) and each.name.value not in visited:
                visited.add(each.name.value)
                fragment = fragments.get(each.name.value)
                if fragment is None:
                    return False
                waiting.append(fragment.selection_set)
    return True


def operation_asks_schema_only(document: DocumentNode | None, name: str | None) -> bool:
    """Return the same for the operation of a name; for the only one if the name is None."""
    found = [
        each
        for each in (() if document is None else document.definitions)
        if isinstance(each, OperationDefinitionNode)
        and (name is None or (each.name is not None and each.name.value == name))
    ]
    return document is not None and len(found) == 1 and asks_schema_only(document, found[0])
