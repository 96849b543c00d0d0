"""Thousands of subscribers whose connections broke reconnect within a second with their tokens.

The missed events are in the gateway's ring buffer. Meanwhile writes continue, and other subscribers
stay connected and receive them. All clients share a core with mongod.
"""

from __future__ import annotations

import json
import math
import time
import urllib.request
from dataclasses import dataclass
from typing import Any

from benchmarks.charts import curve
from benchmarks.fan_out import ALL, awaken
from benchmarks.figures import Part, Table, medians, percentile
from benchmarks.peers.shop import MODEL, PRODUCTS, stock_up
from benchmarks.processes import Failed, Process, allow_sockets
from benchmarks.stage import Stage, await_versions

__all__ = ["run"]

_STAYING, _WRITES_PER_S = 100, 2
_MISSED = 20
_WITHIN_S, _CALM_S = 1.0, 12.0
_RESUMED = ALL.replace("subscription", "subscription ($after: ResumeToken!)").replace(
    "productChanges", "productChanges(after: $after)"
)
_VERSIONS = f"""
{{ productVersions(first: {_MISSED + 1}) {{ nodes {{ resumeToken document {{ stock }} }} }} }}
"""
_COUNTED = ("insert", "query", "update", "delete", "getmore", "command")
_MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Mark:
    """A time, and the counters at this time."""

    at_ns: int
    commands: int
    cpu_s: float


def run(stage: Stage) -> list[Part]:
    allow_sockets()
    count = stage.scale.storm
    storms, before, during = [], [], []
    for _ in stage.rounds("storm"):
        storm, calm, meanwhile, times = _measure(stage)
        storms.append(storm)
        before.append(calm)
        during.append(meanwhile)
    back = Table(
        f"{count:,} subscribers come back within {_WITHIN_S:g} s, 1 to {_MISSED} events behind",
        "",
        "half received, s",
        "99%",
        "all",
        "refused, or closed",
        "MongoDB's commands for each",
        "gateway MB at most",
    )
    back.add("revstream", *medians(storms))
    others = Table(
        f"{_STAYING} others that stayed, {_WRITES_PER_S} writes/s",
        "when",
        "p50 ms",
        "p99 ms",
        "MongoDB's commands/s",
        "gateway's CPU, %",
    )
    others.add("before", *medians(before))
    others.add("meanwhile", *medians(during))
    shares = [times[min(count - 1, count * n // 50)] for n in range(51)]
    shares = [each for each in shares if math.isfinite(each)]
    chart = curve(
        "seconds until so many received an event", "% of them", 2 * len(shares) - 2, "s", shares
    )
    return [back, others, chart]


def _measure(stage: Stage) -> tuple[list[float], list[float], list[float], list[float]]:
    """Return figures of the storm, of the calm before, of the other subscribers, and all times.

    The times are the seconds until each subscriber received an event.
    """
    count = stage.scale.storm
    with stage.database() as database:
        stock_up(database)
        options = ("--schema", str(MODEL), "--sockets", str(count + 2 * _STAYING))
        with stage.gateway(database, *options) as (gateway, address):
            await_versions(database, PRODUCTS)
            with stage.program("audience", address, _STAYING, _STAYING) as staying:
                staying.send_json(query=ALL, variables=[{}])
                staying.await_event("subscribed")
                awaken(database, staying, range(1))
                writing = ("write", stage.uri, database.name, PRODUCTS, _WRITES_PER_S)
                with stage.program("steady", *writing) as writer:
                    writer.await_event("begun")
                    calm = _mark(stage, gateway)
                    time.sleep(_CALM_S)
                    missed = _missed(address)
                    with stage.program("storm", address, count, _WITHIN_S) as storming:
                        began = _mark(stage, gateway)
                        told = _result(storming, missed)
                        # Before all of them disconnect.
                        ended = _mark(stage, gateway)
                    most_bytes = gateway.memory_bytes("VmHWM")
                    written = dict(writer.finish()["times"])
                kept = staying.finish()["kept"]
    # A subscriber without an event counts as the last one.
    times = told["times_s"] + [math.inf] * (count - len(told["times_s"]))
    usual = (began.commands - calm.commands) / (began.at_ns - calm.at_ns)
    more = ended.commands - began.commands - usual * (ended.at_ns - began.at_ns)
    storm = [
        percentile(times, 0.5),
        percentile(times, 0.99),
        times[-1],
        float(told["refused"]),
        more / count,
        most_bytes / _MB,
    ]
    return (
        storm,
        _others(calm, began, written, kept),
        _others(began, ended, written, kept),
        times,
    )


def _result(storming: Process, missed: dict[str, int]) -> dict[str, Any]:
    # After the last event there may be none yet.
    tokens, steps = list(missed)[:-1], list(missed.values())
    storming.send_json(query=_RESUMED, tokens=tokens, steps=steps)
    return storming.await_event("result", timeout_s=300)


def _others(
    first: _Mark, last: _Mark, written: dict[int, int], kept: list[tuple[int, int, int]]
) -> list[float]:
    latencies = [
        (at - written[step]) / 1e6
        for _, step, at in kept
        if step in written and first.at_ns <= written[step] < last.at_ns
    ]
    took_s = (last.at_ns - first.at_ns) / 1e9
    return [
        percentile(latencies, 0.5),
        percentile(latencies, 0.99),
        (last.commands - first.commands) / took_s,
        (last.cpu_s - first.cpu_s) / took_s * 100,
    ]


def _mark(stage: Stage, gateway: Process) -> _Mark:
    counters = stage.client.admin.command("serverStatus")["opcounters"]
    commands = sum(int(counters[name]) for name in _COUNTED)
    return _Mark(time.monotonic_ns(), commands, gateway.cpu_s())


def _missed(address: str) -> dict[str, int]:
    """Return the last events, oldest first: the step of each by its token."""
    body = json.dumps({"query": _VERSIONS}).encode()
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(f"{address}/graphql", data=body, headers=headers)
    with urllib.request.urlopen(asked) as response:
        answer = json.load(response)
    if answer.get("errors"):
        raise Failed(f"{answer['errors']}")
    newest_first = answer["data"]["productVersions"]["nodes"]
    return {each["resumeToken"]: each["document"]["stock"] for each in reversed(newest_first)}
