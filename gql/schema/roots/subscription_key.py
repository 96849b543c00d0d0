"""Which subscriptions are told the same: those of one plan, with the same variables but for where
they begin. Those whose filters differ as well are told the same of a change that concerns both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from graphql import VariableNode, Visitor, visit

from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.engine.request.plan import Plan

__all__ = ["group_key", "response_cache_key"]

_START_ARGUMENTS = frozenset({"after", "since", "cursor", "snapshot"})
"""The arguments of a subscription that say where it begins."""
_FILTER_ARGUMENTS = frozenset({"id", "where", "operations"})
"""Those that say which changes concern it."""


def group_key(info: ResolveInfo) -> Hashable:
    """Equal for subscriptions that are told the same from where they have caught up on, to the same
    caller: those of one plan, with the same variables but for where they begin."""
    plan = info.context.plan
    assert plan is not None
    if plan.starts is None:
        plan.starts = _variables_only_in(info, _START_ARGUMENTS)
    return _key_without(info, plan, plan.starts)


def response_cache_key(info: ResolveInfo) -> Hashable:
    """Equal for subscriptions whose responses to one change are the same, with the same transition,
    to the same caller: the variables that differ are only looked at to tell what concerns them."""
    plan = info.context.plan
    assert plan is not None
    if plan.chooses is None:
        plan.chooses = _variables_only_in(info, _START_ARGUMENTS | _FILTER_ARGUMENTS)
    return _key_without(info, plan, plan.chooses)


def _key_without(info: ResolveInfo, plan: Plan, names: frozenset[str]) -> Hashable:
    variables: Mapping[str, Any] = info.variable_values  # type: ignore[assignment]
    rest = {name: each for name, each in variables.items() if name not in names}
    # The plan itself, so that its identity is nobody else's for as long as this is a key.
    return plan, repr(sorted(rest.items()))


def _variables_only_in(info: ResolveInfo, arguments: frozenset[str]) -> frozenset[str]:
    """The variables that nothing but these arguments names."""
    named, used = _VariableCounter(), _VariableCounter()
    for each in info.field_nodes[0].arguments or ():
        if each.name.value in arguments:
            visit(each, named)
    for part in (info.operation.selection_set, *info.fragments.values()):
        visit(part, used)
    return frozenset(name for name, count in named.counts.items() if used.counts[name] == count)


class _VariableCounter(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def enter_variable(self, node: VariableNode, *_: Any) -> None:
        self.counts[node.name.value] += 1
