"""Writers, recorders and the two sides of the Copier, each advanced by single commands.

The Copier is the real one, on a real MongoDB: each command that it sends waits until the test
advances it. The test records changes itself, from the difference after each step, so a change
is in the archive exactly when the schedule says.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import bson
from bson import Timestamp

from revstream.model.compiler.loader import read_model
from revstream.model.definition import Model
from revstream.streams.archive.store import Archive
from revstream.streams.core import resume_tokens
from revstream.streams.listeners.copies.listeners import CopySourceListener, CopyTargetListener
from revstream.streams.listeners.copies.propagation_job import COLLECTION
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED
from revstream.streams.versioning.copied_field import CopiedField, copied_fields
from revstream.streams.versioning.version import LastVersion, Version, make_version
from tests.support.streams import raw

SHOP = read_model("""
type Supplier @collection(name: "suppliers") { id: String! name: String rank: Int }
type Product @collection(name: "products") {
  id: String!
  supplierId: ID
  supplier: Supplier @reference(by: "supplierId")
  supplierName: String @copy(of: "supplier.name")
}
""")
BASKETS = read_model("""
type Supplier @collection(name: "suppliers") { id: String! name: String rank: Int }
type Product @collection(name: "products") { id: String! lines: [Line!] }
type Line {
  supplierId: ID
  supplier: Supplier @reference(by: "supplierId")
  supplierName: String @copy(of: "supplier.name")
}
""")

Side = Literal["sources", "targets"]
_START = Timestamp(1_700_000_000, 1)


class _Deposed(Exception):
    """A checkpoint write was refused because the process has lost its lease."""


class Steps:
    """Steps of one task: it waits before each command until `advance`."""

    def __init__(self) -> None:
        self._go: asyncio.Future[None] | None = None
        self._stopped = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        # Whether documents may have changed since the last check.
        self.wrote = False
        # The command that the task will send next.
        self.next = ""

    async def take(self) -> None:
        self._go = asyncio.get_running_loop().create_future()
        self._stopped.set()
        await self._go

    async def reach(self) -> None:
        """Wait until the task waits or has ended; raises the exception of the task."""
        assert self.task is not None
        stopped = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait([stopped, self.task], return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if self.task.done():
            self.task.result()

    async def advance(self) -> None:
        """Run one step, up to the next command."""
        if self.task is None or self.task.done():
            return
        assert self._go is not None
        self._stopped.clear()
        self._go.set_result(None)
        await self.reach()

    async def end(self) -> None:
        if self.task is not None:
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self.task


class _Stepwise:
    """A `Mongo`, or a collection of the driver, whose every command is a step."""

    def __init__(self, inner: Any, steps: Steps) -> None:
        self._inner = inner
        self._steps = steps

    def raw(self, collection: str) -> Any:
        return _Stepwise(self._inner.raw(collection), self._steps)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)

        async def step(*args: Any, **kwargs: Any) -> Any:
            self._steps.next = name
            await self._steps.take()
            self._steps.wrote |= name == "bulk_write"
            return await call(*args, **kwargs)

        return step


class Instance:
    """One side of the Copier in one process: `streams.listeners.consumer`, in steps."""

    def __init__(self, world: World, side: Side, fence: int) -> None:
        self.side: Side = side
        self.steps = Steps()
        self.idle = False
        self._world = world
        self._fence = fence
        self._place = world.places[side]
        mongo: Any = _Stepwise(world.mongo, self.steps)
        sources = Archive(mongo, world.copy.source)
        self.handler: CopySourceListener | CopyTargetListener
        if side == "sources":
            self.handler = CopySourceListener(world.copy, mongo, sources, chunk=world.chunk)
        else:
            self.handler = CopyTargetListener(world.copy, mongo, sources, None)
        self.archive = Archive(mongo, self.handler.collection)
        self.steps.task = asyncio.ensure_future(self._run())

    @property
    def ended(self) -> bool:
        return self.steps.task is not None and self.steps.task.done()

    async def _run(self) -> None:
        with contextlib.suppress(_Deposed):
            await self.handler.begin(self._fence)
            while True:
                upto = self._world.recorded[self.handler.collection]
                found = await self.archive.scan(self._place, upto, limit=self._world.page)
                if found:
                    versions = [Version.from_record(each) for each in found]
                    await self.handler.handle(versions, self._fence)
                    await self.steps.take()
                    self._save(versions[-1].token)
                more = await self.handler.turn(self._fence)
                self.idle = not found and not more

    def _save(self, token: str) -> None:
        if self._world.fences[self.side] > self._fence:
            raise _Deposed
        self._place = self._world.places[self.side] = token


class World:
    """Sources `suppliers` and targets `products`, their archives, and both sides of the Copier.

    Args:
        page: versions that a side reads at once.
        chunk: targets that the source side updates at once.
    """

    def __init__(self, mongo: Mongo, model: Model = SHOP, *, page: int = 2, chunk: int = 2) -> None:
        self.mongo = mongo
        self.copy: CopiedField = copied_fields(model)[0]
        self.page = page
        self.chunk = chunk
        self.names = ("suppliers", "products")
        self.archives = {name: Archive(mongo, name) for name in self.names}
        self.recorded = dict.fromkeys(self.names, "")
        self.places: dict[Side, str] = {"sources": "", "targets": ""}
        self.fences: dict[Side, int] = {"sources": 1, "targets": 1}
        self.live: dict[Side, Instance] = {}
        self.zombies: list[Instance] = []
        self._seen: dict[str, dict[Any, Any]] = {name: {} for name in self.names}
        self._queue: dict[str, list[tuple[Timestamp, Any, Any, str | None]]] = {
            name: [] for name in self.names
        }
        self._lasts: dict[tuple[str, Any], LastVersion] = {}
        self._count = 0

    async def begin(self) -> World:
        for name in (*self.names, *(each.name for each in self.archives.values()), COLLECTION):
            await self.mongo.command({"delete": name, "deletes": [{"q": {}, "limit": 0}]})
        sides: tuple[Side, Side] = ("sources", "targets")
        for side in sides:
            self.live[side] = Instance(self, side, 1)
            await self.live[side].steps.reach()
        return self

    async def end(self) -> None:
        for each in (*self.live.values(), *self.zombies):
            await each.steps.end()

    async def write(
        self, collection: str, command: Mapping[str, Any], operation: str | None = None
    ) -> None:
        """Run one command on one collection, as another program does."""
        await self.mongo.command({**command})
        await self.observe(operation)

    async def put(self, collection: str, key: Any, document: Mapping[str, Any] | None) -> None:
        """Replace a whole document; None deletes it."""
        if document is None:
            deletes = [{"q": {"_id": key}, "limit": 1}]
            await self.write(collection, {"delete": collection, "deletes": deletes})
            return
        updates = [{"q": {"_id": key}, "u": {"_id": key, **document}, "upsert": True}]
        await self.write(collection, {"update": collection, "updates": updates}, "REPLACE")

    async def change(self, collection: str, key: Any, update: Any) -> None:
        updates = [{"q": {"_id": key}, "u": update}]
        await self.write(collection, {"update": collection, "updates": updates})

    async def supplier(self, key: str, name: str | None, **more: Any) -> None:
        """Set the name of a supplier."""
        await self.put("suppliers", key, {"name": name, **more})

    async def product(self, key: str, supplier: str | None, **more: Any) -> None:
        """Insert a product, or replace it."""
        refers = {} if supplier is None else {"supplierId": supplier}
        await self.put("products", key, {**refers, **more})

    async def observe(self, operation: str | None = None) -> None:
        """Append what changed since the last step, as the change stream would report it."""
        for name in self.names:
            found = {each["_id"]: each for each in await self.mongo.find(name, {})}
            before, self._seen[name] = self._seen[name], found
            for key in sorted({*before, *found}):
                if _bytes(before.get(key)) != _bytes(found.get(key)):
                    self._count += 1
                    at = Timestamp(_START.time + self._count, 1)
                    self._queue[name].append((at, key, found.get(key), operation))

    async def record(self, collection: str, count: int = 1000) -> None:
        """Archive the next `count` changes."""
        queue = self._queue[collection]
        for at, key, after, said in queue[:count]:
            last = self._lasts.get((collection, key))
            there = last is not None and last.full is not None
            operation = "DELETE" if after is None else (said or "UPDATE") if there else "INSERT"
            token = f"{resume_tokens.time_prefix(at)}2B04"
            wall = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=at.time - _START.time)
            record, made = make_version(
                token=token,
                at=at,
                wall=wall,
                key=key,
                operation=operation,
                after=raw(after),
                last=last,
                version_field="version",
            )
            assert await self.archives[collection].insert([record])
            self._lasts[collection, key] = made
            self.recorded[collection] = token
        del queue[:count]

    async def step(self, instance: Instance, count: int = 1) -> None:
        """Run one or more commands of a side; none of them may undo a copy."""
        for _ in range(count):
            await instance.steps.advance()
            if not instance.steps.wrote:
                continue
            instance.steps.wrote = False
            before = {key: dict(self.entries(key)) for key in self._seen["products"]}
            await self.observe()
            for key, numbers in before.items():
                back = {
                    of: (numbers[of], v)
                    for of, v in (self.entries(key) if key in self._seen["products"] else ())
                    if _is_number(numbers.get(of)) and numbers[of] > v
                }
                assert not back, f"{instance.side} took {key} back to an earlier version: {back}"

    async def depose(self, side: Side) -> Instance:
        """Start another instance of a side; returns the old one, which does not know it yet."""
        zombie = self.live[side]
        self.zombies.append(zombie)
        self.fences[side] += 1
        self.live[side] = Instance(self, side, self.fences[side])
        await self.live[side].steps.reach()
        return zombie

    async def handled(self, side: Side) -> None:
        """Run a side until it has handled all recorded versions."""
        instance = self.live[side]
        instance.idle = False
        while not instance.idle:
            await self.step(instance)
        # Writes since its last read of the archive do not count.
        instance.idle = False
        while not instance.idle:
            await self.step(instance)

    async def late(self) -> None:
        """Let deposed instances finish their commands in flight and learn that they are deposed."""
        for each in self.zombies:
            each.idle = False
            for _ in range(200):
                if each.ended or each.idle:
                    break
                await self.step(each)
            await each.steps.end()
        self.zombies.clear()

    async def settle(self) -> None:
        """Record and handle everything, until nothing changes any more."""
        for _ in range(50):
            for name in self.names:
                await self.record(name)
            await self.handled("sources")
            await self.handled("targets")
            if not any(self._queue.values()):
                return
        raise AssertionError(f"it never ends: {self._queue}")

    def stale(self) -> list[str]:
        """Return the copies that differ from their source."""
        names = {key: each.get("name") for key, each in self._seen["suppliers"].items()}
        found = []
        for key, product in self._seen["products"].items():
            for place, holder in enumerate(product.get("lines", [product])):
                by = holder.get("supplierId")
                wanted = () if by is None else (names.get(by),)
                actual = (holder["supplierName"],) if "supplierName" in holder else ()
                if actual != wanted:
                    found.append(f"{key}[{place}] of {by}: {actual}, and {wanted} is right")
        return found

    def entries(self, key: str) -> Any:
        """Return source and version of each copy, as stored beside the copies."""
        copies = self._seen["products"][key].get("_copies")
        found = copies.get(self.copy.key) if isinstance(copies, dict) else None
        return [(each["of"], each["v"]) for each in found or [] if isinstance(each, dict)]

    def number(self, key: str) -> Any:
        """Return the number of writes that a product has counted."""
        return self._seen["products"][key].get("version", 0)

    def copy_of(self, key: str) -> Any:
        """Return the copy of the supplier's name in a product; "-" where it has none."""
        return self._seen["products"][key].get("supplierName", "-")


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _bytes(document: Mapping[str, Any] | None) -> bytes:
    return b"" if document is None else bson.encode(document, codec_options=DECODED)
