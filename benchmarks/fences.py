"""Events a second that are applied in order, reversed and shuffled, one by one and in batches;
beside them the classic method.

Classic: an upsert whose filter matches only an older document. Where the document is newer nothing
matches, the insert is refused as a duplicate, and the update is retried without upsert, for the
duplicate may have been the first insert by another writer. In a batch refusals are ignored: what
two first inserts do to one another is lost. Both methods set the same fields and count the version,
through one Motor client, from the gateway's core; revstream also stores the attribution and returns
the document.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pymongo
import uvloop
from bson import Int64
from motor.motor_asyncio import AsyncIOMotorClient
from pymongo import monitoring
from pymongo.errors import BulkWriteError, DuplicateKeyError

from benchmarks.figures import Part, Table, medians
from benchmarks.processes import pinned
from benchmarks.stage import Stage
from revstream.model.compiler.loader import read_model
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.current.version_number_cache import VersionNumberCache
from revstream.resolvers.mutations.expected_version import ExpectedVersions
from revstream.resolvers.mutations.fenced_upsert import FencedUpserts
from revstream.resolvers.mutations.idempotency import IdempotencyStore
from revstream.resolvers.mutations.result import Author, StaleWrite
from revstream.resolvers.mutations.writes import DocumentWrites
from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.core import resume_tokens
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import Hub
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.client import MongoOptions

__all__ = ["run"]

_MODEL = read_model(
    'type Reading @collection(name: "readings") { id: ID! sequence: Long! @fence value: Float! }'
)
_READING = _MODEL.entities[0]
_EACH = 30
"""Events of one id: of 30,000, a batch of 1,000 in order has each id once."""
_WRITERS = 8
_BATCH = 1000
_SINGLE_SHARE = 10
"""One of so many events is applied by itself: both take about the same time."""

Event = tuple[str, dict[str, Any]]
Apply = Callable[[Sequence[Event]], Awaitable[None]]
Order = Callable[[list[Event]], list[Event]]

_ORDERS: dict[str, Order] = {
    "in order": lambda events: events,
    "reversed": lambda events: events[::-1],
    "shuffled": lambda events: random.Random(1).sample(events, len(events)),
}


class _Commands(monitoring.CommandListener):
    """Counts the commands sent to MongoDB."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.counts[event.command_name] += 1

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        pass


def run(stage: Stage) -> list[Part]:
    batched = stage.scale.updates
    single = batched // _SINGLE_SHARE
    table = Table(
        f"Out-of-order events: {batched:,} in batches of {min(_BATCH, batched // _WRITERS):,} and "
        f"{single:,} one by one, {_EACH} for each id, {_WRITERS} at once",
        "how",
        "events/s",
        "round trips a call",
        "client's CPU, µs each",
        "mongod's CPU, µs each",
    )
    rows: dict[str, list[list[float]]] = {}
    losses: Counter[str] = Counter()
    with pinned(stage.gateway_cores), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for _ in stage.rounds("events"):
            for ways, count, size in ((_SINGLE, single, 1), (_BATCHED, batched, _BATCH)):
                for order in _ORDERS:
                    for name, way in ways.items():
                        *row, lost = runner.run(_measure(stage, way, order, count, size))
                        rows.setdefault(f"{name}, {order}", []).append(row)
                        losses[f"{name}, {order}"] += int(lost)
    for name, measured in rows.items():
        table.add(name, *medians(measured))
    for name, lost in losses.items():
        if lost:
            table.note(f"{name}: {lost:,} documents were not their newest event in the end.")
    return [table]


async def _measure(
    stage: Stage,
    way: Callable[[Mongo], Awaitable[Apply]],
    order: str,
    count: int,
    size: int,
) -> list[float]:
    """Return events a second, commands per call, CPU microseconds per event, and wrong documents.

    CPU time is the client's and mongod's; a document is wrong if it is not its newest event.
    """
    ids = count // _EACH
    events = _ORDERS[order](
        [
            (f"r{id_}", {"sequence": Int64(n), "value": n / 2})
            for n in range(1, _EACH + 1)
            for id_ in range(ids)
        ]
    )
    size = min(size, max(1, count // _WRITERS))
    commands = _Commands()
    with stage.database() as database:
        client: Any = AsyncIOMotorClient(
            stage.uri, tz_aware=True, w="majority", event_listeners=[commands]
        )
        apply = await way(Mongo(client, database.name, MongoOptions()))
        # Open the connections.
        first = {"sequence": Int64(0), "value": 0.0}
        await asyncio.gather(*(apply([("first", first)]) for _ in range(_WRITERS)))
        calls = [events[start : start + size] for start in range(0, len(events), size)]
        # All writers take from one list, which is in the order of the events.
        batches = iter(calls)

        async def write(mine: Iterator[Sequence[Event]]) -> None:
            for batch in mine:
                await apply(batch)

        commands.counts.clear()
        started, cpu_s, mongod_s = time.perf_counter(), time.process_time(), stage.mongod_cpu_s()
        await asyncio.gather(*(write(batches) for _ in range(_WRITERS)))
        took_s = time.perf_counter() - started
        cpu_s, mongod_s = time.process_time() - cpu_s, stage.mongod_cpu_s() - mongod_s
        sent = commands.counts.total()
        client.close()
        newest = database[_READING.collection].count_documents({"sequence": _EACH})
    return [
        len(events) / took_s,
        sent / len(calls),
        cpu_s / len(events) * 1e6,
        mongod_s / len(events) * 1e6,
        ids - newest,
    ]


async def _ours(mongo: Mongo) -> FencedUpserts:
    """Return the store as a gateway creates it."""
    archives = {_READING.collection: Archive(mongo, _READING.collection)}
    now = resume_tokens.token_from_time(await mongo.operation_time())
    hub = Hub([_READING.collection], position=now)
    progress = ArchiveProgress(Checkpoints(mongo), hub)
    own_writes = OwnWrites(progress, VersionNumberCache(hub))
    repeats = IdempotencyStore(mongo)
    standing = ExpectedVersions(mongo, archives, progress)
    writes = DocumentWrites(mongo, _MODEL, archives, progress, own_writes, standing, repeats)
    return FencedUpserts(mongo, archives, writes, own_writes, repeats)


async def _ours_single(mongo: Mongo) -> Apply:
    fences = await _ours(mongo)

    async def apply(events: Sequence[Event]) -> None:
        for key, document in events:
            with suppress(StaleWrite):
                await fences.apply(_READING, key, document, Author())

    return apply


async def _ours_batched(mongo: Mongo) -> Apply:
    fences = await _ours(mongo)

    async def apply(events: Sequence[Event]) -> None:
        await fences.apply_each(_READING, events, Author())

    return apply


async def _classic_single(mongo: Mongo) -> Apply:
    collection = mongo.raw(_READING.collection)

    async def apply(events: Sequence[Event]) -> None:
        for event in events:
            query, change = _classic(event)
            try:
                await collection.update_one(query, change, upsert=True)
            except DuplicateKeyError:
                await collection.update_one(query, change)

    return apply


async def _classic_batched(mongo: Mongo) -> Apply:
    collection = mongo.raw(_READING.collection)

    async def apply(events: Sequence[Event]) -> None:
        updates = [pymongo.UpdateOne(*_classic(each), upsert=True) for each in events]
        try:
            await collection.bulk_write(updates, ordered=False)
        except BulkWriteError as exc:
            if any(each["code"] != 11000 for each in exc.details["writeErrors"]):
                raise

    return apply


def _classic(event: Event) -> tuple[dict[str, Any], dict[str, Any]]:
    key, document = event
    query = {"_id": key, "sequence": {"$lt": document["sequence"]}}
    return query, {"$set": document, "$inc": {"version": 1}}


_SINGLE = {"applyReading": _ours_single, "conditional upsert": _classic_single}
_BATCHED = {"applyReadings": _ours_batched, "conditional upserts, bulk": _classic_batched}
