"""The load: programs that write with the driver alone, and record the results."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.write_concern import WriteConcern

from tests.faults.documents import Document, OwnDocument, SharedDocument
from tests.faults.truth import Truth, Write

__all__ = ["COLLECTIONS", "Writers"]

COLLECTIONS = ("things", "tallies")
OWN_EACH = 6
SHARED = 4
# Outages need more concurrent writers than the rate alone.
HANDS = 24
COMMIT_S = 5.0
SETTLE_S = 60.0


class Pace:
    """A rate limit for all writers together; turns missed in an outage are dropped."""

    def __init__(self, rate: float) -> None:
        self._gap_s = 1 / rate
        self._next = 0.0

    async def turn(self) -> None:
        now = time.monotonic()
        self._next = max(self._next + self._gap_s, now - 0.2)
        if self._next > now:
            await asyncio.sleep(self._next - now)


class Writers:
    """All writers, with a client of their own; `run` until `stop`."""

    def __init__(
        self,
        client: AsyncMongoClient[Document],
        database: str,
        truth: Truth,
        *,
        rate: float,
        seed: int,
    ) -> None:
        self.truth = truth
        self._client = client
        self._seed = seed
        self._pace = Pace(rate)
        self._stopping = False
        self._database = client.get_database(database, write_concern=WriteConcern("majority"))
        self._shared = [
            SharedDocument(
                self._database[name], (name, f"shared-{n}"), truth, counted=name == "things"
            )
            for name in COLLECTIONS
            for n in range(SHARED)
        ]
        self._own = [
            [self._own_document(hand, n) for n in range(OWN_EACH)] for hand in range(HANDS)
        ]
        self.transactions = {"committed": 0, "undone": 0, "unknown": 0}

    def _own_document(self, hand: int, n: int) -> OwnDocument:
        name = COLLECTIONS[0 if n < 4 else 1]
        return OwnDocument(
            self._database[name],
            (name, f"own-{hand}-{n}"),
            self.truth,
            counted=n % 2 == 0,
        )

    async def prepare(self) -> None:
        """Create the collections, which transactions need, and the shared documents."""
        for each in self._shared:
            await each.insert(self.truth.next_op())

    async def run(self) -> None:
        """Write until `stop`."""
        async with asyncio.TaskGroup() as hands:
            for hand, own in enumerate(self._own):
                hands.create_task(self._write(hand, own))

    def stop(self) -> None:
        """End after the write in progress of each writer."""
        self._stopping = True

    async def settle(self) -> None:
        """Find out the fate of every write to an own document, after all repairs."""
        rng = random.Random(f"{self._seed}/settle")
        deadline = time.monotonic() + SETTLE_S
        for each in [document for own in self._own for document in own]:
            while each.pending:
                await each.step(rng)
                if time.monotonic() > deadline:
                    raise AssertionError(f"{each.place}: fate unknown after {SETTLE_S} s")

    async def end_marks(self) -> dict[str, int]:
        """Write to each collection once more and return the ops."""
        rng = random.Random(f"{self._seed}/end")
        for each in self._shared:
            done = False
            while not done:
                done = await each.step(rng, "end")
        written = {each.place[0]: self.truth.shared[each.place] for each in self._shared}
        return {name: writes[max(writes)].op for name, writes in written.items()}

    async def _write(self, hand: int, own: Sequence[OwnDocument]) -> None:
        rng = random.Random(f"{self._seed}/{hand}")
        while not self._stopping:
            await self._pace.turn()
            turn = rng.random()
            if turn < 0.15:
                known = await rng.choice(self._shared).step(rng, f"h{hand}")
            elif turn < 0.20:
                known = await self._transact(rng, own, f"h{hand}")
            else:
                known = await rng.choice(own).step(rng)
            if not known:
                # The driver fails at once without a known primary.
                await asyncio.sleep(rng.uniform(0.05, 0.3))

    async def _transact(self, rng: random.Random, own: Sequence[OwnDocument], hand: str) -> bool:
        """Write a few own documents and perhaps a shared one in one transaction."""
        settled = [each for each in own if each.last is not None and not each.pending]
        if len(settled) < 2:
            return await rng.choice(own).step(rng)
        chosen = rng.sample(settled, min(len(settled), rng.randrange(2, 4)))
        # The same document twice in one transaction: two versions at one cluster time.
        again = rng.random() < 0.3
        shared = rng.choice(self._shared) if rng.random() < 0.3 else None
        number = self.truth.next_op()
        made: list[tuple[OwnDocument, Write, Document]] = []
        joint: tuple[Write, Document] | None = None
        before = [(each, each.last, each.version) for each in chosen]
        async with self._client.start_session() as session:
            await session.start_transaction(write_concern=WriteConcern("majority"))
            try:
                for each in [*chosen, *(chosen[:1] if again else [])]:
                    op = self.truth.next_op()
                    write, after = await each.update_within(session, rng, op, number)
                    made.append((each, write, after))
                    each.last = write.op
                if shared is not None:
                    joint = await self._join(session, rng, shared, hand, number)
            except (PyMongoError, LookupError) as exc:
                if isinstance(exc, PyMongoError):
                    self.truth.met(exc)
                # Not committed, so never: the server aborts it.
                for each, last, version in before:
                    each.last, each.version = last, version
                self.truth.never.update(write.op for _, write, _ in made)
                self.transactions["undone"] += 1
                try:
                    await session.abort_transaction()
                except PyMongoError:
                    return False
                return False
            for each, last, version in before:
                each.last, each.version = last, version
            fate = await _commit(session)
        self.transactions[fate] += 1
        ops = [(write.place, write.op) for _, write, _ in made]
        if shared is not None and joint is not None:
            ops.append((shared.place, joint[0].op))
        if fate != "undone":
            self.truth.transactions[number] = ops
        self._settle(fate, made)
        if shared is not None and joint is not None:
            if fate == "committed":
                self.truth.acknowledged += 1
                shared.done(*joint)
            elif fate == "unknown":
                shared.doubtful(joint[0])
            else:
                self.truth.never.add(joint[0].op)
        return fate == "committed"

    async def _join(
        self,
        session: AsyncClientSession,
        rng: random.Random,
        shared: SharedDocument,
        hand: str,
        number: int,
    ) -> tuple[Write, Document]:
        op = self.truth.next_op()
        write = Write(op, shared.place, "UPDATE", transaction=number)
        query = {"_id": shared.place[1]}
        await shared.collection.update_one(query, shared.change(rng, op, hand), session=session)
        after = await shared.collection.find_one(query, session=session)
        if after is None:
            raise LookupError(f"{shared.place} is gone")
        return write, after

    def _settle(self, fate: str, made: Sequence[tuple[OwnDocument, Write, Document]]) -> None:
        """Record the fate of a transaction's writes in each own document."""
        for document, write, after in made:
            if fate == "committed":
                self.truth.acknowledged += 1
                document.done(write, after)
            elif fate == "undone":
                self.truth.never.add(write.op)
        if fate == "unknown":
            by_document: dict[int, list[tuple[OwnDocument, Write, Document]]] = {}
            for each in made:
                by_document.setdefault(id(each[0]), []).append(each)
            for writes in by_document.values():
                document = writes[0][0]
                document.doubt([(write, after) for _, write, after in writes])


async def _commit(session: AsyncClientSession) -> str:
    """Commit and return committed, undone or unknown; retries after a lost answer."""
    deadline = time.monotonic() + COMMIT_S
    while True:
        try:
            await session.commit_transaction()
        except PyMongoError as exc:
            if (
                exc.has_error_label("TransientTransactionError")
                and isinstance(exc, OperationFailure)
                and not exc.has_error_label("UnknownTransactionCommitResult")
            ):
                return "undone"
            if time.monotonic() > deadline:
                return "unknown"
            await asyncio.sleep(0.2)
        else:
            return "committed"
