"""Subscribe on many WebSockets, count the events, and record the arrival times of some sockets.

`python -m benchmarks.programs.audience ADDRESS COUNT KEPT`, and on standard input one line of JSON:
`{query, variables}`, a list of variables that the sockets use in turn.

Writes `subscribed`, `live` once every socket has received an event, `quiet` once no more events
arrive, and in the end `result`:
`counts` of `[bin, texts]`, `kept` of `[socket, stock, ns]` of KEPT sockets or more, and `busy_s`,
CPU seconds.
"""

from __future__ import annotations

import gc
import json
import math
import re
import sys
import threading
import time

from benchmarks.processes import allow_sockets
from benchmarks.programs.messages import emit, wait_for_end
from benchmarks.socket_load import Link, Links

_AT_ONCE = 200
_QUIET_S, _LATEST_S = 1.0, 20.0
_STOCK = re.compile(rb'"stock":\s*(\d+)')


def main(address: str, count: int, kept: int) -> None:
    asked = json.loads(sys.stdin.readline())
    told = threading.Event()
    threading.Thread(target=_wait, args=(told,), daemon=True).start()
    allow_sockets()
    # There are no reference cycles here, and a collection would count as latency.
    gc.disable()
    links = Links(address, _lost)
    # Spread over all: a server writes to one after the other, perhaps in order of connection.
    every = count // kept
    members = [
        Link(
            n,
            {"query": asked["query"], "variables": asked["variables"][n % len(asked["variables"])]},
            [] if n % every == 0 else None,
        )
        for n in range(count)
    ]
    for n, link in enumerate(members):
        links.open(link)
        while n - links.subscribed >= _AT_ONCE:
            links.turn(0.1)
    while links.subscribed < count:
        links.turn(0.1)
    emit("subscribed")
    while links.arrived < count and not told.is_set():
        links.turn(0.1)
    emit("live")
    _until_quiet(links, math.inf)
    emit("quiet")
    while not told.is_set():
        links.turn(0.1)
    # Late events are not lost.
    _until_quiet(links, _LATEST_S)
    emit(
        "result",
        counts=sorted(links.counts.items()),
        kept=[
            (link.number, int(found[1]), at_ns)
            for link in members
            for at_ns, text in link.kept or ()
            if (found := _STOCK.search(text))
        ],
        busy_s=time.process_time(),
    )
    links.close()


def _wait(told: threading.Event) -> None:
    wait_for_end()
    told.set()


def _until_quiet(links: Links, latest_s: float) -> None:
    """Wait until no event has arrived for a while."""
    until = time.monotonic() + latest_s
    seen, since = -1, time.monotonic()
    while time.monotonic() < until:
        links.turn(0.1)
        if links.texts != seen:
            seen, since = links.texts, time.monotonic()
        elif time.monotonic() - since > _QUIET_S:
            return


def _lost(link: Link) -> None:
    raise SystemExit(f"the server has closed socket {link.number}: {link.rest!r}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
