"""Reconnect all at once: WebSockets that subscribe, each behind a token of its own.

`python -m benchmarks.programs.storm ADDRESS COUNT SECONDS`: opened within so many seconds; and on
standard input one line of JSON: `{query, tokens, steps}`: tokens that the sockets take in turn as
`after`, and the step of the event at each.

Whoever is refused, or closed, comes again after a pause. Says `result` once each has been told
something, or after three minutes: when each of those who have was, in seconds from the beginning,
in order; and how often one was `refused`. They stay until its input ends.
"""

from __future__ import annotations

import gc
import heapq
import json
import sys
import time
from typing import Any

from benchmarks.processes import allow_sockets
from benchmarks.programs.speech import say, until_told
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

    def again(link: Link) -> None:
        nonlocal refused
        refused += 1
        heapq.heappush(due, (time.monotonic() + _PAUSE_S, link.number))

    links = Links(address, again)
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
    say("result", times_s=times, refused=refused)
    until_told()
    links.close()


def _check(link: Link, missed: list[int]) -> None:
    """It was told what lies behind its token first, in order, each once."""
    steps = [_step(json.loads(text)) for _, text in link.kept or ()]
    first = steps[: len(missed)]
    if first != missed[: len(first)] or len(steps) != len(set(steps)):
        raise SystemExit(f"socket {link.number} has missed {missed} and was told {steps}")


def _step(message: Any) -> int:
    try:
        return int(message["payload"]["data"]["productChanges"]["product"]["stock"])
    except (KeyError, TypeError):
        raise SystemExit(f"this is no event: {message}") from None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
