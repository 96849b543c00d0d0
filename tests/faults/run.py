"""One run: a cluster, gateways, load, subscribers and faults; then everything is compared."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.read_concern import ReadConcern

from tests.faults.checker import (
    Version,
    check_archive,
    check_present,
    check_stream,
    check_transactions,
)
from tests.faults.clock import Clocks
from tests.faults.cluster import Cluster
from tests.faults.copied import CopyLoad, check_no_copy_goes_back
from tests.faults.faults import Faults
from tests.faults.fences import FenceMonitor
from tests.faults.gateways import Gateways
from tests.faults.receivers import FaultyReceiver, check_posts
from tests.faults.stage import Stage
from tests.faults.subscribers import Subscriber, token_of_now
from tests.faults.truth import RAW, Truth, content_of
from tests.faults.writers import COLLECTIONS, Writers

__all__ = ["Options", "Outcome", "run"]

DATABASE = "faults"
PROGRESS_EVERY_S = 10.0
# A share of the rate, in addition: each of these writes may cause many copies.
_COPIED = 0.03


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a run.

    Args:
        duration_s: of load and faults.
        rate: writes a second, of all writers together.
        fault_every_s: time between the starts of two faults.
        plan: faults in this order, one by one, instead of drawn ones.
        settle_s: the longest time for archive and streams to reach the end.
        keep: the folder for logs and data; None: they are deleted.
    """

    seed: int
    duration_s: float
    rate: float = 300.0
    fault_every_s: float = 10.0
    gateways: int = 3
    lease_s: float = 10.0
    outage_s: float = 60.0
    plan: tuple[str, ...] = ()
    settle_s: float = 180.0
    keep: Path | None = None


@dataclass
class Outcome:
    """Findings and statistics of a run."""

    findings: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    versions: int = 0
    deliveries: int = 0
    takeovers: int = 0
    elections: int = 0


async def run(options: Options, say: Callable[[str], None]) -> Outcome:
    """Execute one run; `say` gets a line for each event."""
    with tempfile.TemporaryDirectory(prefix="revstream-faults-") as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        async with AsyncExitStack() as stack:
            return await _Run(options, directory, say).play(stack)


class _Run:
    def __init__(self, options: Options, directory: Path, say: Callable[[str], None]) -> None:
        self.options = options
        self.directory = directory
        self.began = time.monotonic()
        self._tell = say
        self.rng = random.Random(options.seed)
        self.truth = Truth()
        self.outcome = Outcome()
        self.subscribers: list[Subscriber] = []

    def say(self, text: str) -> None:
        self._tell(f"[{time.monotonic() - self.began:7.1f} s] {text}")

    async def play(self, stack: AsyncExitStack) -> Outcome:
        options = self.options
        self.say(f"seed {options.seed}: {options}")
        clocks = Clocks(self.directory)
        if not clocks.movable:
            self.say("no C compiler: clocks will not jump")
        self.cluster = await stack.enter_async_context(Cluster.open(self.directory, clocks))
        self.posted = FaultyReceiver(random.Random(f"{options.seed}/receiver"))
        receiver = await stack.enter_async_context(self.posted.receiver.serving())
        self.gateways = Gateways(
            self.cluster.network,
            clocks,
            self.cluster.uri,
            DATABASE,
            self.directory,
            count=options.gateways,
            lease_s=options.lease_s,
            sink=receiver.url,
        )
        stack.callback(self.gateways.end_all)
        client = AsyncMongoClient[dict[str, Any]](self.cluster.uri, tz_aware=True)
        self.client = await stack.enter_async_context(client)
        patient = AsyncMongoClient[dict[str, Any]](self.cluster.uri, serverSelectionTimeoutMS=5000)
        writing = await stack.enter_async_context(patient)
        self.writers = Writers(writing, DATABASE, self.truth, rate=options.rate, seed=options.seed)
        await self.writers.prepare()
        self.copied = CopyLoad(
            writing, DATABASE, random.Random(f"{options.seed}/copied"), options.rate * _COPIED
        )
        self.sink = {"_id": {"$regex": "^sink:things:"}}
        listeners = tuple(f"recorder:{name}" for name in COLLECTIONS)
        self.fences = FenceMonitor(self.client, DATABASE, listeners)
        for each in self.gateways.all:
            await self.gateways.start(each)
        await self.gateways.until_ready()
        await self._sink_begun()
        self.say(f"{options.gateways} gateways and 3 mongods are ready")
        first_term = await self.cluster.term()
        await self._subscribe()
        self.stage = Stage(
            self.cluster,
            self.gateways,
            clocks,
            self.fences,
            self.client,
            DATABASE,
            self.truth,
            random.Random(f"{options.seed}/faults"),
            options.lease_s,
            options.outage_s,
        )
        faults = Faults(self.stage, self.say)
        self.faults = faults
        async with _beside(
            self.fences.run(),
            self.gateways.supervise(),
            self._show_progress(),
            *(each.run() for each in self.subscribers),
        ):
            async with asyncio.TaskGroup() as load:
                load.create_task(self.writers.run())
                load.create_task(self.copied.run())
                await asyncio.sleep(2)
                await faults.run(options.duration_s, options.fault_every_s, options.plan)
                self.writers.stop()
                self.copied.stop()
            await self.cluster.healthy()
            self.say("load has stopped, all is mended")
            await self._settle()
        elections = await self.cluster.term() - first_term
        await self._check()
        self._report(elections)
        return self.outcome

    async def _sink_begun(self) -> None:
        """Wait until the sink delivers changes."""
        places = self.client[DATABASE]["revstream.checkpoints"]
        until = time.monotonic() + self.options.settle_s
        while not await places.find_one(self.sink):
            assert time.monotonic() < until, "the sink has not begun"
            await asyncio.sleep(0.1)

    async def _subscribe(self) -> None:
        """Subscribe to each collection from the start: stable clients, reconnecting ones, a slow
        one.
        """
        addresses = [each.address for each in self.gateways.all]
        start = await token_of_now(addresses[0])
        kinds: tuple[dict[str, Any], ...] = (
            {"versions": True},
            {"versions": False},
            {"versions": True, "stays_s": 4.0},
            {"versions": False, "stays_s": 1.5},
        )
        for collection in COLLECTIONS:
            more: list[dict[str, Any]] = [
                {"key": "shared-0", "versions": True},
                {"key": "own-0-0", "stays_s": 3.0},
            ]
            if collection == "tallies":
                more = [{"key": "shared-1", "stays_s": 2.0}]
            for n, kind in enumerate([*kinds, *more]):
                self.subscribers.append(
                    Subscriber(
                        f"{collection}-{n}",
                        collection,
                        start,
                        addresses,
                        random.Random(f"{self.options.seed}/{collection}/{n}"),
                        **kind,
                    )
                )
        slow = Subscriber(
            "things-slow",
            "things",
            start,
            addresses,
            random.Random(f"{self.options.seed}/slow"),
            lag_s=0.2 / self.options.rate,
        )
        self.subscribers.append(slow)

    async def _settle(self) -> None:
        """Wait until the fate of all writes is known and archive and subscribers have caught up."""
        await self.writers.settle()
        ends = await self.writers.end_marks()
        began = time.monotonic()
        database = self.client[DATABASE]
        for collection, op in ends.items():
            while not await database[f"{collection}.versions"].find_one({"full.op": op}):
                if time.monotonic() - began > self.options.settle_s:
                    self.outcome.findings.append(
                        f"{collection}: the archive has not come to the last write (op {op}) "
                        f"within {self.options.settle_s:.0f} s"
                    )
                    break
                await asyncio.sleep(0.2)
        self.say(f"the archive is complete after {time.monotonic() - began:.1f} s")
        for each in self.subscribers:
            query: dict[str, Any] = {} if each.key is None else {"doc": each.key}
            [last] = (
                await database[f"{each.collection}.versions"]
                .find(query, {"_id": 1})
                .sort("_id", -1)
                .limit(1)
                .to_list()
            )
            while not each.deliveries or each.deliveries[-1].token < last["_id"]:
                if time.monotonic() - began > self.options.settle_s:
                    self.outcome.findings.append(
                        f"{each.name}: is at {each.reached}, and the last is {last['_id']}, after "
                        f"{self.options.settle_s:.0f} s; ended: {dict(each.ends)}"
                    )
                    break
                await asyncio.sleep(0.1)
        await self._settle_sink(began)
        self.outcome.findings += await self.copied.settle(self.options.settle_s)
        # Time for events that must not come.
        await asyncio.sleep(1.0)
        self.say(f"all subscribers are there after {time.monotonic() - began:.1f} s")

    async def _settle_sink(self, began: float) -> None:
        database = self.client[DATABASE]
        [last] = await database["things.versions"].find({}).sort("_id", -1).limit(1).to_list()
        while self.posted.last < last["_id"] or await database["revstream.deliveries"].find_one():
            if time.monotonic() - began > self.options.settle_s:
                self.outcome.findings.append(
                    f"the receiver is at {self.posted.last}, and the last is {last['_id']}; "
                    f"waiting: {await database['revstream.deliveries'].count_documents({})}"
                )
                break
            await asyncio.sleep(0.2)

    async def _check(self) -> None:
        findings = self.outcome.findings
        found: list[tuple[str, Version]] = []
        self.archives: dict[str, list[Version]] = {}
        database = self.client.get_database(
            DATABASE, codec_options=RAW, read_concern=ReadConcern("majority")
        )
        for collection in COLLECTIONS:
            versions = [
                Version.from_record(each)  # type: ignore[arg-type]
                async for each in database[f"{collection}.versions"].find().sort("_id", 1)
            ]
            present = {each["_id"]: content_of(each) async for each in database[collection].find()}
            self.archives[collection] = versions
            found += [(collection, each) for each in versions]
            counted = collection == "things"
            findings += check_archive(collection, versions, self.truth, counted=counted)
            findings += check_present(collection, versions, present)
        findings += check_transactions(found, self.truth)
        for each in self.subscribers:
            findings += check_stream(
                each.name,
                each.deliveries,
                self.archives[each.collection],
                start=each.start.rpartition(".")[0],
                key=each.key,
                asked_version=each.versions,
            )
            findings += each.findings
        place = await self.client[DATABASE]["revstream.checkpoints"].find_one(self.sink)
        start = "" if place is None else place["start"]
        things = self.archives["things"]
        findings += check_posts("receiver", self.posted.taken, things, start=start)
        self.copies = await self.copied.history()
        findings += check_no_copy_goes_back(self.copies)
        findings += self.fences.findings
        findings += self.stage.findings
        findings += self.gateways.unasked

    def _report(self, elections: int) -> None:
        truth, faults, stage = self.truth, self.faults, self.stage
        deliveries = sum(len(each.deliveries) for each in self.subscribers)
        ends: Counter[str] = Counter()
        for each in self.subscribers:
            ends.update(each.ends)
        versions = {name: len(found) for name, found in self.archives.items()}
        gaps = sum(each.gap for found in self.archives.values() for each in found)
        lines = [
            f"seed {self.options.seed}, {self.options.duration_s:.0f} s at "
            f"{self.options.rate:.0f}/s, lease {self.options.lease_s:.0f} s",
            f"faults: {sum(faults.counts.values())} {dict(faults.counts)}",
            f"writes acknowledged: {truth.acknowledged}; of unknown fate: {truth.unknown}, "
            f"of which done: {truth.unknown_applied} (own documents)",
            f"transactions: {self.writers.transactions}",
            f"writers were told: {dict(truth.errors)}",
            f"written to a primary that was cut off: {stage.doomed}, stayed: {stage.survived}",
            f"versions: {sum(versions.values())} {versions}; gaps: {gaps}",
            f"deliveries: {deliveries} to {len(self.subscribers)} subscribers, "
            f"of which replayed: {sum(each.replayed for each in self.subscribers)}; "
            f"connected {sum(each.connects for each in self.subscribers)} times",
            f"subscriptions ended: {dict(ends)}",
            f"posted to the receiver: {len(self.posted.taken)} of "
            f"{len({(each.key, each.token) for each in self.posted.taken})} versions; it answered "
            f"{dict(self.posted.answers)}",
            f"written to sources and targets of copies: {dict(self.copied.writes)}; versions of "
            f"targets: {len(self.copies)}",
            f"elections: {elections}; lease changes seen: {len(self.fences.changes)}; "
            f"samples of fences: {self.fences.samples}",
            f"longest lag of the archive: {self.longest_lag_s:.1f} s",
        ]
        if self.gateways.refused_starts:
            lines.append(f"starts refused while MongoDB was away: {self.gateways.refused_starts}")
        lost = Counter(
            _kind_of(line)
            for gateway in self.gateways.all
            for line in gateway.lines()
            if line["event"] == "lease lost"
        )
        lines.append(f"leases lost, as holders said: {dict(lost)}")
        for why in sorted({each.why for each in stage.takeovers}):
            taken = [each for each in stage.takeovers if each.why == why]
            quiet = [round(each.seconds, 1) for each in taken if each.undisturbed]
            other = [round(each.seconds, 1) for each in taken if not each.undisturbed]
            lines.append(
                f"takeover after {why}: {quiet} s; while MongoDB was broken too: {other} s"
            )
        self.outcome.lines = lines
        self.outcome.versions = sum(versions.values())
        self.outcome.deliveries = deliveries
        self.outcome.takeovers = len(stage.takeovers)
        self.outcome.elections = elections

    async def _show_progress(self) -> None:
        self.longest_lag_s = 0.0
        while True:
            await asyncio.sleep(PROGRESS_EVERY_S)
            told = sum(len(each.deliveries) for each in self.subscribers)
            lag_s = self.fences.lag_s()
            self.longest_lag_s = max(self.longest_lag_s, lag_s)
            self.say(
                f"  {self.truth.acknowledged} writes, {self.truth.unknown} unknown, "
                f"{told} deliveries, archive {lag_s:.0f} s behind"
            )


def _kind_of(line: dict[str, Any]) -> str:
    """Return the reason for which a holder lost its lease."""
    reason = str(line.get("reason", ""))
    for kind in ("refused", "wrote to the archive"):
        if kind in reason:
            return kind
    return "taken or run out"


@asynccontextmanager
async def _beside(*works: Any) -> AsyncIterator[None]:
    """Run tasks during the body; one that fails ends the body."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(each) for each in works]
        try:
            yield
        finally:
            for each in running:
                each.cancel()
