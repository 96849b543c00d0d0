"""Keys of broadcast groups and of cached event responses.

Subscriptions form a group if they have the same query plan and the same variables, except those
for their starting point. Subscriptions that also differ in their filters share the responses to
events that match both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Any

from graphql import VariableNode, Visitor, visit

from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.engine.request.plan import Plan

__all__ = ["group_key", "response_cache_key"]

_START_ARGUMENTS = frozenset({"after", "since", "cursor", "snapshot"})
"""Arguments that define the starting point of a subscription."""
_FILTER_ARGUMENTS = frozenset({"id", "where", "operations"})
"""Arguments that define which events match a subscription."""


def group_key(info: ResolveInfo) -> Hashable:
    """Return the key of the subscription's broadcast group.

    It is equal for subscriptions with the same plan and the same variables, except variables that
    define only the starting point. Subscriptions of different callers are kept apart elsewhere:
    the groups belong to one set of access rights.
    """
    plan = info.context.plan
    assert plan is not None
    if plan.starts is None:
        plan.starts = _variables_only_in(info, _START_ARGUMENTS)
    return _key_without(info, plan, plan.starts)


def response_cache_key(info: ResolveInfo) -> Hashable:
    """Return the key under which responses to events are cached.

    It is equal for subscriptions whose responses to an event with the same transition are equal:
    they may differ in variables that define only the starting point or the filter. As with
    `group_key`, it applies within one set of access rights.
    """
    plan = info.context.plan
    assert plan is not None
    if plan.chooses is None:
        plan.chooses = _variables_only_in(info, _START_ARGUMENTS | _FILTER_ARGUMENTS)
    return _key_without(info, plan, plan.chooses)


def _key_without(info: ResolveInfo, plan: Plan, names: frozenset[str]) -> Hashable:
    variables: Mapping[str, Any] = info.variable_values  # type: ignore[assignment]
    rest = {name: each for name, each in variables.items() if name not in names}
    # The plan itself, not its `id()`: the key keeps it alive, so the id is not reused.
    return plan, repr(sorted(rest.items()))


def _variables_only_in(info: ResolveInfo, arguments: frozenset[str]) -> frozenset[str]:
    """Return the variables that are used in these arguments and nowhere else."""
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
