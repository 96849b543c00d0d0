"""Resolution of time points, and the wait of a read for the archive."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Timestamp
from bson.datetime_ms import DatetimeMS

from revstream.gql.engine.limits.concurrency import ConcurrencyLimiter
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.history.time_point import TimePoint, TimePointResolver
from revstream.streams.coordination.checkpoint import Baseline, Checkpoint, Checkpoints
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind, ResumeTokenInvalid
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.hub import Hub
from revstream.streams.mongo.database import Mongo
from tests.integration.conftest import Commands
from tests.support.archives import Scribe, at
from tests.support.eventually import eventually
from tests.support.shop import PRODUCT, SHOP, SUPPLIER

FAR = resume_tokens.time_prefix(Timestamp(2**32 - 1, 0))


class Shop:
    """The archives of the shop; a test sets the progress of each."""

    def __init__(self, mongo: Mongo, *, limit_s: float = 0.2) -> None:
        self.products, self.suppliers = Scribe(mongo, PRODUCT), Scribe(mongo, SUPPLIER)
        names = [entity.collection for entity in SHOP.entities]
        self.checkpoints = Checkpoints(mongo)
        hub = Hub(names, position=resume_tokens.token_from_time(Timestamp(1, 1)))
        self.progress = ArchiveProgress(self.checkpoints, hub, limit_s=limit_s)
        self.moments = TimePointResolver(
            mongo,
            {each.archive.collection: each.archive for each in (self.products, self.suppliers)},
            self.progress,
            "here",
            ahead_most_s=limit_s,
        )

    async def save(self) -> None:
        await self.products.save()
        await self.suppliers.save()

    def reached(self, token: str = FAR) -> None:
        for entity in SHOP.entities:
            self.progress.advance(Partition(entity.collection), token)
            self.progress.note_baseline(Partition(entity.collection), Baseline(done=True))

    async def resolve(self, time: datetime | DatetimeMS) -> Timestamp:
        return (await self.moments.resolve(PRODUCT, time=time)).at


@pytest.fixture
def shop(mongo: Mongo) -> Shop:
    return Shop(mongo)


def wall(second: int, millisecond: int = 0) -> datetime:
    """Return a wall-clock time some seconds after the start."""
    moment = datetime.fromtimestamp(at(second).time, UTC)
    return moment + timedelta(milliseconds=millisecond)


async def test_a_token_is_its_cluster_time(shop: Shop) -> None:
    """Tokens of events, of reads and of anything else are exact."""
    shop.reached()
    for token in (
        resume_tokens.token_from_time(at(5, 3)),
        f"{resume_tokens.time_prefix(at(5, 3))}2B0401",
    ):
        moment = await shop.moments.resolve(PRODUCT, token=resume_tokens.encode(token, "here"))
        assert moment == TimePoint(at(5, 3))


@pytest.mark.parametrize(
    "text", ["", "tomorrow", resume_tokens.encode(resume_tokens.token_from_time(at(5)), "there")]
)
async def test_a_foreign_token_is_refused(shop: Shop, text: str) -> None:
    """It is never taken for the current time."""
    with pytest.raises(ResumeTokenInvalid):
        await shop.moments.resolve(PRODUCT, token=text)


@pytest.mark.parametrize("given", [{}, {"time": wall(1), "token": "x"}])
async def test_a_time_point_has_either_time_or_token(shop: Shop, given: dict[str, Any]) -> None:
    """Both and none are refused."""
    with pytest.raises(BadUserInput, match="expected exactly one"):
        await shop.moments.resolve(PRODUCT, **given)


async def test_a_time_is_resolved_to_the_last_cluster_time_until_then(shop: Shop) -> None:
    """All writes of its millisecond count; before the first write there is nothing."""
    for time, clock in (
        (at(1, 1), wall(1, 100)),
        (at(1, 2), wall(1, 200)),
        (at(1, 3), wall(1, 200)),
        (at(3, 1), wall(3)),
    ):
        shop.products.write("a", {"stock": time.inc}, time, wall=clock)
    await shop.save()
    shop.reached()
    assert await shop.resolve(wall(1, 99)) == Timestamp(0, 0)
    assert await shop.resolve(wall(1, 100)) == at(1, 1)
    assert await shop.resolve(wall(1, 199)) == at(1, 1)
    assert await shop.resolve(wall(1, 200)) == at(1, 3)
    assert await shop.resolve(wall(2, 999)) == at(1, 3)
    assert await shop.resolve(wall(3)) == at(3, 1)
    assert await shop.resolve(wall(3000)) == at(3, 1)


async def test_a_time_is_one_cluster_time_for_all_collections(shop: Shop) -> None:
    """References are read at the root's cluster time: any collection may have the last write."""
    shop.products.write("a", {"stock": 1}, at(1, 1), wall=wall(1, 100))
    shop.suppliers.write("s", {"name": "x"}, at(1, 2), wall=wall(1, 150))
    shop.products.write("a", {"stock": 2}, at(1, 3), wall=wall(1, 200))
    await shop.save()
    shop.reached()
    assert await shop.resolve(wall(1, 160)) == at(1, 2)


@pytest.mark.parametrize(
    "time",
    [
        datetime(1969, 7, 20, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        DatetimeMS(-(2**63)),
    ],
)
async def test_a_time_before_all_history_is_empty(shop: Shop, time: datetime | DatetimeMS) -> None:
    """It is not an error: no document is known to have existed then."""
    shop.products.write("a", {"stock": 1}, at(1))
    await shop.save()
    shop.reached()
    assert await shop.resolve(time) == Timestamp(0, 0)


async def test_a_read_waits_for_the_archive(shop: Shop) -> None:
    """It waits until the recorder has reached the time point."""
    shop.reached(resume_tokens.token_from_time(at(4)))
    token = resume_tokens.encode(resume_tokens.token_from_time(at(5)), "here")
    waiting = asyncio.create_task(shop.moments.resolve(PRODUCT, token=token))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    shop.reached(resume_tokens.token_from_time(at(5)))
    assert await waiting == TimePoint(at(5))


async def test_a_read_waits_for_a_limited_time(shop: Shop) -> None:
    """The error has the archive's progress and its lag."""
    shop.reached(resume_tokens.token_from_time(at(4)))
    with pytest.raises(ArchiveBehind, match="archive of products: recorded up to") as caught:
        await shop.moments.resolve(
            PRODUCT, token=resume_tokens.encode(resume_tokens.token_from_time(at(90)), "here")
        )
    assert caught.value.extensions["lagSeconds"] == 86
    with pytest.raises(ArchiveBehind):
        await shop.resolve(wall(90))


async def test_a_time_waits_for_every_archive(shop: Shop) -> None:
    """One cluster time holds for all of them, so each must know its last write until then."""
    shop.progress.advance(Partition(PRODUCT.collection), FAR)
    shop.progress.advance(Partition(SUPPLIER.collection), resume_tokens.token_from_time(at(4)))
    with pytest.raises(ArchiveBehind, match="archive of suppliers: recorded up to"):
        await shop.resolve(wall(90))


async def test_an_idle_archive_need_not_pass_the_time(mongo: Mongo, shop: Shop) -> None:
    """Without writes it is enough that the recorder has reached the present."""
    shop.products.write("a", {"stock": 1}, at(1))
    await shop.save()
    clock, now = await mongo.clock()
    shop.reached(resume_tokens.token_from_time(now))
    await shop.resolve(clock - timedelta(milliseconds=20))


async def test_a_recorder_elsewhere_is_known_by_its_checkpoint(mongo: Mongo, shop: Shop) -> None:
    """A process without recorders reads the checkpoint."""
    await shop.save()
    for entity in SHOP.entities:
        place = resume_tokens.token_from_time(at(9))
        await shop.checkpoints.save(
            Partition(entity.collection).name,
            Checkpoint(place, place, Baseline(done=True)),
            fencing_token=1,
        )
    assert await shop.resolve(wall(5)) == Timestamp(0, 0)
    with pytest.raises(ArchiveBehind):
        await shop.resolve(wall(500))


@pytest.mark.parametrize("ahead_s", [60, 10**9, 10**12])
async def test_a_time_far_in_the_future_is_refused_at_once(
    mongo: Mongo, shop: Shop, ahead_s: int
) -> None:
    """The message has the database's clock, as the caller's may differ."""
    clock, now = await mongo.clock()
    shop.reached(resume_tokens.token_from_time(now))
    time = DatetimeMS(int(clock.timestamp() + ahead_s) * 1000)
    with pytest.raises(ArchiveBehind, match="s after the database's") as caught:
        await shop.resolve(time)
    assert ahead_s - 5 < caught.value.extensions["lagSeconds"] <= ahead_s + 1


@pytest.mark.parametrize("ahead_s", [1, 600, 10**8])
async def test_a_token_in_the_future_is_refused_at_once(mongo: Mongo, ahead_s: int) -> None:
    """The archive would never reach it, so the read does not wait for its time limit."""
    shop = Shop(mongo, limit_s=600)
    now = await mongo.operation_time()
    shop.reached(resume_tokens.token_from_time(now))
    future = resume_tokens.token_from_time(Timestamp(now.time + ahead_s + 30, 1))
    async with asyncio.timeout(60):
        for _ in range(2):
            with pytest.raises(ResumeTokenInvalid, match="maximum is the database's"):
                await shop.moments.resolve(PRODUCT, token=resume_tokens.encode(future, "here"))


async def test_a_wait_for_the_archive_takes_no_execution_slot(mongo: Mongo) -> None:
    """Its slot is free for other operations, for a token and for a time."""
    shop, limiter = Shop(mongo, limit_s=600), ConcurrencyLimiter(executing=1)
    clock, now = await mongo.clock()
    moments: list[dict[str, Any]] = [
        {"token": resume_tokens.encode(resume_tokens.token_from_time(now), "here")},
        {"time": clock + timedelta(milliseconds=10)},
        {"time": clock + timedelta(seconds=2)},
    ]

    async def ask(moment: dict[str, Any]) -> None:
        async with limiter.slot(""):
            await shop.moments.resolve(PRODUCT, **moment)

    waiting = [asyncio.create_task(ask(each)) for each in moments]
    await eventually(lambda: limiter.suspended == len(moments))
    assert (limiter.executing, limiter.waiting) == (0, 0)
    shop.reached()
    await asyncio.gather(*waiting)
    assert (limiter.executing, limiter.suspended) == (0, 0)


async def test_a_time_in_the_near_future_is_awaited(mongo: Mongo) -> None:
    """Its writes are known only when the clock has passed it."""
    shop = Shop(mongo, limit_s=5.0)
    clock, _ = await mongo.clock()
    shop.reached(resume_tokens.token_from_time(Timestamp(int(clock.timestamp()) + 2, 0)))
    soon = clock + timedelta(seconds=0.3)
    await shop.resolve(soon)
    assert (await mongo.clock())[0] > soon


async def test_now_is_after_all_writes(mongo: Mongo, shop: Shop) -> None:
    """They need not be archived yet."""
    before = await mongo.operation_time()
    await mongo.insert_in_order("products", [{"_id": 1}])
    assert (await shop.moments.now()).at > before


async def test_a_time_long_ago_takes_one_command(counted: Mongo, commands: Commands) -> None:
    """One command is enough for all collections, if the recorders run in this process."""
    shop = Shop(counted)
    shop.products.write("a", {"stock": 1}, at(1))
    await shop.save()
    shop.reached()
    with commands.counting() as started:
        await shop.resolve(wall(90))
    assert started == ["aggregate"]
