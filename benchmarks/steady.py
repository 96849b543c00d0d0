"""Growth of memory under a constant mixed load: reads, updates, as-of reads, and subscribers that
connect and leave.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks.charts import curve
from benchmarks.figures import Part, Table
from benchmarks.peers.shop import MODEL, PRODUCTS, stock_up
from benchmarks.processes import Failed
from benchmarks.stage import Stage, await_versions

__all__ = ["run", "slope"]

_EVERY_S = 5.0
_LEAST_SAMPLES = 12
_RING_EVENTS = 1000
_MB = 1024 * 1024


def run(stage: Stage) -> list[Part]:
    """Run once, whatever `--repeat` is: the measurement takes long."""
    seconds = stage.scale.minutes * 60
    samples = max(_LEAST_SAMPLES, round(seconds / _EVERY_S))
    used_mb = []
    with stage.database() as database:
        stock_up(database)
        # A small ring is full within minutes: its growth is not part of the measurement.
        options = ("--schema", str(MODEL), "--ring-events", str(_RING_EVENTS))
        with stage.gateway(database, *options) as (gateway, address):
            await_versions(database, PRODUCTS)
            with stage.program("mixed", address, PRODUCTS) as load:
                load.await_event("begun")
                began, cpu_s = time.monotonic(), gateway.cpu_s()
                for n in stage.track(range(samples), "steady"):
                    time.sleep(max(0.0, began + (n + 1) * seconds / samples - time.monotonic()))
                    used_mb.append(gateway.memory_bytes() / _MB)
                took_s, cpu_s = time.monotonic() - began, gateway.cpu_s() - cpu_s
                result = load.finish()
    if not all(result["done"].values()):
        raise Failed(f"some requests failed: {result}")
    memory = Table(
        f"The gateway's memory over {stage.scale.minutes:g} minutes of mixed load",
        "",
        "MB at first",
        "at half-time",
        "in the end",
        "at most",
        "growth in the second half, KB a minute",
        "its CPU, %",
    )
    half = used_mb[samples // 2 :]
    per_sample = slope(half)
    memory.add(
        "revstream",
        used_mb[0],
        half[0],
        used_mb[-1],
        max(used_mb),
        f"{per_sample * 1024 * 60 * samples / seconds:,.0f}",
        cpu_s / took_s * 100,
    )
    load_table = Table("The mixed load", "what", "a second", "p99 ms", "failed")
    for kind, done in result["done"].items():
        # A subscriber's duration is not a latency.
        p99 = "-" if kind == "subscribers" else result["p99_ms"][kind]
        load_table.add(kind, done / took_s, p99, str(result["failed"][kind]))
    chart = curve("MB of the gateway", "minutes", stage.scale.minutes, "MB", used_mb)
    return [memory, chart, load_table]


def slope(heights: Sequence[float]) -> float:
    """Return the growth from one value to the next, by least squares."""
    middle = (len(heights) - 1) / 2
    mean = sum(heights) / len(heights)
    across = sum((n - middle) ** 2 for n in range(len(heights)))
    return sum((n - middle) * (each - mean) for n, each in enumerate(heights)) / across
