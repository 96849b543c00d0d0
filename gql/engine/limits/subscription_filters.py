"""Budgets for the filters of open subscriptions, which stay in memory and run for each change.

A list of values (`in`) counts as one more condition per 20 values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from revstream.gql.engine.limits.filter_conditions import count_conditions
from revstream.resolvers.errors import LimitExceeded

__all__ = ["SubscriptionFilters"]

_VALUES_PER_CONDITION = 20


class SubscriptionFilters:
    """Conditions of all open subscriptions of a process, by caller.

    Callers without a name count as one caller, which may use half of the process's budget.

    Args:
        per_subscription: maximum number of conditions of one subscription; 0: no limit.
        per_caller: the same for all subscriptions of a caller.
        in_all: the same for all subscriptions of the process.

    Attributes:
        held: conditions of all open subscriptions.
    """

    def __init__(
        self, *, per_subscription: int = 50, per_caller: int = 5000, in_all: int = 50_000
    ) -> None:
        self.held = 0
        self._per_subscription = per_subscription
        self._per_caller = per_caller
        self._in_all = in_all
        self._by_caller: Counter[str] = Counter()

    def check(self, caller: str, where: Mapping[str, Any] | None) -> None:
        """Refuse a filter that is too large, or exceeds a budget.

        Raises:
            LimitExceeded: it does.
        """
        self._size(caller, where)

    @contextmanager
    def hold(self, caller: str, where: Mapping[str, Any] | None) -> Iterator[None]:
        """Count a filter while its subscription runs.

        Raises:
            LimitExceeded: see `check`.
        """
        size = self._size(caller, where)
        self.held += size
        self._by_caller[caller] += size
        try:
            yield
        finally:
            self.held -= size
            self._by_caller[caller] -= size
            if not self._by_caller[caller]:
                del self._by_caller[caller]

    def _size(self, caller: str, where: Mapping[str, Any] | None) -> int:
        if not where:
            return 0
        size = count_conditions(where, values_each=_VALUES_PER_CONDITION)
        _check(
            "max_subscription_conditions",
            size,
            self._per_subscription,
            "conditions of a subscription's filter",
        )
        most, limit = self._per_caller, "max_principal_conditions"
        if not caller:
            most, limit = self._in_all // 2, "max_process_conditions"
        subject = "conditions in the filters of the caller's subscriptions"
        _check(limit, self._by_caller[caller] + size, most, subject)
        subject = "conditions in the filters of all subscriptions"
        _check("max_process_conditions", self.held + size, self._in_all, subject)
        return size


def _check(limit: str, asked: int, most: int, subject: str) -> None:
    if 0 < most < asked:
        raise LimitExceeded(
            f"{subject}: {asked:,}, maximum is {most:,}; use fewer conditions",
            limit=limit,
            asked=asked,
            bound=most,
        )
