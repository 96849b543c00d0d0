"""What the operations of a process came to, for the metrics; and how many run on sockets now, for
the end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from graphql import GraphQLError
from prometheus_client import Histogram
from strawberry.extensions import SchemaExtension
from strawberry.schema.exceptions import CannotGetOperationTypeError
from strawberry.types import ExecutionContext
from strawberry.types.graphql import OperationType

__all__ = ["Operations", "kind_of", "timed"]

# From a lookup by id to a read at its limit.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Operations:
    """Attributes:
    seconds: how long queries and mutations took, by kind.
    begun: operations, by whether their document was "known" or "new".
    failed: responses with errors, and events of subscriptions, by kind and the first error's code.
    on_sockets: operations of any kind that now run on WebSockets.
    none_on_sockets: is set while there are none.
    """

    def __init__(self) -> None:
        self.seconds = Histogram(
            "revstream_operation_seconds",
            "How long queries and mutations took.",
            ["kind"],
            buckets=_BUCKETS,
            registry=None,
        )
        self._seconds = {
            kind.value: self.seconds.labels(kind.value)
            for kind in (OperationType.QUERY, OperationType.MUTATION)
        }
        self.begun: Counter[str] = Counter(known=0, new=0)
        self.failed: Counter[tuple[str, str]] = Counter()
        self.on_sockets = 0
        self.none_on_sockets = asyncio.Event()
        self.none_on_sockets.set()

    @contextmanager
    def on_socket(self) -> Iterator[None]:
        self.on_sockets += 1
        self.none_on_sockets.clear()
        try:
            yield
        finally:
            self.on_sockets -= 1
            if not self.on_sockets:
                self.none_on_sockets.set()

    def took(self, kind: str, seconds: float) -> None:
        timed = self._seconds.get(kind)
        if timed is not None:
            timed.observe(seconds)

    def note(self, errors: Sequence[GraphQLError], kind: str) -> None:
        """Of one response; the errors are finished."""
        code = str((errors[0].extensions or {}).get("code"))
        self.failed[kind, code] += 1


def kind_of(operation: ExecutionContext | None) -> str:
    """Query, mutation or subscription; unknown of what does not parse, and where there is no
    operation of that name."""
    try:
        return "unknown" if operation is None else operation.operation_type.value
    except (CannotGetOperationTypeError, RuntimeError):
        return "unknown"


def timed(operations: Operations) -> type[SchemaExtension]:
    """An extension that notes how long each operation took."""

    class Timed(SchemaExtension):
        def on_operation(self) -> Iterator[None]:
            began = time.perf_counter()
            yield
            operations.took(kind_of(self.execution_context), time.perf_counter() - began)

    return Timed
