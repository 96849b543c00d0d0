"""`python -m benchmarks` runs all benchmarks, `python -m benchmarks recorder` one; `--page` also
writes the results into the documentation.
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from benchmarks import (
    access,
    aggregates,
    as_of,
    bootstrap,
    copies,
    fan_out,
    fences,
    latency,
    layouts,
    limits,
    memory,
    pages,
    reads,
    recorder,
    recovery,
    sinks,
    sockets,
    startup,
    steady,
    storage,
    storm,
    takeover,
    writes,
)
from benchmarks.figures import Part, Table, over_rounds
from benchmarks.machine import describe
from benchmarks.peers import requests
from benchmarks.stage import Scale, Stage, open_stage

_BENCHMARKS: dict[str, Callable[[Stage], Sequence[Part]]] = {
    "peers": requests.run,
    "recorder": recorder.run,
    "storage": storage.run,
    "latency": latency.run,
    "reads": reads.run,
    "limits": limits.run,
    "access": access.run,
    "writes": writes.run,
    "fences": fences.run,
    "as-of": as_of.run,
    "past": as_of.run_past,
    "aggregates": aggregates.run,
    "fan-out": fan_out.run,
    "storm": storm.run,
    "memory": memory.run,
    "steady": steady.run,
    "startup": startup.run,
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
    compiling_s=0.5,
    documents=1000,
    versions=5,
    pages=3,
    aggregated=2000,
    subscribers=50,
    audience=100,
    fan_out_s=1.0,
    storm=200,
    minutes=0.2,
    sockets=200,
    sockets_s=5.0,
    bootstrap=5000,
    copies=3000,
    downtime_s=4.0,
)
# Measurements over a long time run once, whatever `--repeat` is.
_ONCE = ("steady",)
_DRAFTS = Path(__file__).parents[1] / ".build"


@click.command(context_settings={"max_content_width": 120})
@click.argument("names", nargs=-1, type=click.Choice(list(_BENCHMARKS)))
@click.option(
    "--page",
    is_flag=True,
    help="Write all results, or those of NAMES, into docs/contributing/benchmarks.md.",
)
@click.option("--quick", is_flag=True, help="Run for seconds only; the figures have no meaning.")
@click.option("--repeat", type=click.IntRange(min=1), help="Rounds; the median is printed.")
@click.option("--documents", type=click.IntRange(min=100), help="Documents of as-of and past.")
@click.option("--aggregated", type=click.IntRange(min=100), help="Documents of aggregates.")
@click.option("--audience", type=click.IntRange(min=1), help="Subscribers of fan-out.")
@click.option(
    "--storm", type=click.IntRange(min=1), help="Subscribers of storm, which reconnect at once."
)
@click.option("--minutes", type=click.FloatRange(min=0.1), help="Duration of steady.")
@click.option("--bootstrap", type=click.IntRange(min=1), help="Documents of bootstrap.")
@click.option("--copies", type=click.IntRange(min=1), help="Products of one supplier, in copies.")
@click.option("--sockets", type=click.IntRange(min=1), help="Misbehaving WebSockets, in sockets.")
@click.option(
    "--downtime-s", type=click.FloatRange(min=1), help="Seconds without a gateway, in recovery."
)
@click.option("--rate", type=click.FloatRange(min=1), help="Updates in each of these seconds.")
@click.option("--paced", is_flag=True, default=None, help="Write at this rate, not faster.")
def main(names: tuple[str, ...], page: bool, quick: bool, **given: Any) -> None:
    """Measure revstream on this machine, beside alternatives."""
    # Like Ctrl+C: all started processes are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    scale = _QUICK if quick else Scale()
    scale = replace(scale, **{name: value for name, value in given.items() if value is not None})
    of_page = pages.names(pages.BENCHMARKS.read_text(encoding="utf-8"))
    names = names or tuple(of_page if page else _BENCHMARKS)
    found, failed = _by_turns(names, scale)
    for name, (origin, repeated) in found.items():
        parts = over_rounds(repeated)
        if len(repeated) > 1:
            print(f"\n{name}, medians of {len(repeated)}:")
            _print(parts)
        if page:
            _write(name, pages.markdown(origin, parts), quick=quick)
    if failed:
        raise click.ClickException(f"not measured: {', '.join(failed)}")


def _by_turns(
    names: Sequence[str], scale: Scale
) -> tuple[dict[str, tuple[str, list[Sequence[Part]]]], list[str]]:
    """Run the benchmarks in rounds; returns their results by round, and the names that failed.

    With each result is the description of the machine at its last run. Several benchmarks take
    turns: on a host that is slow for minutes, three repetitions in a row are hardly more than one.
    """
    rounds = 1 if len(names) == 1 else scale.repeat
    if rounds > 1:
        scale = replace(scale, repeat=1)
    found: dict[str, tuple[str, list[Sequence[Part]]]] = {}
    failed: list[str] = []
    for round_ in range(rounds):
        for name in names:
            # In the last round: the rounds of the others should be close together in time.
            if name in failed or (name in _ONCE and round_ < rounds - 1):
                continue
            try:
                origin, parts = _run(name, replace(scale, round_=round_))
            except Exception:
                # Any error: the other benchmarks take long and do not depend on this one.
                traceback.print_exc()
                failed.append(name)
                found.pop(name, None)
                continue
            _, before = found.get(name, ("", []))
            found[name] = origin, [*before, parts]
    return found, failed


def _run(name: str, scale: Scale) -> tuple[str, Sequence[Part]]:
    """Run a benchmark and print its results; returns them and a description of the machine."""
    # A server for each benchmark: caches and oplog of the previous one do not matter.
    oplog_mb = {"bootstrap": bootstrap.OPLOG_MB}.get(name, 2048)
    with open_stage(scale, oplog_mb=oplog_mb) as stage:
        origin = describe(stage.uri, stage.gateway_cores, stage.load_cores)
        print(origin, flush=True)
        parts = _BENCHMARKS[name](stage)
    _print(parts)
    return origin, parts


def _print(parts: Sequence[Part]) -> None:
    for part in parts:
        if isinstance(part, Table):
            print(f"\n{part.markdown()}\n", flush=True)


def _write(name: str, made: str, *, quick: bool) -> None:
    """Write results into the page, or into a draft of it if the figures are from a quick run."""
    place = pages.LAYOUTS if name == "layouts" else pages.BENCHMARKS
    text = place.read_text(encoding="utf-8")
    if quick:
        _DRAFTS.mkdir(exist_ok=True)
        place = _DRAFTS / place.name
        text = place.read_text(encoding="utf-8") if place.exists() else text
    place.write_text(pages.fill(text, name, made), encoding="utf-8")
    print(f"written into {place}", flush=True)


if __name__ == "__main__":
    main()
