"""First results of mutations that a client may send again, having lost the answer.

The client names its mutation with an idempotency key. What became of it is stored under that key in
the transaction that makes the write, so that both happen or neither, once, whoever crashes. A
mutation that was refused has changed nothing and is tried anew.
Source: docs/decisions/0013-repeats.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from bson import Timestamp

from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.mutations.result import Author, WriteRefused
from revstream.streams.core.errors import DatabaseError, DuplicateKey
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.transactions import WriteSession, write

__all__ = ["AlreadyExecuted", "IdempotencyStore"]

T = TypeVar("T")

COLLECTION = "revstream.repeats"
_INDEX_OPTIONS_CONFLICT = 85


@dataclass(frozen=True, slots=True)
class AlreadyExecuted(Exception):
    """The mutation was made before; `outcome` is what was stored then."""

    outcome: Mapping[str, Any]


class IdempotencyStore:
    """Args:
    window_s: how long a key is remembered.
    """

    def __init__(self, mongo: Mongo, *, window_s: float = 86_400.0) -> None:
        self._mongo = mongo
        self._window_s = window_s

    async def prepare(self) -> None:
        """Create what lets go of keys after the window, or change it to this window."""
        seconds = max(1, int(self._window_s))
        try:
            await self._mongo.create_index(COLLECTION, [("at", 1)], expireAfterSeconds=seconds)
        except DatabaseError as exc:
            if exc.number != _INDEX_OPTIONS_CONFLICT:
                raise
            index = {"keyPattern": {"at": 1}, "expireAfterSeconds": seconds}
            await self._mongo.command({"collMod": COLLECTION, "index": index})

    async def first(
        self,
        author: Author,
        operation: Callable[[], Awaitable[T]],
        again: Callable[[Mapping[str, Any]], Awaitable[T]],
    ) -> T:
        """What an operation makes, or made the first time.

        Args:
            again: of the outcome stored then, the result.

        Raises:
            BadUserInput: another mutation was made under this key.
        """
        try:
            try:
                return await operation()
            except WriteRefused:
                # By what the first time has changed?
                await self.check(author)
                raise
        except AlreadyExecuted as exc:
            return await again(exc.outcome)

    async def check(self, author: Author) -> None:
        """Raises:
        Repeated: this mutation was made before.
        BadUserInput: another one was made under this key.
        """
        if author.repeat is None:
            return
        found = await self._mongo.find(COLLECTION, {"_id": author.repeat}, limit=1)
        if not found:
            return
        if found[0]["fingerprint"] != author.fingerprint:
            raise BadUserInput(
                "this idempotency key was used before, for a mutation with other arguments; "
                "take a new key for each mutation"
            )
        raise AlreadyExecuted(found[0]["outcome"])

    async def once(
        self,
        author: Author,
        work: Callable[[WriteSession], Awaitable[T]],
        outcome: Mapping[str, Any] | Callable[[T], Mapping[str, Any]],
        *,
        transaction: bool = False,
    ) -> tuple[T, Timestamp]:
        """As `streams.mongo.transactions.write`, and what became of it is stored with it, if it
        may be repeated.

        Args:
            outcome: what is stored; where that depends on what `work` returns, made of it.

        Raises:
            Repeated: it was made meanwhile, by the same request on another way.
        """
        if author.repeat is None:
            return await write(self._mongo, work, transaction=transaction)
        key, fingerprint = author.repeat, author.fingerprint

        async def store(writing: WriteSession, outcome: Mapping[str, Any]) -> None:
            line = {"_id": key, "fingerprint": fingerprint, "outcome": outcome}
            await writing.insert(COLLECTION, {**line, "at": datetime.now(UTC)})

        async def both(writing: WriteSession) -> T:
            if isinstance(outcome, Mapping):
                # First, so that the document is held for as short as can be: of a gateway that is
                # killed in between, until the server gives the transaction up.
                await store(writing, outcome)
                return await work(writing)
            result = await work(writing)
            await store(writing, outcome(result))
            return result

        try:
            return await write(self._mongo, both, transaction=True)
        except DuplicateKey:
            await self.check(author)
            raise
