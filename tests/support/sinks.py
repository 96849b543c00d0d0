"""A webhook sink over a recorded collection, with short waiting times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pymongo import MongoClient

from revstream.model.compiler.loader import read_model
from revstream.model.definition import Model
from revstream.resolvers.admin.cloud_event import Events
from revstream.streams.archive.horizon import Horizons
from revstream.streams.core import resume_tokens
from revstream.streams.listeners.consumer import Consumer, ConsumerOptions
from revstream.streams.listeners.webhooks.http_client import WebhookClient
from revstream.streams.listeners.webhooks.parked_delivery import PendingDeliveries
from revstream.streams.listeners.webhooks.retry import RetryOptions
from revstream.streams.listeners.webhooks.sink import Sink, SinkOptions
from tests.support.streams import Recording, stop_task

__all__ = ["BRISK", "PAGES", "SinkSetup", "delivering", "new_sink", "write"]

MODEL = read_model('type Thing @collection(name: "things") { id: ID! n: Int }')
BRISK = SinkOptions(
    grace_s=0.1,
    redelivery=RetryOptions(
        first_s=0.01,
        most_s=0.05,
        unvouched_most_s=0.05,
        attempts=5,
        refusals=3,
        count_every_s=0.02,
    ),
)
PAGES = ConsumerOptions(
    page=30, look_every_s=0.01, idle_save_s=0.01, retry_first_s=0.01, retry_most_s=0.05
)


@dataclass
class SinkSetup:
    """A webhook sink and the consumer that feeds it."""

    sink: Sink
    consumer: Consumer


def new_sink(
    recording: Recording,
    url: str,
    *,
    secrets: Sequence[str] = (),
    operations: Sequence[str] | None = None,
    options: SinkOptions = BRISK,
    pages: ConsumerOptions = PAGES,
    timeout_s: float = 15.0,
    model: Model = MODEL,
) -> SinkSetup:
    """Return a sink that starts at the beginning of the archive."""
    [entity] = model.entities
    name = "sink:things:test"
    sink = Sink(
        name=name,
        archive=recording.archive,
        deliveries=PendingDeliveries(recording.mongo, recording.checkpoints, name),
        receiver=WebhookClient(url, secrets, timeout_s=timeout_s),
        rendering=Events(model, entity, sink=name, deployment="test"),
        operations=operations,
        options=options,
    )
    sink.start = "beginning"  # type: ignore[misc]
    consumer = Consumer(
        sink,
        recording.archive,
        recording.hub,
        recording.progress,
        recording.checkpoints,
        Horizons(recording.mongo),
        opened_at=resume_tokens.BEGINNING,
        options=pages,
    )
    return SinkSetup(sink, consumer)


@asynccontextmanager
async def delivering(made: SinkSetup, fencing_token: int = 1) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(made.consumer.run(fencing_token))
    try:
        yield task
    finally:
        await stop_task(task)


async def write(
    recording: Recording, client: MongoClient[dict[str, Any]], **documents: int
) -> list[tuple[str, int]]:
    """Record more versions of each document, in turn.

    Args:
        documents: the number of versions by document.

    Returns:
        (document, version) of each, in stream order.
    """
    things = client[recording.mongo.name].things
    made = []
    for n in range(max(documents.values())):
        for key, count in documents.items():
            if n < count:
                change = {"$inc": {"version": 1, "n": 1}}
                after = things.find_one_and_update(
                    {"_id": key}, change, upsert=True, return_document=True
                )
                made.append((key, after["version"]))
    stored = await recording.checkpoints.load(recording.name)
    assert stored is not None
    await recording.record(stored.fencing_token + 1)
    return made
