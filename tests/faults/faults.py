"""Faults of a deployment, on a schedule drawn from a seed.

Faults of mongods and of gateways overlap; two of the same kind do not.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence

from pymongo.errors import PyMongoError

from tests.faults.gateway_faults import GatewayFaults
from tests.faults.mongod_faults import MongodFaults
from tests.faults.stage import Stage

__all__ = ["Faults"]

LONGEST_S = 240.0
"""The longest duration of one fault, without the time in which MongoDB is unavailable."""

Fault = Callable[[], Awaitable[str | None]]


class Faults:
    """The schedule of faults: `run` executes it and reports each fault by `say`."""

    def __init__(self, stage: Stage, say: Callable[[str], None]) -> None:
        self.stage = stage
        self.counts: Counter[str] = Counter()
        self._say = say
        self._parts = {
            "mongods": _faults_of(MongodFaults(stage)),
            "gateways": _faults_of(GatewayFaults(stage)),
        }
        self._busy: dict[str, asyncio.Task[None]] = {}
        stage.gateways.mongodb_broken = lambda: "mongods" in self._broken()

    async def run(self, duration_s: float, every_s: float, plan: Sequence[str] = ()) -> None:
        """Run a fault every `every_s` seconds from a shuffled list of all, or a plan one by one."""
        if plan:
            for name in plan:
                await self._play(name)
                await asyncio.sleep(min(every_s, 1.0))
            return
        ends_at = time.monotonic() + duration_s
        deck: deque[str] = deque()
        while time.monotonic() < ends_at:
            if len(deck) < 3:
                deck.extend(self._shuffled())
            for part in self._busy.keys() - self._broken():
                self._busy.pop(part).result()
            drawn = next((each for each in deck if self._part(each) not in self._busy), None)
            if drawn is not None:
                deck.remove(drawn)
                self._busy[self._part(drawn)] = asyncio.create_task(self._play(drawn))
            await asyncio.sleep(every_s)
        for task in self._busy.values():
            await task

    def _shuffled(self) -> list[str]:
        names = [name for part in self._parts.values() for name in part]
        if not self.stage.clocks.movable:
            names.remove("clock_jumps")
        self.stage.rng.shuffle(names)
        return names

    async def _play(self, name: str) -> None:
        self.counts[name] += 1
        began = time.monotonic()
        self._say(f"fault: {name}")
        told: str | None
        try:
            async with asyncio.timeout(LONGEST_S + self.stage.outage_s):
                told = await self._parts[self._part(name)][name]()
        except (AssertionError, TimeoutError, PyMongoError) as exc:
            self.stage.findings.append(f"{name}: {type(exc).__name__}: {exc}")
            told = f"FAILED: {exc}"
        took_s = time.monotonic() - began
        self._say(f"  {name} over after {took_s:.1f} s{f': {told}' if told else ''}")

    def _part(self, name: str) -> str:
        return next(part for part, faults in self._parts.items() if name in faults)

    def _broken(self) -> set[str]:
        return {part for part, task in self._busy.items() if not task.done()}


def _faults_of(part: object) -> dict[str, Fault]:
    """Return the public methods in order of name, so that a seed draws the same ones."""
    found = inspect.getmembers(part, inspect.iscoroutinefunction)
    return {name: method for name, method in found if not name.startswith("_")}
