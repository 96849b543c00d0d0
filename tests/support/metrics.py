"""Metrics of `/metrics`, parsed in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.support import http

__all__ = ["families", "scraped"]


def families(address: str) -> dict[str, Metric]:
    """Return metric families by name; a counter's name has its suffix."""
    response = http.get(f"{address}/metrics", timeout=30)
    assert response.headers["content-type"].startswith("text/plain")
    return {
        each.name + ("_total" if each.type == "counter" else ""): each
        for each in text_string_to_metric_families(response.text)
    }


def scraped(address: str) -> Mapping[tuple[str, ...], float]:
    """Return values by name and labels, the labels sorted by their names.

    Example: `("revstream_ring_events", "things")`. The label of a collection's only partition is
    left out.
    """
    return {
        (sample.name, *(v for _, v in sorted(sample.labels.items()) if v != "1/1")): sample.value
        for family in families(address).values()
        for sample in family.samples
    }
