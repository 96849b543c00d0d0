"""Idempotency keys: a mutation that is sent again returns the stored result of the first.

The result is stored under the client's key in the transaction of the write, so that both happen or
neither, and only once, even after a crash. A refused mutation has changed nothing and is executed
again.
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
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession, write

__all__ = ["AlreadyExecuted", "IdempotencyStore"]

T = TypeVar("T")

COLLECTION = "revstream.repeats"
_INDEX_OPTIONS_CONFLICT = 85


@dataclass(frozen=True, slots=True)
class AlreadyExecuted(Exception):
    """Mutation that was executed before; `outcome` is the stored result."""

    outcome: Mapping[str, Any]


class IdempotencyStore:
    """Results of mutations by idempotency key.

    Args:
        window_s: how long a key is stored, in seconds.
    """

    def __init__(self, mongo: Mongo, *, window_s: float = 86_400.0) -> None:
        self._mongo = mongo
        self._window_s = window_s

    async def prepare(self) -> None:
        """Create the TTL index that deletes keys after the window, or change its period."""
        seconds = max(1, int(self._window_s))
        try:
            await self._mongo.create_index(COLLECTION, [("at", 1)], expireAfterSeconds=seconds)
        except DatabaseError as exc:
            if exc.number != _INDEX_OPTIONS_CONFLICT:
                raise
            index = {"keyPattern": {"at": 1}, "expireAfterSeconds": seconds}
            await self._mongo.command({"collMod": COLLECTION, "index": index})

    async def run_once(
        self,
        author: Author,
        operation: Callable[[], Awaitable[T]],
        again: Callable[[Mapping[str, Any]], Awaitable[T]],
    ) -> T:
        """Execute an operation, or return the result of its first execution.

        Args:
            again: builds the result from the stored outcome.

        Raises:
            BadUserInput: the key was used for another mutation.
        """
        try:
            try:
                return await operation()
            except WriteRefused:
                # The refusal may be caused by the changes of the first execution.
                await self.check(author)
                raise
        except AlreadyExecuted as exc:
            return await again(exc.outcome)

    async def check(self, author: Author) -> None:
        """Check whether the mutation was executed before.

        Raises:
            AlreadyExecuted: this mutation was executed before.
            BadUserInput: the key was used for another mutation.
        """
        if author.repeat is None:
            return
        found = await self._mongo.find(COLLECTION, {"_id": author.repeat}, FindOptions(limit=1))
        if not found:
            return
        if found[0]["fingerprint"] != author.fingerprint:
            raise BadUserInput(
                "idempotency key: used for a mutation with other arguments, expected the same "
                "mutation; use a new key for each mutation"
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
        """Write as `streams.mongo.transactions.write`, and store the outcome if there is a key.

        Args:
            outcome: the outcome to store, or a function that builds it from the result of `work`.

        Raises:
            AlreadyExecuted: the same mutation was executed concurrently.
        """
        if author.repeat is None:
            return await write(self._mongo, work, transaction=transaction)
        key, fingerprint = author.repeat, author.fingerprint

        async def store(writing: WriteSession, outcome: Mapping[str, Any]) -> None:
            line = {"_id": key, "fingerprint": fingerprint, "outcome": outcome}
            await writing.insert(COLLECTION, {**line, "at": datetime.now(UTC)})

        async def both(writing: WriteSession) -> T:
            if isinstance(outcome, Mapping):
                # The key first, so that the document is locked as briefly as possible: after a
                # crash of the gateway, until the server aborts the transaction.
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
