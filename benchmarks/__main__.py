"""`python -m benchmarks` runs all of them, `python -m benchmarks recorder` one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from benchmarks import (
    access,
    as_of,
    bootstrap,
    copies,
    fences,
    latency,
    layouts,
    limits,
    memory,
    reads,
    recorder,
    recovery,
    sinks,
    sockets,
    storage,
    takeover,
    writes,
)
from benchmarks.machine import describe
from benchmarks.stage import Scale, Stage, open_stage

_BENCHMARKS: dict[str, Callable[[Stage], None]] = {
    "recorder": recorder.run,
    "storage": storage.run,
    "latency": latency.run,
    "reads": reads.run,
    "limits": limits.run,
    "access": access.run,
    "writes": writes.run,
    "fences": fences.run,
    "as-of": as_of.run,
    "memory": memory.run,
    "sockets": sockets.run,
    "layouts": layouts.run,
    "takeover": takeover.run,
    "recovery": recovery.run,
    "sinks": sinks.run,
    "bootstrap": bootstrap.run,
    "copies": copies.run,
}
_QUICK = Scale(
    repeat=1,
    updates=3000,
    writes_s=1.0,
    requests_s=0.5,
    documents=1000,
    versions=5,
    pages=3,
    subscribers=50,
    sockets=200,
    crowd_s=5.0,
    bootstrap=5000,
    copies=3000,
    downtime_s=4.0,
)


@click.command(context_settings={"max_content_width": 120})
@click.argument("names", nargs=-1, type=click.Choice(list(_BENCHMARKS)))
@click.option("--quick", is_flag=True, help="A run of seconds, whose figures mean nothing.")
@click.option("--repeat", type=click.IntRange(min=1), help="Repetitions; the median is told.")
@click.option("--documents", type=click.IntRange(min=100), help="Documents of the as-of benchmark.")
@click.option("--bootstrap", type=click.IntRange(min=1), help="Documents to be read first.")
@click.option("--copies", type=click.IntRange(min=1), help="Products of one supplier.")
@click.option("--sockets", type=click.IntRange(min=1), help="WebSockets that misbehave.")
@click.option("--downtime-s", type=click.FloatRange(min=1), help="Seconds to recover from.")
@click.option("--rate", type=click.FloatRange(min=1), help="Updates in each of those seconds.")
@click.option("--paced", is_flag=True, default=None, help="Written at that rate, not faster.")
def main(names: tuple[str, ...], quick: bool, **given: Any) -> None:
    """Print what revstream costs on this machine, beside the alternatives."""
    scale = _QUICK if quick else Scale()
    scale = replace(scale, **{name: value for name, value in given.items() if value is not None})
    for name in names or _BENCHMARKS:
        # A server of its own for each: what one leaves in caches and the oplog is its own affair.
        oplog_mb = {"bootstrap": bootstrap.OPLOG_MB}.get(name, 2048)
        with open_stage(scale, oplog_mb=oplog_mb) as stage:
            print(describe(stage.uri, stage.gateway_cores, stage.load_cores), flush=True)
            _BENCHMARKS[name](stage)


if __name__ == "__main__":
    main()
