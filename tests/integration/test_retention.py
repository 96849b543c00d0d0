"""Retention: the versions that stay, the marks of truncation, and consistent results for readers,
writers and crashes in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from bson import Timestamp
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.model.definition import Entity, Keep
from revstream.resolvers.history import collection_as_of
from revstream.resolvers.history.time_point import TimePoint
from revstream.resolvers.pagination.page import PageRequest
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Checkpoint, Checkpoints
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DamagedArchive, GatewayError, HistoryLost, TimeLimit
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import Hub
from revstream.streams.maintenance import retention, truncate
from revstream.streams.maintenance.retention import Retention
from revstream.streams.maintenance.verification import Verification
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.versioning.version import Version
from tests.integration.test_as_of import KEYS, PACKED, replayed
from tests.integration.test_history import history
from tests.support.archives import Scribe, at
from tests.support.eventually import eventually
from tests.support.exhaustive import examples
from tests.support.kept import kept_numbers
from tests.support.shop import PRODUCT
from tests.support.streams import Recording, by_document, check_chains, stop_task

Client = MongoClient[dict[str, Any]]
one_driver = pytest.mark.parametrize("mongo", ["motor"], indirect=True)

BODIES = st.none() | st.fixed_dictionaries(
    {"stock": st.integers(0, 3)}, optional={"name": st.sampled_from(["x", "y", None])}
)
WRITES = st.lists(
    st.tuples(st.sampled_from(KEYS), BODIES, st.sampled_from([0, 0, 1, 2, 7, 60, 5000])),
    max_size=30,
)
KEEPS = st.sampled_from(
    [
        Keep(text="1 version", versions=1),
        Keep(text="3 versions", versions=3),
        Keep(text="1 second", seconds=1),
        Keep(text="10 seconds", seconds=10),
        Keep(text="an hour", seconds=3600),
    ]
)


def retaining(mongo: Mongo, archive: Archive, keep: Keep, *, every_s: float = 3600.0) -> Retention:
    hub = Hub([archive.collection], position="")
    progress = ArchiveProgress(Checkpoints(mongo), hub)
    name = f"retention:{archive.collection}"
    return Retention(mongo, archive, progress, keep, name=name, every_s=every_s)


async def recorded_up_to(mongo: Mongo, collection: str, second: int) -> None:
    """Save a checkpoint, as a recorder does that has reached this second."""
    checkpoint = Checkpoint(resume_tokens.token_from_time(at(second)), "")
    await Checkpoints(mongo).save(f"recorder:{collection}", checkpoint, fencing_token=0)


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the batch sizes, so that little data takes many steps."""
    monkeypatch.setattr(truncate, "_PER_TRANSACTION", 2)
    monkeypatch.setattr(truncate, "_PORTION", 2)
    monkeypatch.setattr(truncate, "_PER_READ", 4)
    monkeypatch.setattr(retention, "_PORTION", 3)


async def emptied(mongo: Mongo) -> None:
    for name in ("products.versions", "revstream.horizons", "revstream.checkpoints"):
        await mongo.command({"delete": name, "deletes": [{"q": {}, "limit": 0}]})


async def stored(mongo: Mongo, archive: Archive) -> list[dict[str, Any]]:
    return await archive.contents.fill(
        await mongo.find(archive.name, {}, FindOptions(sort=[("_id", 1)])), whole=True
    )


@one_driver
@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("entity", [PRODUCT, PACKED], ids=["FULL", "DELTA"])
@settings(
    deadline=None,
    max_examples=examples(30),
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(writes=WRITES, more=WRITES, keep=KEEPS, early=st.integers(0, 30))
async def test_the_remaining_versions_follow_the_rule_of_the_model(
    mongo: Mongo,
    entity: Entity,
    monkeypatch: pytest.MonkeyPatch,
    writes: list[Any],
    more: list[Any],
    keep: Keep,
    early: int,
) -> None:
    """A plain model predicts two passes with writes in between.

    As-of reads at or after the horizon are unchanged, and earlier ones are lost.
    """
    monkeypatch.setattr("revstream.streams.versioning.content_encoding._WORTH_IT", 0)
    await emptied(mongo)
    scribe = Scribe(mongo, entity)
    retained = retaining(mongo, scribe.archive, keep)
    second, near = 0, {-1, 0}
    for part in (writes, more):
        second += 1
        for key, body, pause in part:
            second += pause
            near |= {second - 1, second, second + 1}
            if body is not None or key in scribe.present:
                scribe.write(key, body, at(second, 1))
        await scribe.save()
        await recorded_up_to(mongo, PRODUCT.collection, second)
        now = at(second + early, 1)
        dropped = await retained.go_through(now)
        assert dropped >= 0
        assert await retained.go_through(now) == 0
    kept = kept_numbers(scribe.records, keep, now)
    records = await stored(mongo, scribe.archive)
    check_chains(records)
    assert {vs[0]["doc"]: [each["v"] for each in vs] for vs in by_document(records)} == kept
    assert retained.statistics()["versions"] == len(scribe.records) - len(records)
    check_marks(scribe, records)
    await check_reads(mongo, scribe, records, sorted(near))


def check_marks(scribe: Scribe, records: Sequence[dict[str, Any]]) -> None:
    """Check that each first version has the number of those before it, and nothing else has
    changed.
    """
    originals = {each["_id"]: each for each in scribe.records}
    for versions in by_document(records):
        first = versions[0]
        gone = [
            each
            for each in scribe.records
            if each["doc"] == first["doc"] and each["_id"] < first["_id"]
        ]
        assert ("cut" in first) == bool(gone)
        if gone:
            cut = first["cut"]
            assert (cut["versions"], cut["number"], cut["since"]) == (
                len(gone),
                gone[0]["v"],
                gone[0]["at"],
            )
        for each in versions:
            original = originals[each["_id"]]
            for name in ("v", "op", "at", "wall", "changed", "by", "why"):
                assert each[name] == original[name]
            assert each["full"] == (None if original["full"] is None else dict(original["full"]))


async def check_reads(
    mongo: Mongo, scribe: Scribe, records: Sequence[dict[str, Any]], near: Sequence[int]
) -> None:
    reading = history(mongo, scribe)
    gone = {each["_id"] for each in scribe.records} - {each["_id"] for each in records}
    # The version that replaced the last truncated one.
    horizon = max(
        (
            later["at"]
            for each in scribe.records
            for later in scribe.records
            if each["_id"] in gone and later["prev"] == each["_id"]
        ),
        default=Timestamp(0, 0),
    )
    for moment in near:
        state = replayed(scribe, moment)
        asked = [(key, at(moment)) for key in KEYS]
        for key, found in zip(KEYS, await reading.as_of(PRODUCT, asked, NAMES), strict=True):
            stood = [e for e in scribe.records if e["doc"] == key and e["at"] <= at(moment)]
            if stood and stood[-1]["_id"] in gone:
                assert isinstance(found, HistoryLost), (key, moment)
                first = next(each for each in records if each["doc"] == key)
                assert found.facts["oldestResumeToken"] == first["_id"]
            else:
                told = None if found is None else (found.number, found.full)  # type: ignore[union-attr]
                assert told == state.get(key), (key, moment)
        page = PageRequest(first=100)
        whole = reading.collection_as_of(
            PRODUCT,
            TimePoint(at(moment)),
            PageQuery(where=None, order=None, page=page, fields=NAMES),
        )
        if at(moment) < horizon:
            with pytest.raises(HistoryLost) as lost:
                await whole
            token = lost.value.facts["oldestResumeToken"]
            assert resume_tokens.cluster_time(str(token)) == horizon
        else:
            seen = {each.document: (each.number, each.full) for each in (await whole).items}
            assert seen == state
    await check_numbers(reading, scribe, gone)


async def check_numbers(reading: Any, scribe: Scribe, gone: set[str]) -> None:
    """Check that each former number is either found or lost, and any other is missing."""
    numbers = [(each["doc"], each["v"]) for each in scribe.records]
    found = await reading.by_number(PRODUCT, numbers, NAMES)
    for record, version in zip(scribe.records, found, strict=True):
        if record["_id"] in gone:
            assert isinstance(version, HistoryLost)
        else:
            assert isinstance(version, Version)
            assert version.number == record["v"]
    never = [(key, number) for key in KEYS for number in (0, 10**6)]
    assert await reading.by_number(PRODUCT, never, NAMES) == [None] * len(never)


NAMES = frozenset({"stock", "name"})
_SECONDS = 6


@one_driver
@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize(
    "keep", [Keep(text="2 versions", versions=2), Keep(text="2 s", seconds=2)], ids=str
)
async def test_a_pass_killed_at_any_step_leaves_a_consistent_history(
    mongo: Mongo, keep: Keep
) -> None:
    """Each document has one first version, lost versions are reported, and the next pass
    finishes.
    """
    scribe = Scribe(mongo, PRODUCT)
    for second in range(_SECONDS):
        for key in "ab":
            scribe.write(key, None if (second, key) == (3, "b") else {"stock": second}, at(second))
    await scribe.save()
    everything = await stored(mongo, scribe.archive)
    await recorded_up_to(mongo, PRODUCT.collection, _SECONDS)
    now = at(_SECONDS, 1)
    kept = kept_numbers(scribe.records, keep, now)
    steps, seen = 1, set()
    while True:
        await mongo.command({"delete": scribe.archive.name, "deletes": [{"q": {}, "limit": 0}]})
        await mongo.command({"delete": "revstream.horizons", "deletes": [{"q": {}, "limit": 0}]})
        await mongo.insert_in_order(scribe.archive.name, everything)
        dying = DyingMongo(mongo, steps)
        with suppress(Killed):
            await retaining(
                dying,
                Archive(dying, PRODUCT.collection),
                keep,  # type: ignore[arg-type]
            ).go_through(now)
        seen.add(dying.died_at)
        records = await stored(mongo, scribe.archive)
        check_chains(records)
        check_marks(scribe, records)
        await check_reads_between(mongo, scribe, records)
        await retaining(mongo, scribe.archive, keep).go_through(now)
        records = await stored(mongo, scribe.archive)
        check_chains(records)
        assert {vs[0]["doc"]: [each["v"] for each in vs] for vs in by_document(records)} == kept
        check_marks(scribe, records)
        if not dying.died_at:
            break
        steps += 1
    assert seen >= {"bulk_write", "delete_many", "find_one_and_update", "aggregate", "clock", ""}


async def check_reads_between(
    mongo: Mongo, scribe: Scribe, records: Sequence[dict[str, Any]]
) -> None:
    """Check that the collection at any time point is unchanged or lost."""
    reading = history(mongo, scribe)
    for moment in range(_SECONDS):
        try:
            page = await reading.collection_as_of(
                PRODUCT,
                TimePoint(at(moment)),
                PageQuery(where=None, order=None, page=PageRequest(first=10), fields=NAMES),
            )
        except HistoryLost:
            continue
        seen = {each.document: (each.number, each.full) for each in page.items}
        assert seen == replayed(scribe, moment)


class Killed(Exception):
    """The process is killed here."""


class DyingMongo:
    """Forwards everything; the n-th command is the last, either before or after its execution."""

    def __init__(self, target: Any, left: int) -> None:
        self._target = target
        self._fuse = [left]
        self._died: list[str] = []

    @property
    def died_at(self) -> str:
        return self._died[0] if self._died else ""

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if name == "raw":
            return self._raw
        if name not in _COMMANDS:
            return value

        async def command(*args: Any, **kwargs: Any) -> Any:
            self._burn(name)
            result = await value(*args, **kwargs)
            self._burn(name)
            return result

        return command

    def _raw(self, collection: str) -> Any:
        inner = DyingMongo(self._target.raw(collection), 0)
        inner._fuse, inner._died = self._fuse, self._died
        return inner

    def _burn(self, name: str) -> None:
        self._fuse[0] -= 1
        if self._fuse[0] == 0:
            self._died.append(name)
            raise Killed(name)


_COMMANDS = {"find", "aggregate", "find_one_and_update", "clock", "bulk_write", "delete_many"}


@one_driver
async def test_passes_under_writes_lose_nothing(mongo: Mongo, client: Client) -> None:
    """Only the last version stays, which the recorder replaces concurrently.

    Numbers are exact, and readers see each document once, or a lost version.
    """
    recording = Recording(mongo, "products")
    await recording.begin()
    products = client[mongo.name].products
    ids = [f"p{n:02}" for n in range(20)]
    await asyncio.to_thread(products.insert_many, [{"_id": id_, "n": 0} for id_ in ids])
    counts = {"rounds": 0, "passes": 0, "dropped": 0, "pages": 0, "lost": 0}
    # A reader without the retention's position, as in another process.
    keep = Keep(text="1 version", versions=1)

    def enough() -> bool:
        return counts["passes"] > 3 and counts["pages"] + counts["lost"] > 3

    async def write() -> None:
        while counts["rounds"] < 60 or not enough():
            for n in range(counts["rounds"], counts["rounds"] + 20):
                await asyncio.to_thread(products.update_many, {}, {"$inc": {"n": 1}})
                await asyncio.to_thread(
                    products.update_one, {"_id": ids[n % 20]}, {"$set": {"m": n}}
                )
            counts["rounds"] += 20

    async def retain() -> None:
        retained = retaining(mongo, recording.archive, keep)
        while True:
            counts["dropped"] += await retained.go_through()
            counts["passes"] += 1

    async def read() -> None:
        scribe = Scribe(mongo, PRODUCT)
        reading = history(mongo, scribe)
        while True:
            now = await mongo.operation_time()
            await recording.progress.wait("products", resume_tokens.token_from_time(now))
            try:
                page = await reading.collection_as_of(
                    PRODUCT,
                    TimePoint(now),
                    PageQuery(where=None, order=None, page=PageRequest(first=100), fields=NAMES),
                )
            except HistoryLost:
                counts["lost"] += 1
                continue
            counts["pages"] += 1
            assert [each.document for each in page.items] == ids

    async with recording.running() as task:
        await recording.caught_up(task)
        beside = [asyncio.create_task(each()) for each in (retain, retain, read)]
        try:
            await write()
        finally:
            await recording.at_rest(task)
            for each in beside:
                await stop_task(each)
        await retaining(mongo, recording.archive, keep).go_through()
    records = await recording.versions()
    assert [each["doc"] for each in sorted(records, key=lambda r: r["doc"])] == ids
    rounds = counts["rounds"]
    written = len(ids) + rounds * (len(ids) + 1)
    dropped = sum(each["cut"]["versions"] for each in records)
    assert dropped + len(records) == written
    assert {each["doc"]: each["v"] for each in records} == {
        id_: 1 + rounds + rounds // 20 for id_ in ids
    }
    assert enough()
    assert await verified(mongo, "products") == []


async def verified(mongo: Mongo, collection: str) -> list[Any]:
    checkpoint = await Checkpoints(mongo).load(f"recorder:{collection}")
    archive = Archive(mongo, collection)
    found = await Verification(mongo, archive, checkpoint, version_field="version").run()
    return found.findings


@one_driver
@pytest.mark.parametrize("walk_most", [0, 500])
async def test_a_document_is_returned_once_during_its_truncation(
    mongo: Mongo, client: Client, monkeypatch: pytest.MonkeyPatch, walk_most: int
) -> None:
    """A scan in progress sees both the old first version and the new one."""
    monkeypatch.setattr(collection_as_of, "_WALK_MOST", walk_most)
    scribe = Scribe(mongo, PRODUCT)
    for second in range(3):
        for key in "abc":
            scribe.write(key, {"stock": second}, at(second))
    await scribe.save()
    query = {"doc": "b", "v": 2}
    client[mongo.name]["products.versions"].update_one(query, {"$set": {"first": True}})
    page = await history(mongo, scribe).collection_as_of(
        PRODUCT,
        TimePoint(at(5)),
        PageQuery(where=None, order=None, page=PageRequest(first=9), fields=NAMES),
    )
    assert [(each.document, each.number) for each in page.items] == [("a", 3), ("b", 3), ("c", 3)]


@one_driver
@pytest.mark.parametrize(
    "keep", [Keep(text="1 version", versions=1), Keep(text="10 s", seconds=10)], ids=str
)
async def test_a_pass_continues_after_the_last_one(
    mongo: Mongo, client: Client, keep: Keep
) -> None:
    """Remaining versions are not read again, whatever their number."""
    scribe = Scribe(mongo, PRODUCT)
    for second in range(4):
        for key in range(30):
            scribe.write(f"{key:02}", {"stock": second}, at(second, key + 1))
    await scribe.save()
    await recorded_up_to(mongo, PRODUCT.collection, 60)
    retained = retaining(mongo, scribe.archive, keep)
    assert await retained.go_through(at(30, 1)) == 90
    client[mongo.name].command({"profile": 2})
    assert await retained.go_through(at(60, 1)) == 0
    client[mongo.name].command({"profile": 0})
    read = list(
        client[mongo.name]["system.profile"].find({"ns": f"{mongo.name}.products.versions"})
    )
    assert sum(each.get("docsExamined", 0) + each.get("keysExamined", 0) for each in read) == 0


@one_driver
@pytest.mark.parametrize("failure", [TimeLimit("it took too long"), DamagedArchive("damaged")])
async def test_a_failed_pass_is_logged_and_repeated(
    mongo: Mongo, caplog: pytest.LogCaptureFixture, failure: GatewayError
) -> None:
    """The process keeps running: nothing depends on it."""

    class Slow(DyingMongo):
        def _burn(self, name: str) -> None:
            if self._fuse[0] > 0:
                self._fuse[0] -= 1
                raise failure

    scribe = Scribe(mongo, PRODUCT)
    for second in range(3):
        scribe.write("a", {"stock": second}, at(second))
    await scribe.save()
    await recorded_up_to(mongo, PRODUCT.collection, 2)
    slow = Slow(mongo, 2)
    archive = Archive(slow, PRODUCT.collection)  # type: ignore[arg-type]
    keep = Keep(text="1 hour", seconds=3600)
    retained = retaining(slow, archive, keep, every_s=0.01)  # type: ignore[arg-type]
    task = asyncio.create_task(retained.run(1))
    await eventually(lambda: retained.statistics()["versions"] == 2)
    await stop_task(task)
    assert retained.statistics()["failures"] == 2
    assert "retention failed" in caplog.text


@one_driver
async def test_verify_distinguishes_truncation_from_damage(mongo: Mongo, client: Client) -> None:
    """It has no findings after a pass, and reports a missing or a second first version."""
    recording = Recording(mongo)
    await recording.begin()
    things = client[mongo.name].things
    things.insert_many([{"_id": n, "a": 0} for n in range(3)])
    for n in range(5):
        things.update_many({}, {"$set": {"a": n + 1}})
    things.delete_one({"_id": 2})
    await recording.record()
    keep = Keep(text="3 versions", versions=3)
    assert await retaining(mongo, recording.archive, keep).go_through() == 3 + 3 + 4
    assert await verified(mongo, "things") == []
    versions = client[mongo.name]["things.versions"]
    versions.delete_one({"doc": 0, "first": True})
    versions.update_one({"doc": 1, "v": 5}, {"$set": {"first": True}})
    found = await verified(mongo, "things")
    assert [(each.kind, each.document, each.version) for each in found] == [
        ("MISSING", 1, 5),
        ("MISSING", 0, 5),
    ]
