"""Which subscriptions are told the same: those of one plan, with the same variables but for where
they begin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from graphql import VariableNode, Visitor, visit

from gql.context import ResolveInfo

__all__ = ["shared_key"]

_BEGINNING = frozenset({"after", "since", "cursor", "snapshot"})
"""The arguments of a subscription that say where it begins."""


def shared_key(info: ResolveInfo) -> Hashable:
    """Equal for subscriptions that are told the same from where they have caught up on, to the same
    caller: those of one plan, with the same variables but for where they begin."""
    plan = info.context.plan
    assert plan is not None
    if plan.starts is None:
        plan.starts = _starts(info)
    variables: Mapping[str, Any] = info.variable_values  # type: ignore[assignment]
    rest = {name: each for name, each in variables.items() if name not in plan.starts}
    # The plan itself, so that its identity is nobody else's for as long as this is a key.
    return plan, repr(sorted(rest.items()))


def _starts(info: ResolveInfo) -> frozenset[str]:
    node = info.field_nodes[0]
    named = [
        each.value.name.value
        for each in node.arguments or ()
        if each.name.value in _BEGINNING and isinstance(each.value, VariableNode)
    ]
    used = _Used()
    for each in (info.operation.selection_set, *info.fragments.values()):
        visit(each, used)
    return frozenset(name for name in named if used.counts[name] == named.count(name))


class _Used(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def enter_variable(self, node: VariableNode, *_: Any) -> None:
        self.counts[node.name.value] += 1
