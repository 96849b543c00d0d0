"""What is kept of an operation once it was executed, so that the next time it need not be found out
again.

Guarantees: a plan belongs to one operation of one document under one choice of the flags that @skip
and @include look at; nothing in it depends on other variables, or on who asks.

Source: docs/decisions/0027-compiled-operations.md
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphql import DocumentNode, VariableNode, Visitor, visit

from gql.steps import Details, Step

if TYPE_CHECKING:
    from gql.direct import Direct
    from gql.selection import Selections

__all__ = ["Plan", "Plans"]


@dataclass(eq=False, slots=True)
class Plan:
    """Of one operation; filled as it is executed.

    Attributes:
        sub_fields: graphql-core's memory of the fields that it has collected.
        root: the fields collected of the root.
        steps: by the identity of fields collected, which are kept alive beside them.
        selections: what the operation selects.
        starts: variables that say where a subscription begins, and nothing else. chooses: these,
            and those that only say which changes concern it.
        direct: the query without an executor; None where there is no such thing, or not yet.
        tried: whether that was looked into.
    """

    sub_fields: dict[Any, Any] = field(default_factory=dict)
    steps: dict[int, tuple[Mapping[str, Details], Sequence[Step]]] = field(default_factory=dict)
    root: dict[str, Details] | None = None
    selections: Selections | None = None
    starts: frozenset[str] | None = None
    chooses: frozenset[str] | None = None
    direct: Direct | None = None
    tried: bool = False


class Plans:
    """Those of one document: one per operation and choice of its flags.

    Args:
        most: flags double their number.
    """

    def __init__(self, document: DocumentNode, *, most: int = 16) -> None:
        self._flags = _flags(document)
        self._plans: dict[tuple[str | None, tuple[bool, ...]], Plan] = {}
        self._most = most

    def of(self, operation: str | None, variables: Mapping[str, Any]) -> Plan:
        """Args:
        variables: coerced.
        """
        flags = tuple(bool(variables.get(name)) for name in self._flags) if self._flags else ()
        key = operation, flags
        plan = self._plans.get(key)
        if plan is None:
            plan = Plan()
            if len(self._plans) < self._most:
                self._plans[key] = plan
        return plan


class _Flags(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def enter_directive(self, node: Any, *_: Any) -> None:
        values = [each.value for each in node.arguments]
        self.names.update(each.name.value for each in values if isinstance(each, VariableNode))


def _flags(document: DocumentNode) -> Sequence[str]:
    """The variables that @skip and @include look at."""
    flags = _Flags()
    visit(document, flags)
    return sorted(flags.names)
