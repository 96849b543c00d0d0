"""Page sizes of the fields of an operation, before it is validated or executed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphql import DocumentNode, FieldNode, IntValueNode, ValueNode, VariableNode

from revstream.resolvers.aggregates.query import DEFAULT_GROUPS, MAX_GROUPS
from revstream.resolvers.pagination.page import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE

__all__ = ["PageSizes"]


class PageSizes:
    """Numbers of items of the pages of an operation, with its variables.

    A value that is not a number is ignored here and refused later.

    Attributes:
        varied: a variable was used.
    """

    def __init__(self, document: DocumentNode, variables: Mapping[str, Any]) -> None:
        self._variables = variables
        self._defaults: dict[str, int] = {}
        self.varied = False
        for each in document.definitions:
            for defined in getattr(each, "variable_definitions", ()) or ():
                size = self._number(defined.default_value)
                if size is not None:
                    name = defined.variable.name.value
                    # A fragment's variable may belong to any operation: the largest default counts.
                    self._defaults[name] = max(size, self._defaults.get(name, 0))

    def size(self, node: FieldNode) -> int:
        given = [
            self._number(each.value)
            for each in node.arguments or ()
            if each.name.value in ("first", "last")
        ]
        sizes = [each for each in given if each is not None]
        if not sizes:
            return DEFAULT_PAGE_SIZE
        # A longer page is refused when it is read.
        return max(1, *sizes) if max(sizes) <= MAX_PAGE_SIZE else 1

    def group_count(self, node: FieldNode) -> int:
        """Return the maximum number of groups of an aggregate; the totals count as one."""
        given = {each.name.value: each.value for each in node.arguments or ()}
        if "groupBy" not in given:
            return 1
        number = self._number(given.get("first"))
        if number is None:
            return DEFAULT_GROUPS
        # More groups are refused later.
        return max(1, number) if number <= MAX_GROUPS else 1

    def _number(self, value: ValueNode | None) -> int | None:
        if isinstance(value, IntValueNode):
            return int(value.value) if len(value.value) < 10 else MAX_PAGE_SIZE + 1
        if not isinstance(value, VariableNode):
            return None
        self.varied = True
        name = value.name.value
        if name not in self._variables:
            return self._defaults.get(name)
        given = self._variables[name]
        if not isinstance(given, int | float):
            return None
        return int(given) if -1e9 < given < 1e9 else MAX_PAGE_SIZE + 1
