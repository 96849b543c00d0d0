"""Reconnect many WebSockets at once; each subscribes after a resume token.

`python -m benchmarks.programs.storm ADDRESS COUNT SECONDS`: opens them within this time; and on
standard input one line of JSON: `{query, tokens, steps}`: tokens that the sockets use in turn as
`after`, and the step of the event at each.

A refused or closed socket reconnects after a pause. Writes `result` once each socket has received
an event, or after three minutes: the times of the first events in seconds since the start, sorted;
and how often a socket was `refused`. The sockets stay open until its input ends.
"""

from __future__ import annotations

import gc
import heapq
import json
import sys
import time
from typing import Any

from benchmarks.processes import allow_sockets
from benchmarks.programs.messages import emit, wait_for_end
from benchmarks.socket_load import Link, Links

_CHECKED = 100
_PAUSE_S = 0.5
_LATEST_S = 180.0


def main(address: str, count: int, seconds: float) -> None:
    asked = json.loads(sys.stdin.readline())
    allow_sockets()
    gc.disable()
    refused = 0
    began = time.monotonic()
    due = [(began + n * seconds / count, n) for n in range(count)]
    members: dict[int, Link] = {}

    def reconnect(link: Link) -> None:
        nonlocal refused
        refused += 1
        heapq.heappush(due, (time.monotonic() + _PAUSE_S, link.number))

    links = Links(address, reconnect)
    while links.arrived < count and (now := time.monotonic()) < began + _LATEST_S:
        while due and due[0][0] <= now:
            _, n = heapq.heappop(due)
            variables = {"after": asked["tokens"][n % len(asked["tokens"])]}
            payload = {"query": asked["query"], "variables": variables}
            members[n] = Link(n, payload, [] if n < _CHECKED else None)
            links.open(members[n])
        links.turn(0.01)
    for n in range(min(_CHECKED, count)):
        _check(members[n], asked["steps"][n % len(asked["tokens"]) + 1 :])
    times = sorted(each.first_ns / 1e9 - began for each in members.values() if each.first_ns)
    emit("result", times_s=times, refused=refused)
    wait_for_end()
    links.close()


def _check(link: Link, missed: list[int]) -> None:
    """Check that the first events are those after its token, in order, each once."""
    steps = [_step(json.loads(text)) for _, text in link.kept or ()]
    first = steps[: len(missed)]
    if first != missed[: len(first)] or len(steps) != len(set(steps)):
        raise SystemExit(f"socket {link.number} has missed {missed} and received {steps}")


def _step(message: Any) -> int:
    try:
        return int(message["payload"]["data"]["productChanges"]["product"]["stock"])
    except (KeyError, TypeError):
        raise SystemExit(f"this is no event: {message}") from None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
