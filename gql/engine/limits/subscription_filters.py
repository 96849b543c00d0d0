"""Budgets for the filters of open subscriptions, which stay in memory and are evaluated for each
change.

A list of values (`in`) counts as one condition for each twenty of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from revstream.gql.engine.limits.filter_conditions import conditions_in
from revstream.resolvers.errors import LimitExceeded

__all__ = ["SubscriptionFilters"]

_VALUES_PER_CONDITION = 20


class SubscriptionFilters:
    """Conditions held by all subscriptions of a process, by caller.

    Callers without a name are one caller, which may have half of what the process has.

    Args:
        per_subscription, per_caller, in_all: the most conditions; 0: no limit.
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
        """Raises:
        LimitExceeded: the filter is too large, or there is no room for it.
        """
        self._size(caller, where)

    @contextmanager
    def hold(self, caller: str, where: Mapping[str, Any] | None) -> Iterator[None]:
        """Count a filter for as long as its subscription lives.

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
        size = conditions_in(where, values_each=_VALUES_PER_CONDITION)
        _check(
            "max_subscription_conditions",
            size,
            self._per_subscription,
            "the filter of a subscription: {} conditions",
        )
        most, limit = self._per_caller, "max_principal_conditions"
        if not caller:
            most, limit = self._in_all // 2, "max_process_conditions"
        says = "the filters of the caller's subscriptions: {} conditions"
        _check(limit, self._by_caller[caller] + size, most, says)
        says = "the filters of all subscriptions: {} conditions"
        _check("max_process_conditions", self.held + size, self._in_all, says)
        return size


def _check(limit: str, asked: int, most: int, says: str) -> None:
    if 0 < most < asked:
        raise LimitExceeded(
            f"{says.format(f'{asked:,}')}, and {most:,} is the most",
            limit=limit,
            asked=asked,
            bound=most,
        )
