"""The gateway's counters in Prometheus' text form; read from the parts when somebody asks, never
pushed by them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

__all__ = ["metrics_route"]

Statistics = Callable[[], Mapping[str, Mapping[str, Any]]]


class _Parts(Collector):
    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        for part, counters in self._statistics().items():
            kind, _, name = part.partition(":")
            for counter, value in counters.items():
                if not isinstance(value, int | float):
                    continue
                metric = f"revstream_{kind}_{counter.removesuffix('_s')}" + (
                    "_seconds" if counter.endswith("_s") else ""
                )
                family = families.get(metric)
                if family is None:
                    labels = ["collection"] if name else []
                    family = families[metric] = GaugeMetricFamily(
                        metric, f"{counter} of the {kind}", labels=labels
                    )
                family.add_metric([name] if name else [], float(value))
        yield from families.values()


def metrics_route(statistics: Statistics) -> Route:
    """`GET /metrics`."""
    registry = CollectorRegistry()
    registry.register(_Parts(statistics))

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Route("/metrics", metrics)
