"""Hints for fields that a type has not: the object of that type which has them."""

from __future__ import annotations

from graphql import FieldNode, get_named_type, is_interface_type, is_object_type

from revstream.gql.engine.hints.given import ELLIPSIS

__all__ = ["hint_for_field"]

# Objects around those of the model: of connections, edges, groups, and versions.
_AROUND = ("nodes", "node", "sum", "key", "document")


def hint_for_field(parent: object, node: FieldNode) -> str | None:
    """Return a hint for a field that its parent type has not.

    Args:
        parent: the type that the field is selected of; any other is passed over.
        node: the selection.
    """
    if not (is_object_type(parent) or is_interface_type(parent)):
        return None
    name = node.name.value
    selected = f"{name} {{ {ELLIPSIS} }}" if node.selection_set else name
    found = []
    for each in _AROUND:
        inner = get_named_type(parent.fields[each].type) if each in parent.fields else None
        if (is_object_type(inner) or is_interface_type(inner)) and name in inner.fields:
            found.append(f"{each} {{ {selected} }}")
    return f"Select it in {' or '.join(found)}." if found else None
