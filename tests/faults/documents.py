"""Documents as their writers know them, and writes whose fate can be determined."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bson import Binary, Decimal128, Int64
from pymongo import ReturnDocument
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DuplicateKeyError, PyMongoError
from pymongo.read_concern import ReadConcern

from tests.faults.truth import CHANGE_FIELD, Place, Truth, Write, content_of

__all__ = ["Document", "OwnDocument", "SharedDocument", "drawn_update", "drawn_whole"]

Document = dict[str, Any]
Collection = AsyncCollection[Document]
MAJORITY = ReadConcern("majority")
READ_S = 120.0
Attempt = tuple[Write, Document | None]
"""A write, and the document after it if that is known before the write's fate."""


def drawn_value(rng: random.Random) -> Any:
    """Draw a value of any type, including types that a model does not have."""
    return rng.choice(
        (
            lambda: rng.randrange(1000),
            lambda: Int64(rng.randrange(2**60)),
            lambda: rng.random(),
            lambda: Decimal128(f"{rng.randrange(10**6)}.{rng.randrange(100):02d}"),
            lambda: datetime.fromtimestamp(rng.randrange(2**31), UTC),
            lambda: Binary(rng.randbytes(8)),
            lambda: "größe " * rng.randrange(1, 6),
            lambda: {"5": rng.randrange(9), "deep": [{"x": rng.randrange(9)}, None]},
            lambda: [rng.randrange(9) for _ in range(rng.randrange(4))],
            lambda: None,
        )
    )()


def drawn_whole(rng: random.Random, op: int) -> dict[str, Any]:
    """Draw a document's content, without its `_id`."""
    names = rng.sample(range(8), rng.randrange(1, 6))
    return {
        "op": op,
        "n": 0,
        "tags": [str(rng.randrange(100)) for _ in range(rng.randrange(3))],
        "body": {f"k{name}": drawn_value(rng) for name in names},
    }


def drawn_update(rng: random.Random, op: int) -> dict[str, Any]:
    """Draw an update, as other programs send it."""
    path = f"body.k{rng.randrange(8)}"
    change: dict[str, Any] = {"$set": {"op": op}}
    kind = rng.randrange(4)
    if kind == 0:
        change["$inc"] = {"n": 1}
    elif kind == 1:
        change["$set"][path] = drawn_value(rng)
    elif kind == 2:
        change["$push"] = {"tags": {"$each": [str(op)], "$slice": -5}}
    else:
        change["$unset"] = {path: ""}
    return change


@dataclass
class OwnDocument:
    """A document that only one writer writes, one write at a time.

    Attributes:
        last: its current `op`, None while it does not exist; every write is conditional on it.
        version: its version number, if it has one.
        pending: writes of unknown fate since `last`; all are conditional on `last`, so at most one
            of
            them was executed. A transaction may have several of this document: all or none.
    """

    collection: Collection
    place: Place
    truth: Truth
    counted: bool
    last: int | None = None
    version: int = 0
    pending: list[list[Attempt]] = field(default_factory=list)

    @property
    def key(self) -> str:
        return self.place[1]

    async def step(self, rng: random.Random) -> bool:
        """Send one write; returns False unless it is known to be executed."""
        if self.pending and not await self.look():
            return False
        op = self.truth.next_op()
        if self.last is None:
            return await self._insert(rng, op)
        turn = rng.random()
        if turn < 0.06:
            return await self._delete(op)
        if turn < 0.16:
            return await self._replace(rng, op)
        return await self._update(rng, op)

    async def look(self) -> bool:
        """Find out which pending write was executed, if any; returns False without an answer."""
        try:
            found = await self.collection.with_options(read_concern=MAJORITY).find_one(
                {"_id": self.key}
            )
        except PyMongoError:
            return False
        for attempts in self.pending:
            write = attempts[-1][0]
            if write.kind == "DELETE":
                applied = found is None
            else:
                applied = found is not None and found["op"] == write.op
            if applied:
                self.truth.unknown_applied += len(attempts)
                self._forget_others(attempts)
                for each, after in attempts[:-1]:
                    self._note(each, after)
                self._note(write, found)
                break
        return True

    def done(self, write: Write, after: Document | None) -> None:
        """Record that this write was executed; pending ones for the same state never will be."""
        self._forget_others(None)
        self._note(write, after)

    def doubt(self, attempts: list[Attempt]) -> None:
        """Record writes of unknown fate: all of them or none were executed."""
        self.truth.unknown += len(attempts)
        self.pending.append(attempts)

    def _forget_others(self, chosen: list[Attempt] | None) -> None:
        for attempts in self.pending:
            if attempts is not chosen:
                self.truth.never.update(each.op for each, _ in attempts)
        self.pending = []

    def _note(self, write: Write, after: Document | None) -> None:
        write.content = None if after is None else content_of(after)
        self.truth.chains.setdefault(self.place, []).append(write)
        self.last = None if after is None else write.op
        self.version = 0 if after is None else int(after.get("version", 0))

    async def _insert(self, rng: random.Random, op: int) -> bool:
        document = {"_id": self.key, **drawn_whole(rng, op)}
        by = self._say(rng, document, op)
        if self.counted:
            document["version"] = 1
        write = Write(op, self.place, "INSERT", by=by)
        try:
            await self.collection.insert_one(document)
        except DuplicateKeyError:
            return await self._refused(write)
        except PyMongoError as exc:
            self.truth.met(exc)
            return self._doubtful(write)
        self._acknowledge(write, document)
        return True

    async def _update(self, rng: random.Random, op: int) -> bool:
        change = drawn_update(rng, op)
        by = self._say(rng, change["$set"], op)
        if self.counted:
            change.setdefault("$inc", {})["version"] = 1
        write = Write(op, self.place, "UPDATE", by=by)
        answered = rng.random() < 0.7

        async def update() -> Document | None:
            if answered:
                return await self.collection.find_one_and_update(
                    self.asked(), change, return_document=ReturnDocument.AFTER
                )
            result = await self.collection.update_one(self.asked(), change)
            return await self._read_own(write) if result.matched_count else None

        return await self._record_result(write, update())

    async def _read_own(self, write: Write) -> Document:
        """Return the document after an acknowledged write, which no other writer changes;
        retries.
        """
        deadline = time.monotonic() + READ_S
        while time.monotonic() < deadline:
            try:
                found = await self.collection.with_options(read_concern=MAJORITY).find_one(
                    {"_id": self.key}
                )
            except PyMongoError as exc:
                self.truth.met(exc)
            else:
                # A former primary may not have it.
                if found is not None and found["op"] == write.op:
                    return found
            await asyncio.sleep(0.2)
        raise AssertionError(
            f"MongoDB has lost an acknowledged write: op {write.op} of {self.place} cannot be read "
            f"within {READ_S} s"
        )

    async def _replace(self, rng: random.Random, op: int) -> bool:
        document = drawn_whole(rng, op)
        by = self._say(rng, document, op)
        if self.counted:
            document["version"] = self.version + 1
        write = Write(op, self.place, "REPLACE", by=by)
        replacing = self.collection.find_one_and_replace(
            self.asked(), document, return_document=ReturnDocument.AFTER
        )
        return await self._record_result(write, replacing)

    async def _delete(self, op: int) -> bool:
        write = Write(op, self.place, "DELETE")
        return await self._record_result(write, self.collection.find_one_and_delete(self.asked()))

    async def _record_result(self, write: Write, making: Awaitable[Document | None]) -> bool:
        """Record the result of a write.

        Args:
            making: returns the document, or None if the expected state does not exist.
        """
        try:
            found = await making
        except PyMongoError as exc:
            self.truth.met(exc)
            return self._doubtful(write)
        if found is None:
            return await self._refused(write)
        self._acknowledge(write, None if write.kind == "DELETE" else found)
        return True

    def asked(self) -> dict[str, Any]:
        """Return the filter for the state on which the next write is conditional."""
        return {"_id": self.key, "op": self.last}

    async def update_within(
        self, session: AsyncClientSession, rng: random.Random, op: int, transaction: int
    ) -> tuple[Write, Document]:
        """Update the document in a transaction, which decides the fate of the update.

        Raises:
            LookupError: the expected state does not exist.
        """
        change = drawn_update(rng, op)
        if self.counted:
            change.setdefault("$inc", {})["version"] = 1
        write = Write(op, self.place, "UPDATE", transaction=transaction)
        result = await self.collection.update_one(self.asked(), change, session=session)
        after = await self.collection.find_one({"_id": self.key}, session=session)
        if not result.matched_count or after is None:
            raise LookupError(f"{self.place} does not have op {self.last}")
        return write, after

    def _say(self, rng: random.Random, fields: dict[str, Any], op: int) -> str | None:
        if rng.random() > 0.1:
            return None
        by = rng.choice(("anna", "bram", "chidi"))
        fields[CHANGE_FIELD] = {"id": f"w{op}", "by": by, "why": f"reason {op}"}
        return by

    def _acknowledge(self, write: Write, after: Document | None) -> None:
        self.truth.acknowledged += 1
        self.done(write, after)

    def _doubtful(self, write: Write) -> bool:
        self.doubt([(write, None)])
        return False

    async def _refused(self, write: Write) -> bool:
        """Handle a missing expected state: one of the pending writes must have been executed."""
        self.truth.never.add(write.op)
        if not self.pending:
            raise AssertionError(
                f"MongoDB has lost an acknowledged write: {self.place} does not have op {self.last}"
            )
        await self.look()
        return False


@dataclass
class SharedDocument:
    """A document that all writers write; each write increments `n` and returns the document."""

    collection: Collection
    place: Place
    truth: Truth
    counted: bool

    async def insert(self, op: int) -> None:
        document: dict[str, Any] = {"_id": self.place[1], "op": op, "n": 1, "tags": []}
        if self.counted:
            document["version"] = 1
        await self.collection.insert_one(document)
        write = Write(op, self.place, "INSERT", content=content_of(document))
        self.truth.acknowledged += 1
        self.truth.shared[self.place] = {1: write}
        self.truth.shared_unknown[self.place] = {}

    def change(self, rng: random.Random, op: int, writer: str) -> dict[str, Any]:
        change: dict[str, Any] = {"$set": {"op": op, f"by.{writer}": op}, "$inc": {"n": 1}}
        change["$push"] = {"tags": {"$each": [str(op)], "$slice": -3}}
        # Of the same document, some programs count versions and others do not.
        if self.counted and rng.random() < 0.5:
            change["$inc"]["version"] = 1
        return change

    async def step(self, rng: random.Random, writer: str) -> bool:
        op = self.truth.next_op()
        write = Write(op, self.place, "UPDATE")
        try:
            after = await self.collection.find_one_and_update(
                {"_id": self.place[1]},
                self.change(rng, op, writer),
                return_document=ReturnDocument.AFTER,
            )
        except PyMongoError as exc:
            self.truth.met(exc)
            self.doubtful(write)
            return False
        assert after is not None, f"{self.place} is gone"
        self.truth.acknowledged += 1
        self.done(write, after)
        return True

    def done(self, write: Write, after: Document) -> None:
        write.content = content_of(after)
        n = int(after["n"])
        written = self.truth.shared[self.place]
        if n in written:
            raise AssertionError(
                f"MongoDB has lost an acknowledged write: {self.place} has n={n} by "
                f"op {written[n].op} and by op {write.op}"
            )
        written[n] = write

    def doubtful(self, write: Write) -> None:
        self.truth.unknown += 1
        self.truth.shared_unknown[self.place][write.op] = write
