"""Metrics, for metrics.md."""

from __future__ import annotations

from revstream.gql.observability.metric_definitions import METRICS
from tools.reference.markdown import code, linked, table

__all__ = ["PARTS"]


def _metrics() -> str:
    return table(
        ("metric", "type", "labels", "meaning"),
        (
            (code(each.name), each.kind, ", ".join(map(code, each.labels)), linked(each.help))
            for each in METRICS
        ),
    )


PARTS = {"metrics": _metrics}
