"""Rounds of writes and comparisons, each on a database of its own."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from revstream.model.compiler.loader import read_model
from revstream.streams.archive.store import Archive
from revstream.streams.layouts.factory import create_layout
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import RAW
from revstream.streams.mongo.find_options import FindOptions
from tests.fuzzing.checker import (
    Archived,
    check_deliveries,
    check_present,
    check_states,
    with_indexes,
)
from tests.fuzzing.collections import COLLECTIONS, FuzzedCollection, model_text
from tests.fuzzing.questions import Queries
from tests.fuzzing.raw_documents import document_of
from tests.fuzzing.subscribers import Subscriber, subscribed
from tests.fuzzing.writer import Document, Writer
from tests.support.gateway import RunningGateway, run_command, running_gateway
from tests.support.mongod import running_mongod, temporary_directory
from tests.support.receiver import Receiver, running_receiver

__all__ = ["Options", "Outcome", "run"]

KEY = "0123456789abcdef"
SETTLE_S = 120.0

Say = Callable[[str], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a run.

    Args:
        before: writes before the first gateway starts.
        steps: writes while a gateway runs; there are two gateways one after the other.
        duration_s: no round begins later; there is at least one.
    """

    seed: int
    duration_s: float = 0.0
    before: int = 60
    steps: int = 150


@dataclass
class Outcome:
    """Statistics and findings of a run."""

    rounds: int = 0
    writes: int = 0
    refused: int = 0
    versions: int = 0
    gaps: int = 0
    deliveries: int = 0
    posted: int = 0
    answers: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def line(self) -> str:
        return (
            f"{self.rounds} rounds: {self.writes} writes ({self.refused} refused by MongoDB), "
            f"{self.versions} versions ({self.gaps} behind a gap), {self.deliveries} deliveries, "
            f"{self.posted} posted, {self.answers} answers"
        )


def run(options: Options, say: Say) -> Outcome:
    """Execute rounds; each one adds 1 to the seed."""
    outcome, ends = Outcome(), time.monotonic() + options.duration_s
    with temporary_directory() as directory, running_mongod(directory / "data") as uri:
        while outcome.rounds == 0 or (time.monotonic() < ends and not _deaths(directory / "data")):
            seed = options.seed + outcome.rounds
            before = len(outcome.findings)
            round_ = _Round(uri, f"fuzzed_{seed}", directory, options, seed, outcome)
            try:
                asyncio.run(round_.play())
            except Exception as exc:
                outcome.findings.append(f"the round ended with {exc!r}")
                outcome.findings += _deaths(directory / "data")
            for finding in outcome.findings[before:]:
                say(f"FINDING seed {seed}: {finding}")
            outcome.rounds += 1
            say(f"seed {seed}; {outcome.line}; {len(outcome.findings)} findings")
    return outcome


def _deaths(data: Path) -> list[str]:
    """Return the log lines of a mongod before it crashed."""
    lines = (data / "mongod.log").read_text(errors="replace").splitlines()
    return [each[:3000] for each in lines if '"s":"F"' in each][:8]


class _Round:
    def __init__(
        self,
        uri: str,
        database: str,
        directory: Path,
        options: Options,
        seed: int,
        outcome: Outcome,
    ) -> None:
        self._uri = uri
        self._database = database
        self._options = options
        self._outcome = outcome
        self._receiver = Receiver()
        # Where the first subscriptions started.
        self._start = ""
        self._random = random.Random(seed)
        self._model_path = directory / f"{database}.graphql"
        self._keys = directory / "keys.toml"
        digest = hashlib.sha256(KEY.encode()).hexdigest()
        self._keys.write_text(
            f'[[keys]]\nsha256 = "{digest}"\nprincipal = "ann"\nroles = []\n'
            'claims = { sub = "ann" }\n'
        )
        self._subscribers = [
            Subscriber(each, KEY, asks) for each in COLLECTIONS for asks in (False, True)
        ]

    async def play(self) -> None:
        """Write before a gateway runs, while it runs, and while a second one runs."""
        with ExitStack() as stack:
            stack.enter_context(running_receiver(self._receiver))
            client = stack.enter_context(MongoClient[Any](self._uri))
            self._client = client
            self._model_text = model_text(self._receiver.url)
            self._model_path.write_text(self._model_text)
            writer = self._writer = Writer(client, self._database, self._random)
            try:
                await asyncio.to_thread(self._write, self._options.before, begin=True)
                for last in (False, True):
                    await self._serve(last)
                await self._check()
                await asyncio.to_thread(self._verify)
            finally:
                client.drop_database(self._database)
                client.drop_database(f"{self._database}_ids")
            self._outcome.writes += writer.written
            self._outcome.refused += writer.refused

    def _write(self, steps: int, *, begin: bool = False) -> None:
        if begin:
            self._writer.begin()
        for _ in range(steps):
            self._writer.step()

    async def _serve(self, last: bool) -> None:
        options = [
            *("--api-keys", str(self._keys), "--archive-wait-s", "60", "--lease-s", "2"),
            *("--max-response-bytes", "200000000", "--max-read-bytes", "1000000000"),
            *("--max-values", "10000000", "--max-cost", "100000"),
        ]
        with running_gateway(self._uri, self._database, self._model_path, *options) as gateway:
            for each in COLLECTIONS:
                if not each.images:
                    off = {"changeStreamPreAndPostImages": {"enabled": False}}
                    self._client[self._database].command("collMod", each.name, **off)
            async with httpx.AsyncClient(
                base_url=gateway.address, headers={"x-api-key": KEY}, timeout=120
            ) as client:
                questions = Queries(client, self._writer.healthy)
                start = await self._started(questions)
                self._start = self._start or start.rpartition(".")[0]
                for each in self._subscribers:
                    each.token = each.token or start
                async with subscribed(self._subscribers, gateway.address):
                    await asyncio.to_thread(self._write, self._options.steps)
                    await self._settle(gateway, questions)
                    for each in COLLECTIONS:
                        await questions.about(each)
                    self._outcome.answers += questions.asked
                    self._outcome.findings += questions.findings
                    ready = (await client.get("/readyz")).json()
                    aside = ready.get("trouble", {}).values()
                    if not ready["ready"] or not all("set aside" in each for each in aside):
                        self._find(f"/readyz: {ready}")
            if gateway.process.poll() is not None:
                self._find(f"the gateway ended with {gateway.process.returncode}")
            if last:
                code = gateway.stop()
                if code:
                    self._find(f"the gateway stopped with {code}")
            else:
                gateway.process.kill()
        self._read_log(gateway)

    def _read_log(self, gateway: RunningGateway) -> None:
        lines = gateway.lines
        for n, line in enumerate(lines):
            reported = " error " in line or " critical " in line or "Traceback" in line
            if reported and not any(
                "bytes that drivers change" in each for each in (line, lines[n - 1])
            ):
                self._find(f"the log: {''.join(each[:300] for each in lines[n : n + 40])}")
                return

    async def _started(self, questions: Queries) -> str:
        """Wait until each recorder and listener has a position; return a later one.

        Subscriptions that start there, and the sink, receive whatever is written from then on.
        """
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            data = await questions.ask("{ streams { reading { documents } resumeToken } }")
            if all(each["resumeToken"] and not each["reading"] for each in data["streams"]):
                return await self._recorded(questions)
            await asyncio.sleep(0.1)
        raise AssertionError(f"streams without a position within {SETTLE_S} s: {data}")

    async def _recorded(self, questions: Queries) -> str:
        """Wait until all writes are in the archive; returns the resume token."""
        token: str = (await questions.ask("{ resumeToken }"))["resumeToken"]
        # An initial snapshot that ends later cannot answer for this token, only for a later one.
        allowed = frozenset({"HISTORY_LOST"})
        for each in COLLECTIONS:
            root = f"{each.one}sAsOf"
            query = f'{{ {root}(asOf: {{token: "{token}"}}) {{ totalCount }} }}'
            await questions.ask(query, allowed=allowed)
        return token

    async def _settle(self, gateway: RunningGateway, questions: Queries) -> None:
        """Wait until archive, copies, sink and subscribers have caught up with all writes."""

        async def quiet() -> bool:
            token = await self._recorded(questions)
            data = await questions.ask("{ streams { name state trouble lagSeconds resumeToken } }")
            behind = [each for each in data["streams"] if each["lagSeconds"]]
            tokens = await self._tokens()
            told = {each.name: len(each.deliveries) for each in self._subscribers}
            await asyncio.sleep(0.3)
            again = await self._tokens()
            now = {each.name: len(each.deliveries) for each in self._subscribers}
            missing = [
                each.name
                for each in self._subscribers
                if each.collection.name != "ruled" and now[each.name] < again[each.collection.name]
            ]
            still = tokens == again and told == now and not missing
            return not behind and still and bool(token)

        deadline = time.monotonic() + SETTLE_S
        while not await quiet():
            if gateway.process.poll() is not None or time.monotonic() > deadline:
                self._find(f"does not settle within {SETTLE_S} s")
                return

    async def _tokens(self) -> dict[str, int]:
        """Count the versions behind the start, of the collections that have an archive."""
        behind, database = {"_id": {"$gt": self._start}}, self._client[self._database]
        return {
            each.name: database[f"{each.name}.versions"].count_documents(behind)
            for each in COLLECTIONS
        }

    def _check_copies(self) -> None:
        """Check that the copies of valid sources equal the sources."""
        for name, right in self._writer.healthy["plain"].items():
            found = self._client[self._database].targets.find_one({"_id": name}) or {}
            shown = found.get("name"), found.get("copied")
            if shown != (right["text"], right["n"]):
                self._find(f"copies of {name}: {shown}, right is {right['text'], right['n']}")

    async def _check(self) -> None:
        self._check_copies()
        model = read_model(self._model_text)
        async with Mongo.connect(self._uri, self._database) as mongo:
            for each in COLLECTIONS:
                archive = Archive(mongo, each.name, create_layout(mongo, model.entity(each.type)))
                records = await archive.find({}, FindOptions(sort=[("_id", 1)], raw=True))
                await self._compare(each, records)

    async def _compare(self, place: FuzzedCollection, records: Sequence[Any]) -> None:
        versions: dict[bytes, list[Archived]] = {}
        numbers = {}
        for record in records:
            full = record["full"]
            made = Archived(
                record["_id"], record["v"], record["op"], bool(record.get("gap")),
                None if full is None else bytes(full.raw),
            )  # fmt: skip
            numbers[made.token] = made.number
            self._outcome.gaps += made.gap
            versions.setdefault(self._key_of(place, record), []).append(made)
        self._outcome.versions += len(records)
        for each in self._subscribers:
            if each.collection == place:
                self._outcome.deliveries += len(each.deliveries)
                self._outcome.findings += each.findings
                if place.name != "ruled":
                    self._outcome.findings += check_deliveries(
                        each.name, each.deliveries, self._start, numbers
                    )
        if place.name == "plain":
            posted = {each.event["id"].rpartition(".")[0] for each in self._receiver.requests}
            self._outcome.posted += len(posted)
            missing = [token for token in numbers if token not in posted and token > self._start]
            if missing:
                self._find(f"sink: {len(missing)} events were not posted: {missing[:3]}")
        if place.layout != "ARCHIVE":
            return
        notes = {e.key: e for e in self._writer.documents.values() if e.collection == place.name}
        for key in versions.keys() - notes.keys():
            self._find(f"{place.name}: versions of {key!r}, which was never written")
        for key, document in notes.items():
            found = versions.get(key, [])
            told = bytes if place.images else with_indexes
            if place.name != "targets":
                # The Copier writes states of targets, too.
                self._outcome.findings += check_states(document, found, told=told)
            present = self._present(document)
            self._outcome.findings += check_present(document, found, present, told=told)

    def _key_of(self, place: FuzzedCollection, record: Any) -> bytes:
        """Return the `_id` element in the recorded writes for a version's document."""
        wanted = record["doc"]
        raw_ids = self._client[f"{self._database}_ids"].get_collection(place.name, RAW)
        found = raw_ids.find_one({"_id": {"$eq": wanted}})
        return repr(wanted).encode() if found is None else bytes(found.raw)[4:-1]

    def _present(self, document: Document) -> bytes | None:
        key = document.key
        if not document.states:
            return None
        equals = document_of([key[:1] + b"$eq" + key[key.index(0, 1) :]])
        query = RawBSONDocument(document_of([b"\x03_id\0" + equals]), RAW)
        collection = self._client[self._database].get_collection(document.collection, RAW)
        found = collection.find_one(query)
        return None if found is None else bytes(found.raw)

    def _verify(self) -> None:
        done = run_command(
            *("verify", "--mongodb-uri", self._uri, "--database", self._database),
            *("--schema", str(self._model_path)),
        )
        if done.returncode:
            lines = [each for each in done.stdout.splitlines() if each.endswith("]")]
            # Set-aside events are reported.
            lines = [each for each in lines if "bytes that drivers change" not in each]
            if lines or done.returncode != 1:
                self._find("verify: " + "\n  ".join([*lines[:20], done.stderr[-2000:]]))

    def _find(self, finding: str) -> None:
        self._outcome.findings.append(finding)
