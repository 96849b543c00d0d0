"""`python -m benchmarks` runs all of them, `python -m benchmarks recorder` one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import click

from benchmarks import as_of, fences, latency, memory, reads, recorder, writes
from benchmarks.machine import describe
from benchmarks.stage import Scale, Stage, open_stage

_BENCHMARKS: dict[str, Callable[[Stage], None]] = {
    "recorder": recorder.run,
    "latency": latency.run,
    "reads": reads.run,
    "writes": writes.run,
    "fences": fences.run,
    "as-of": as_of.run,
    "memory": memory.run,
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
)


@click.command(context_settings={"max_content_width": 120})
@click.argument("names", nargs=-1, type=click.Choice(list(_BENCHMARKS)))
@click.option("--quick", is_flag=True, help="A run of seconds, whose figures mean nothing.")
@click.option("--repeat", type=click.IntRange(min=1), help="Repetitions; the median is told.")
@click.option("--documents", type=click.IntRange(min=100), help="Documents of the as-of benchmark.")
def main(names: tuple[str, ...], quick: bool, repeat: int | None, documents: int | None) -> None:
    """Print what revstream costs on this machine, beside the alternatives."""
    scale = _QUICK if quick else Scale()
    given = {"repeat": repeat, "documents": documents}
    scale = replace(scale, **{name: value for name, value in given.items() if value is not None})
    for name in names or _BENCHMARKS:
        # A server of its own for each: what one leaves in caches and the oplog is its own affair.
        with open_stage(scale) as stage:
            print(describe(stage.uri, stage.gateway_cores, stage.load_cores), flush=True)
            _BENCHMARKS[name](stage)


if __name__ == "__main__":
    main()
