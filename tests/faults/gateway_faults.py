"""Faults of gateways. Each breaks something and returns once all gateways are ready."""

from __future__ import annotations

import asyncio
import time

from tests.faults.gateways import Gateway
from tests.faults.stage import Stage, Takeover

__all__ = ["GatewayFaults"]

LISTENER = "recorder:things"
NOTICED_S = 30.0


class GatewayFaults:
    """Faults of gateways: the public methods; each returns a description of what it did."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def kill_holder(self) -> str:
        holder, token = await self._holder()
        await self.stage.gateways.end(holder, "kill")
        seconds = await self._taken_over("kill -9", token)
        await self.stage.gateways.start(holder)
        await self.stage.gateways.until_ready()
        return f"{holder.name}, taken over after {seconds:.1f} s"

    async def end_holder(self) -> str:
        holder, token = await self._holder()
        began = time.monotonic()
        ending = asyncio.create_task(self.stage.gateways.end(holder, "terminate"))
        seconds = await self._taken_over("SIGTERM", token)
        await ending
        ended_s = time.monotonic() - began
        if holder.exits[-1] != 0:
            self.stage.findings.append(f"{holder.name} exits with {holder.exits[-1]} after SIGTERM")
        await self.stage.gateways.start(holder)
        await self.stage.gateways.until_ready()
        return f"{holder.name}, taken over after {seconds:.1f} s, ended after {ended_s:.1f} s"

    async def roll_gateways(self) -> None:
        """Restart the gateways one by one, as a deployment does."""
        for each in self.stage.gateways.all:
            await self.stage.gateways.end(each, "terminate")
            if each.exits[-1] != 0:
                self.stage.findings.append(f"{each.name} exits with {each.exits[-1]} after SIGTERM")
            await self.stage.gateways.start(each)
            await self.stage.gateways.until_ready()

    async def kill_all_gateways(self) -> None:
        for each in self.stage.gateways.all:
            await self.stage.gateways.end(each, "kill")
        await asyncio.sleep(self.stage.rng.uniform(0.0, 2.0))
        for each in self.stage.gateways.all:
            await self.stage.gateways.start(each)
        await self.stage.gateways.until_ready(within_s=120)

    async def stop_holder(self) -> str:
        """Stop the lease holder by SIGSTOP for longer than its lease.

        After that its writes must be refused, and it must continue as a follower. Sometimes its
        earlier messages arrive only then.
        """
        holder, token = await self._holder()
        seen = holder.log_size()
        assert holder.process is not None
        pid = holder.process.pid
        late = self.stage.rng.random() < 0.5
        servers = [each.name for each in self.stage.cluster.members]
        if late:
            await self.stage.cluster.network.cut(holder.name, servers)
            await asyncio.sleep(0.3)
        holder.stop()
        try:
            seconds = await self._taken_over("SIGSTOP", token, at_least_s=self.stage.lease_s + 1)
        finally:
            if late:
                await self.stage.cluster.network.heal(holder.name, servers)
                await asyncio.sleep(0.5)
            holder.go_on()
        deadline = time.monotonic() + NOTICED_S
        reason = None
        while time.monotonic() < deadline and reason is None:
            for line in holder.lines(after=seen):
                if line.get("event") == "lease lost":
                    reason = str(line.get("reason", "it is another's"))
                if line.get("event") == "work interrupted":
                    reason = f"interrupted: {line.get('reason')}"
            await asyncio.sleep(0.2)
        if reason is None:
            self.stage.findings.append(f"{holder.name} did not notice that its lease was lost")
        await self.stage.gateways.until_ready()
        if holder.process.pid != pid:
            self.stage.findings.append(f"{holder.name} did not go on as a follower: it ended")
        told = f"{holder.name}, taken over after {seconds:.1f} s; it noticed: {reason}"
        return f"{told}; its last writes came after that" if late else told

    async def cut_gateway(self) -> str:
        """Cut one gateway, mostly the lease holder, from the primary or from all mongods."""
        gateway = self.stage.rng.choice(self.stage.gateways.all)
        if self.stage.rng.random() < 0.6:
            gateway, _ = await self._holder()
        mode = self.stage.rng.choice(("hold", "reset"))
        servers = [each.name for each in self.stage.cluster.members]
        if self.stage.rng.random() < 0.5:
            servers = [(await self.stage.cluster.primary()).name]
        await self.stage.cluster.network.cut(gateway.name, servers, mode=mode)
        try:
            await asyncio.sleep(self.stage.rng.uniform(0.5, 1.5) * self.stage.lease_s)
        finally:
            await self.stage.cluster.network.heal(gateway.name, servers)
        await self.stage.gateways.until_ready()
        return f"{gateway.name} from {', '.join(servers)} ({mode})"

    async def _holder(self) -> tuple[Gateway, int]:
        """Return the current lease holder and its fencing token."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            lease = self.stage.fences.leases.get(LISTENER)
            # Judged by renewals and not by its time: clocks jump.
            renewed_s = time.monotonic() - self.stage.fences.renewed.get(LISTENER, 0.0)
            if lease and lease.get("holder") and renewed_s < self.stage.lease_s / 2:
                found = self.stage.gateways.by_holder(lease["holder"])
                if found is not None and found.runs and not found.stopped:
                    return found, int(lease["fencingToken"])
            await asyncio.sleep(0.1)
        raise AssertionError(f"nobody holds {LISTENER}: {self.stage.fences.leases.get(LISTENER)}")

    async def _taken_over(self, why: str, token: int, *, at_least_s: float = 0.0) -> float:
        """Wait until another process holds the lease, at least `at_least_s` seconds."""
        began = time.monotonic()
        undisturbed = not self.stage.gateways.mongodb_broken()
        deadline = began + self.stage.lease_s + 90
        seconds = None
        while seconds is None or time.monotonic() - began < at_least_s:
            undisturbed &= not self.stage.gateways.mongodb_broken()
            lease = self.stage.fences.leases.get(LISTENER, {})
            # A higher token shows that another process has taken the lease; `changes` has the time.
            if seconds is None and lease.get("fencingToken", 0) > token:
                taken = next(
                    t
                    for t, name, number, _ in self.stage.fences.changes
                    if name == LISTENER and number > token
                )
                seconds = taken - began
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"nobody has taken over after {why} in {self.stage.lease_s + 90} s"
                )
            await asyncio.sleep(0.05)
        self.stage.takeovers.append(Takeover(why, seconds, undisturbed))
        return seconds
