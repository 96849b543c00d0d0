"""A long history, written directly into the archive, in the recorder's format.

One write a second: in each round every document is written once, in a random order, so that the
versions of a document are far apart. The last round has the current documents.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bson import Timestamp
from pymongo.collection import Collection
from pymongo.database import Database

from benchmarks.products import COLLECTION, SMALL_BYTES, product
from benchmarks.stage import Document, Stage, archive_of
from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Baseline, Checkpoint, Checkpoints
from revstream.streams.core import resume_tokens
from revstream.streams.mongo.database import Mongo

__all__ = ["LongHistory", "write_long_history"]

_BATCH = 2000
# The part of a real token after the cluster time.
_REST = "2B022C0100296E5A1004" + 32 * "7" + "461E5F6964002B020004"


@dataclass(frozen=True, slots=True)
class LongHistory:
    """`documents` with `versions` each, one written in each second from `start` on."""

    documents: int
    versions: int
    start: int

    def moment(self, share: float) -> Timestamp:
        """Return the cluster time at which this share of the history was written."""
        return Timestamp(self.start + int(share * self.documents * self.versions), 1)

    def at(self, round_: int, place: int) -> Timestamp:
        return Timestamp(self.start + round_ * self.documents + place, 1)

    def records(self) -> Iterator[Document]:
        """Yield all version records, in stream order."""
        first = [product(n, size_bytes=SMALL_BYTES) for n in range(self.documents)]
        before: list[str | None] = [None] * self.documents
        for round_ in range(self.versions):
            for place, number in enumerate(self._order(round_)):
                at = self.at(round_, place)
                record = self._record(first[number], round_, at, before[number])
                before[number] = record["_id"]
                yield record

    def present(self) -> Iterator[Document]:
        """Yield the documents after the last round."""
        for number in range(self.documents):
            yield _state(product(number, size_bytes=SMALL_BYTES), self.versions - 1)

    def _order(self, round_: int) -> list[int]:
        order = list(range(self.documents))
        random.Random(round_).shuffle(order)
        return order

    def _record(self, first: Document, round_: int, at: Timestamp, before: str | None) -> Document:
        full = _state(first, round_)
        record: Document = {
            "_id": resume_tokens.time_prefix(at) + _REST,
            "doc": full["_id"],
            "v": full["version"],
            "op": "UPDATE" if round_ else "INSERT",
            "at": at,
            "wall": _wall(at),
            "prev": before,
            "by": None,
            "why": None,
            "changed": ["stock", "price", "updatedAt"] if round_ else [*full][2:],
        }
        if not round_:
            record["first"] = True
        return {**record, "full": full}


def write_long_history(stage: Stage, database: Database[Document]) -> LongHistory:
    """Write the history, the current documents, and a checkpoint that covers all of it."""
    scale = stage.scale
    writes = scale.documents * scale.versions
    past = LongHistory(scale.documents, scale.versions, int(time.time()) - writes - 60)
    _insert(stage, database[COLLECTION], past.present(), scale.documents, "documents")
    _insert(stage, archive_of(database), past.records(), writes, "versions")
    asyncio.run(_prepare(stage.uri, database.name, past))
    return past


async def _prepare(uri: str, database: str, past: LongHistory) -> None:
    async with Mongo.connect(uri, database) as mongo:
        # After the load: one build of an index is much faster than many updates of it.
        await Archive(mongo, COLLECTION).prepare()
        checkpoint = Checkpoint(
            token=resume_tokens.token_from_time(await mongo.operation_time()),
            start=resume_tokens.time_prefix(past.at(0, 0)),
            baseline=Baseline(done=True),
        )
        await Checkpoints(mongo).save(f"recorder:{COLLECTION}", checkpoint, fencing_token=0)


def _insert(
    stage: Stage,
    collection: Collection[Document],
    documents: Iterable[Document],
    count: int,
    text: str,
) -> None:
    batch: list[Document] = []
    task = stage.progress.add_task(text, total=count)
    for document in documents:
        batch.append(document)
        if len(batch) == _BATCH:
            collection.insert_many(batch)
            stage.progress.advance(task, len(batch))
            batch = []
    if batch:
        collection.insert_many(batch)
    stage.progress.remove_task(task)


def _state(first: Document, round_: int) -> dict[str, Any]:
    number = first["_id"]
    return {
        **first,
        "version": round_ + 1,
        "stock": (number * 31 + round_ * 17) % 1000,
        "price": (number * 7919 + round_ * 104_729) % 100_000 / 100,
    }


def _wall(at: Timestamp) -> datetime:
    return datetime.fromtimestamp(at.time, UTC)
