"""Operation metrics of a process, and the number of operations that run on WebSockets."""

from __future__ import annotations

import asyncio
import itertools
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from graphql import GraphQLError
from prometheus_client.core import HistogramMetricFamily
from strawberry.extensions import SchemaExtension
from strawberry.schema.exceptions import CannotGetOperationTypeError
from strawberry.types import ExecutionContext
from strawberry.types.graphql import OperationType

from revstream.gql.observability.fallback_metrics import FallbackCounter

__all__ = ["Operations", "kind_of", "timed"]

# Seconds: from a lookup by id to a read at its time limit.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Operations:
    """Counters of operations; a context manager around each operation on a WebSocket.

    Attributes:
        begun: operations, by whether their document was "known" or "new".
        failed: responses and subscription events with errors, by kind and first error's code.
        fallbacks: queries and objects that graphql-core executed instead of generated code.
        on_sockets: operations of any kind that run on WebSockets.
        none_on_sockets: event that is set while there are none.
    """

    def __init__(self) -> None:
        kinds = (OperationType.QUERY.value, OperationType.MUTATION.value)
        # One count per bucket, and one beyond the last.
        self._counts = {kind: [0] * (len(_BUCKETS) + 1) for kind in kinds}
        self._seconds = dict.fromkeys(kinds, 0.0)
        self.begun: Counter[str] = Counter(known=0, new=0)
        self.failed: Counter[tuple[str, str]] = Counter()
        self.fallbacks = FallbackCounter()
        self.on_sockets = 0
        self.none_on_sockets = asyncio.Event()
        self.none_on_sockets.set()

    def __enter__(self) -> None:
        """Count an operation that begins on a WebSocket."""
        self.on_sockets += 1
        self.none_on_sockets.clear()

    def __exit__(self, *_: object) -> None:
        self.on_sockets -= 1
        if not self.on_sockets:
            self.none_on_sockets.set()

    def took(self, kind: str, seconds: float) -> None:
        """Record the duration of a query or mutation.

        prometheus_client's histogram searches its buckets and takes two locks for each observation:
        a thirtieth of the time of a lookup by id.
        """
        counts = self._counts.get(kind)
        if counts is not None:
            counts[bisect_left(_BUCKETS, seconds)] += 1
            self._seconds[kind] += seconds

    def durations(self) -> HistogramMetricFamily:
        """Return the durations of queries and mutations as a histogram, by kind."""
        family = HistogramMetricFamily(
            "revstream_operation_seconds", "Duration of queries and mutations.", labels=["kind"]
        )
        bounds = [*(str(float(each)) for each in _BUCKETS), "+Inf"]
        for kind, counts in self._counts.items():
            buckets = zip(bounds, itertools.accumulate(counts), strict=True)
            family.add_metric([kind], list(buckets), self._seconds[kind])
        return family

    def note(self, errors: Sequence[GraphQLError], kind: str) -> None:
        """Count a response whose errors are finished."""
        code = str((errors[0].extensions or {}).get("code"))
        self.failed[kind, code] += 1


def kind_of(operation: ExecutionContext | None) -> str:
    """Return query, mutation or subscription.

    "unknown" if the document does not parse or has no operation of the given name.
    """
    try:
        return "unknown" if operation is None else operation.operation_type.value
    except (CannotGetOperationTypeError, RuntimeError):
        return "unknown"


def timed(operations: Operations) -> type[SchemaExtension]:
    """Return an extension that records the duration of each operation."""

    class Timed(SchemaExtension):
        def on_operation(self) -> Iterator[None]:
            began = time.perf_counter()
            yield
            operations.took(kind_of(self.execution_context), time.perf_counter() - began)

    return Timed
