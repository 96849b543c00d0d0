"""Faults of mongods. Each breaks something and returns once it is repaired."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from pymongo.errors import ConnectionFailure, PyMongoError
from pymongo.read_concern import ReadConcern

from tests.faults.cluster import Member
from tests.faults.stage import Stage
from tests.faults.truth import Write, content_of

__all__ = ["MongodFaults"]

DISK_FULL = 14031  # OutOfDiskSpace
_PATIENCE_S = 120.0


class MongodFaults:
    """Faults of mongods: the public methods; each returns a description of what it did."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def kill_primary(self) -> str:
        return await self._kill(await self.stage.cluster.primary())

    async def kill_secondary(self) -> str:
        return await self._kill(await self._secondary())

    async def _kill(self, member: Member) -> str:
        member.kill()
        assert member.process is not None
        await self.stage.cluster.network.forget(member.process.pid)
        await asyncio.sleep(self.stage.rng.uniform(0.0, 4.0))
        await self.stage.cluster.start(member)
        await self.stage.cluster.healthy(within_s=120)
        return member.name

    async def step_down(self) -> str:
        primary = await self.stage.cluster.primary()
        with suppress(PyMongoError):
            async with primary.direct() as client:
                await client.admin.command("replSetStepDown", 5, secondaryCatchUpPeriodSecs=2)
        await self.stage.cluster.healthy(within_s=60)
        return f"{primary.name}, then {(await self.stage.cluster.primary()).name}"

    async def slow_secondary(self) -> str:
        member = await self._secondary()
        others = [each.name for each in self.stage.cluster.members if each is not member]
        delay_s = self.stage.rng.uniform(0.1, 0.5)
        await self.stage.cluster.network.slow(member.name, others, delay_s)
        try:
            await asyncio.sleep(self.stage.rng.uniform(3.0, 8.0))
        finally:
            await self.stage.cluster.network.heal(member.name, others)
        await self.stage.cluster.healthy()
        return f"{member.name} by {delay_s:.2f} s"

    async def mongodb_gone(self) -> str:
        for each in self.stage.cluster.members:
            each.kill()
            assert each.process is not None
            await self.stage.cluster.network.forget(each.process.pid)
        await asyncio.sleep(self.stage.outage_s)
        await asyncio.gather(
            *(self.stage.cluster.start(each) for each in self.stage.cluster.members)
        )
        await self.stage.cluster.healthy(within_s=120)
        return f"for {self.stage.outage_s:.0f} s"

    async def roll_back(self) -> str:
        """Cut off a primary that accepts writes which the others never receive."""
        primary = await self.stage.cluster.primary()
        others = [each.name for each in self.stage.cluster.members if each is not primary]
        things = self.stage.client[self.stage.database].get_collection("things")
        contested = Write(self.stage.truth.next_op(), ("things", ""), "INSERT")
        contested.place = ("things", f"contested-{contested.op}")
        document = {"_id": contested.place[1], "op": contested.op}
        await things.insert_one(document)
        self.stage.truth.acknowledged += 1
        after = await things.find_one({"_id": contested.place[1]})
        assert after is not None
        contested.content = content_of(after)
        self.stage.truth.chains[contested.place] = [contested]
        doomed: list[Write] = []
        # Sometimes a gateway is on the minority side and sees no other primary.
        beside = (
            self.stage.rng.choice(self.stage.gateways.all).name
            if self.stage.rng.random() < 0.5
            else None
        )
        await self.stage.cluster.network.cut(primary.name, others)
        if beside is not None:
            await self.stage.cluster.network.cut(beside, others)
        try:
            deadline = time.monotonic() + 30
            async with primary.direct(w=1, retryWrites=False) as alone:
                target = alone[self.stage.database].things
                update = Write(self.stage.truth.next_op(), contested.place, "UPDATE")
                with suppress(PyMongoError):
                    await target.update_one({"_id": update.place[1]}, {"$set": {"op": update.op}})
                doomed.append(update)
                while time.monotonic() < deadline:
                    op = self.stage.truth.next_op()
                    insert = Write(op, ("things", f"doomed-{op}"), "INSERT")
                    doomed.append(insert)
                    with suppress(PyMongoError):
                        await target.insert_one({"_id": insert.place[1], "op": op})
                    if await self.stage.cluster.current_primary() not in (None, primary):
                        break
                    await asyncio.sleep(0.1)
                else:
                    self.stage.findings.append("roll_back: the others did not elect within 30 s")
        finally:
            await self.stage.cluster.network.heal(primary.name, others)
            if beside is not None:
                await self.stage.cluster.network.heal(beside, others)
        await self.stage.cluster.healthy(within_s=120)
        # Writes that the majority has now are durable.
        await self.stage.client[self.stage.database].marks.insert_one({"after": "roll back"})
        survived = 0
        for write in doomed:
            found = await things.with_options(read_concern=ReadConcern("linearizable")).find_one(
                {"_id": write.place[1]}
            )
            if found is not None and found["op"] == write.op:
                survived += 1
                write.content = content_of(found)
                self.stage.truth.chains.setdefault(write.place, []).append(write)
            else:
                self.stage.truth.never.add(write.op)
        self.stage.doomed += len(doomed)
        self.stage.survived += survived
        told = f"{primary.name}: {len(doomed)} writes, {survived} of them stayed"
        return told if beside is None else f"{told}; {beside} was cut off with it"

    async def disk_full(self) -> str:
        """Fail the inserts into the archive as if the disk were full; everything else works."""
        name = self.stage.rng.choice(("things.versions", "tallies.versions"))
        data = {
            "failCommands": ["insert"],
            "errorCode": DISK_FULL,
            "namespace": f"{self.stage.database}.{name}",
        }
        try:
            await self._fail_point("alwaysOn", data)
            await asyncio.sleep(self.stage.rng.uniform(2.0, 6.0))
        finally:
            # Left on, it would look like a recorder that hangs.
            await self._fail_point("off", data)
        return name

    async def clock_jumps(self) -> str:
        """Change the clock of the primary, or of a gateway, by more than a lease, and back."""
        member = await self.stage.cluster.primary()
        names = [*(each.name for each in self.stage.cluster.members if each is not member)]
        names += [each.name for each in self.stage.gateways.all]
        name = member.name if self.stage.rng.random() < 0.6 else self.stage.rng.choice(names)
        ahead_s = self.stage.rng.choice((-1, 1)) * (
            self.stage.lease_s + self.stage.rng.uniform(1, 10)
        )
        self.stage.clocks.set(name, ahead_s)
        try:
            await asyncio.sleep(self.stage.rng.uniform(2.0, 8.0))
        finally:
            self.stage.clocks.set(name, 0.0)
        await self.stage.cluster.healthy(within_s=120)
        await self.stage.gateways.until_ready()
        return f"{name} by {ahead_s:+.1f} s"

    async def _fail_point(self, mode: str, data: dict[str, Any]) -> None:
        for each in self.stage.cluster.members:
            await self._configure(each, mode, data)

    async def _configure(self, member: Member, mode: str, data: dict[str, Any]) -> None:
        """Set a fail point; waits for a member that another fault has taken down."""
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                try:
                    async with member.direct() as client:
                        await client.admin.command(
                            "configureFailPoint", "failCommand", mode=mode, data=data
                        )
                    return
                except ConnectionFailure:
                    await asyncio.sleep(0.2)

    async def _secondary(self) -> Member:
        primary = await self.stage.cluster.primary()
        return self.stage.rng.choice(
            [each for each in self.stage.cluster.members if each is not primary]
        )
