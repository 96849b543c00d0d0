"""Webhook sinks with a receiver that accepts, refuses, fails, hangs or is down: order per document,
nothing lost, and no document waits for another one's failure.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo import MongoClient
from standardwebhooks import Webhook, WebhookVerificationError

from revstream.model.compiler.loader import read_model
from revstream.streams.archive.horizon import Horizons
from revstream.streams.core.errors import LeaseLost
from revstream.streams.listeners.webhooks import document_queue
from revstream.streams.listeners.webhooks.message import redact_url
from revstream.streams.listeners.webhooks.parked_delivery import (
    COLLECTION,
    DropRequest,
    PendingDelivery,
    find_deliveries,
    request_drop,
    request_retry,
)
from revstream.streams.mongo.database import Mongo
from tests.support.eventually import eventually
from tests.support.exhaustive import exhaustive, representatives
from tests.support.receiver import Receiver, Reply, Request
from tests.support.sinks import BRISK, PAGES, SinkSetup, delivering, new_sink, write
from tests.support.streams import Recording

Client = MongoClient[dict[str, Any]]
pytestmark = pytest.mark.parametrize("mongo", ["motor"], indirect=True)


@pytest.fixture(autouse=True)
def brief_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the pauses between attempts."""
    monkeypatch.setattr(document_queue, "_PAUSES_S", (0.005, 0.02))


SECRETS = [
    "whsec_MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw",
    "whsec_MTExMTExMTExMTExMTExMTExMTExMTEx",
]
MANY = {f"d{n}": 1 for n in range(25)}


@pytest.fixture
async def recording(mongo: Mongo) -> Recording:
    made = Recording(mongo)
    await made.begin()
    return made


def by_subject(taken: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for subject, version in taken:
        found[subject].append(version)
    return dict(found)


async def waiting(recording: Recording) -> dict[str, PendingDelivery]:
    return {each.document: each for each in await find_deliveries(recording.mongo)}


def settled(made: SinkSetup, recording: Recording, client: Client) -> bool:
    """Return whether no delivery is pending, in the database either."""
    left = client[recording.mongo.name][COLLECTION].count_documents({})
    return made.sink.statistics()["waiting"] == left == 0


async def test_a_delivery_is_a_signed_cloud_event(recording: Recording, client: Client) -> None:
    """The libraries of both standards verify it, with each secret.

    Headers repeat what a receiver needs to refuse deposed processes and to drop repetitions.
    """
    from cloudevents.core.bindings.http import HTTPMessage, from_structured_event
    from cloudevents.core.formats.json import JSONFormat

    client[recording.mongo.name].things.insert_one({"_id": "a", "n": 1, "version": 1})
    client[recording.mongo.name].things.update_one(
        {"_id": "a"},
        {
            "$set": {"n": 2, "_change": {"id": 7, "by": "ada", "why": "more"}},
            "$inc": {"version": 1},
        },
    )
    await recording.record()
    async with Receiver().serving() as receiver:
        made = new_sink(recording, receiver.url, secrets=SECRETS)
        async with delivering(made, 3):
            await eventually(lambda: len(receiver.taken) == 2)
    first, second = receiver.requests
    for secret in SECRETS:
        Webhook(secret).verify(second.body, second.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRETS[0]).verify(second.body.replace(b"ada", b"eve"), second.headers)
    message = HTTPMessage(headers=second.headers, body=second.body)
    event = from_structured_event(message, JSONFormat())
    assert event.get_specversion() == "1.0"
    assert event.get_type() == "revstream.Thing.update"
    assert event.get_subject() == "a"
    assert event.get_source() == "/revstream/test/things"
    assert event.get_extension("fencingtoken") == 3
    record = (await recording.versions())[1]
    assert event.get_id() == event.get_extension("resumetoken") == f"{record['_id']}.test"
    assert event.get_extension("sequence") == record["_id"]
    assert event.get_time() == record["wall"]
    assert event.get_data() == {
        "operation": "UPDATE",
        "version": 2,
        "author": "ada",
        "comment": "more",
        "changedFields": ["n"],
        "gap": False,
        "document": {"id": "a", "n": 2},
    }
    assert second.headers["revstream-fencing-token"] == "3"
    assert second.headers["revstream-resume-token"] == second.headers["webhook-id"]
    assert second.headers["content-type"].startswith("application/cloudevents+json")
    assert first.event["sequence"] < second.event["sequence"]


async def test_documents_are_delivered_concurrently_and_each_in_order(
    recording: Recording, client: Client
) -> None:
    """The receiver may take any time; connections stay open."""
    dice = random.Random(1)

    async def slowly(request: Request) -> Reply:
        await asyncio.sleep(dice.uniform(0, 0.02))
        return Reply()

    made = await write(recording, client, **{f"d{n}": 4 + n % 3 for n in range(20)})
    async with Receiver(slowly).serving() as receiver:
        sink = new_sink(recording, receiver.url)
        async with delivering(sink):
            await eventually(lambda: len(receiver.taken) == len(made), within_s=30)
    assert by_subject(receiver.taken) == by_subject(made)
    assert receiver.overlapping == []
    assert 1 < receiver.at_once <= BRISK.documents
    assert receiver.connections <= BRISK.documents


async def test_only_the_requested_operations_are_delivered(
    recording: Recording, client: Client
) -> None:
    """`operations` applies to deferred deliveries, too."""
    refuse = True

    def behave(request: Request) -> Reply:
        return Reply(status=400 if refuse and request.subject == "a" else 200)

    await write(recording, client, a=3, b=1)
    client[recording.mongo.name].things.delete_one({"_id": "a"})
    await write(recording, client, c=2, a=2)
    async with Receiver(behave).serving() as receiver:
        made = new_sink(recording, receiver.url, operations=["INSERT", "DELETE"])
        async with delivering(made):
            await eventually(lambda: {"b", "c"} == {name for name, _ in receiver.taken})
            refuse = False
            await request_retry(recording.mongo, {}, datetime.now(UTC))
            await eventually(lambda: settled(made, recording, client) and len(receiver.taken) == 5)
    assert by_subject(receiver.taken) == {"b": [1], "c": [1], "a": [1, 4, 5]}
    deletion = next(each for each in receiver.requests if each.version == 4)
    assert deletion.event["type"] == "revstream.Thing.delete"
    assert deletion.event["data"]["document"] is None


async def test_a_poison_event_is_parked_and_blocks_its_own_document_only(
    recording: Recording, client: Client
) -> None:
    """Later versions of the document wait until an operator retries; then all arrive in order,
    once.
    """
    poisonous = True

    def behave(request: Request) -> Reply:
        bad = poisonous and (request.subject, request.version) == ("b", 2)
        return Reply(status=422, body=b"no such unit") if bad else Reply()

    made = await write(recording, client, a=3, b=3, c=3)
    async with Receiver(behave).serving() as receiver:
        sink = new_sink(recording, receiver.url)
        async with delivering(sink):
            expected = {"a": [1, 2, 3], "b": [1], "c": [1, 2, 3]}
            await eventually(lambda: by_subject(receiver.taken) == expected)
            parked, others = None, []
            while parked is None:
                # An attempt counts only if another delivery succeeded since.
                others += await write(recording, client, d=1, b=1)
                parked = (await waiting(recording))["b"].parked
            held = (await waiting(recording))["b"]
            assert (held.number, held.reason) == (2, "HTTP 422: no such unit")
            assert held.attempts == BRISK.redelivery.refusals
            await eventually(lambda: sink.sink.statistics()["parked"] == 1)
            asked = len([each for each in receiver.requests if each.subject == "b"])
            others += await write(recording, client, d=5, b=1)
            await eventually(lambda: by_subject(receiver.taken)["d"] == by_subject(others)["d"])
            assert len([each for each in receiver.requests if each.subject == "b"]) == asked
            poisonous = False
            assert await request_retry(recording.mongo, {"doc": "b"}, datetime.now(UTC)) == 1
            await eventually(lambda: settled(sink, recording, client))
            later = await write(recording, client, b=1)
            await eventually(lambda: receiver.taken[-1] == later[-1])
    assert by_subject(receiver.taken) == by_subject([*made, *others, *later])
    assert receiver.overlapping == []


async def test_a_dropped_delivery_is_skipped_and_later_ones_continue(
    recording: Recording, client: Client
) -> None:
    """Operator, time and reason are stored; a drop of a delivery that succeeded meanwhile does
    nothing.
    """

    def behave(request: Request) -> Reply:
        return Reply(status=400 if (request.subject, request.version) == ("b", 2) else 200)

    await write(recording, client, a=3, b=4)
    async with Receiver(behave).serving() as receiver:
        made = new_sink(recording, receiver.url)
        async with delivering(made):
            await eventually(lambda: by_subject(receiver.taken) == {"a": [1, 2, 3], "b": [1]})
            await eventually(lambda: made.sink.statistics()["waiting"] == 1)
            held = (await waiting(recording))["b"]
            old = DropRequest(token="0", by="eve", why="wrong", at=datetime.now(UTC))
            assert not await request_drop(recording.mongo, held, old)
            drop = DropRequest(token=held.token, by="ada", why="ticket 1", at=datetime.now(UTC))
            assert await request_drop(recording.mongo, held, drop)
            await eventually(lambda: settled(made, recording, client))
    assert by_subject(receiver.taken) == {"a": [1, 2, 3], "b": [1, 3, 4]}
    [kept] = await recording.mongo.find("revstream.drops", {})
    assert (kept["doc"], kept["v"], kept["by"], kept["why"]) == ("b", 2, "ada", "ticket 1")


async def test_without_a_receiver_nothing_is_parked(recording: Recording, client: Client) -> None:
    """The checkpoint stays, with the error; when the receiver is back all arrive in order, once."""
    receiver = Receiver()
    async with receiver.serving():
        pass  # on the same port
    made = await write(recording, client, **MANY)
    sink = new_sink(recording, receiver.url)
    async with delivering(sink):
        await eventually(lambda: sink.consumer.failures > 5)
        made += await write(recording, client, d0=2, d1=2)
        stored = await recording.checkpoints.load(sink.sink.name)
        assert stored is not None
        assert stored.trouble == (
            f"{redact_url(receiver.url)} accepts nothing: no connection: Connection refused"
        )
        assert stored.token < (await recording.versions())[0]["_id"]
        assert await waiting(recording) == {}
        async with receiver.serving():
            await eventually(lambda: len(receiver.taken) == len(made))
            await eventually(lambda: sink.consumer.trouble is None)
    assert by_subject(receiver.taken) == by_subject(made)
    stored = await recording.checkpoints.load(sink.sink.name)
    assert stored is not None
    assert stored.trouble is None


@pytest.mark.parametrize(
    "refusal",
    [
        Reply(status=500),
        pytest.param(Reply(status=503), marks=exhaustive),
        Reply(status=429),
        pytest.param(Reply(status=401), marks=exhaustive),
        Reply(status=410),
        Reply(status=302, headers={"location": "http://127.0.0.1:1/"}),
        Reply(reset=True),
    ],
    ids=lambda act: "reset" if act.reset else str(act.status),
)
async def test_a_receiver_that_refuses_everything_gets_everything_later(
    recording: Recording, client: Client, refusal: Reply
) -> None:
    """No delivery is parked for any status, only one page is repeated, and requests are few."""
    ill = True
    made = await write(recording, client, **MANY)
    async with Receiver(lambda request: refusal if ill else Reply()).serving() as receiver:
        sink = new_sink(recording, receiver.url)
        async with delivering(sink):
            await eventually(lambda: sink.consumer.failures > 5, within_s=30)
            assert await waiting(recording) == {}
            tries = max(Counter(each.subject for each in receiver.requests).values())
            assert tries <= 3 * (sink.consumer.failures + 1)
            ill = False
            await eventually(lambda: len(receiver.taken) == len(made), within_s=30)
        assert by_subject(receiver.taken) == by_subject(made)
        assert await waiting(recording) == {}


async def test_errors_and_logs_contain_neither_url_nor_response(
    recording: Recording, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The path of a webhook is a secret, and a response may repeat it."""
    parked = False

    def behave(request: Request) -> Reply:
        bad = request.subject == "a" or not parked
        return Reply(status=410 if parked else 500, body=b"no such /changes") if bad else Reply()

    await write(recording, client, a=1)
    async with Receiver(behave).serving() as receiver:
        made = new_sink(recording, receiver.url)
        async with delivering(made):
            await eventually(lambda: made.sink.statistics()["waiting"] or made.consumer.trouble)
            await write(recording, client, **MANY)
            await eventually(lambda: made.consumer.trouble)
            trouble = made.consumer.trouble
            parked = True
            await eventually(lambda: made.consumer.trouble is None)
            while not made.sink.statistics()["parked"]:
                await write(recording, client, b=1)
    assert trouble == f"http://127.0.0.1:{receiver.port}/… accepts nothing: HTTP 500"
    assert "delivery parked" in caplog.text
    facts = [str(each.__dict__) for each in caplog.records if each.name.startswith("streams.")]
    assert not [each for each in facts if "changes" in each]


async def test_accepted_deliveries_of_a_page_are_not_repeated(
    recording: Recording, client: Client
) -> None:
    """The receiver fails in the middle of the page."""
    well = 10

    def behave(request: Request) -> Reply:
        return Reply(status=200 if len(receiver.taken) < well else 500)

    made = await write(recording, client, **MANY)
    async with Receiver(behave).serving() as receiver:
        sink = new_sink(recording, receiver.url)
        async with delivering(sink):
            await eventually(lambda: sink.consumer.failures > 2, within_s=30)
            assert len(receiver.taken) == well
            well = len(made) + 1
            await eventually(lambda: len(receiver.taken) == len(made), within_s=30)
            await eventually(lambda: settled(sink, recording, client))
        assert Counter(receiver.taken) == Counter(made)


async def test_retry_after_is_respected(recording: Recording, client: Client) -> None:
    """No request is sent before that time."""
    loop, answered = asyncio.get_running_loop(), 0.0

    def behave(request: Request) -> Reply:
        nonlocal answered
        if not answered or loop.time() < answered + 0.5:
            answered = answered or loop.time()
            return Reply(status=503, headers={"retry-after": "1"})
        return Reply()

    made = await write(recording, client, **MANY)
    async with Receiver(behave).serving() as receiver:
        async with delivering(new_sink(recording, receiver.url)):
            await eventually(lambda: len(receiver.taken) == len(made))
        refused = [each for each in receiver.requests if each.status == 503]
        assert len(refused) <= BRISK.documents
        assert loop.time() - answered >= 1


async def test_a_single_failing_document_does_not_stop_the_sink(
    recording: Recording, client: Client
) -> None:
    """Without other deliveries the cause is unknown: it is retried and never parked.

    New deliveries are sent.
    """

    def behave(request: Request) -> Reply:
        return Reply(status=500 if request.subject == "ill" else 200)

    await write(recording, client, ill=2)
    async with Receiver(behave).serving() as receiver:
        made = new_sink(recording, receiver.url)
        async with delivering(made):
            await eventually(lambda: len(receiver.requests) > 4 * BRISK.redelivery.attempts)
            held = (await waiting(recording))["ill"]
            assert (held.attempts, held.parked) == (1, None)
            await write(recording, client, well=2)
            await eventually(lambda: receiver.taken == [("well", 1), ("well", 2)])


async def test_consecutive_failures_are_deferred_gradually(
    recording: Recording, client: Client
) -> None:
    """Ten documents fail in a row: they are not deferred at once, but one by one over time.

    Later documents then get their turn.
    """

    def behave(request: Request) -> Reply:
        return Reply(status=500 if request.subject.startswith("ill") else 200)

    ill = BRISK.doubts + 2
    await write(recording, client, **{f"ill{n}": 1 for n in range(ill)})
    # The first page has no other documents.
    pages = replace(PAGES, page=ill)
    async with Receiver(behave).serving() as receiver:
        stubborn = new_sink(recording, receiver.url, pages=pages)
        async with delivering(stubborn, 1):
            await eventually(lambda: stubborn.consumer.failures > 10, within_s=30)
            assert await waiting(recording) == {}
        await write(recording, client, well=1)
        options = replace(BRISK, patience_s=0.1)
        made = new_sink(recording, receiver.url, options=options, pages=pages)
        async with delivering(made, 2):
            await eventually(lambda: ("well", 1) in receiver.taken, within_s=30)


async def test_a_hanging_delivery_delays_no_other_document(
    recording: Recording, client: Client
) -> None:
    """It is deferred while its request is open, and not sent twice at once.

    Later versions of its document follow it.
    """
    release = asyncio.Event()

    async def behave(request: Request) -> Reply:
        if request.subject == "slow":
            await release.wait()
        return Reply()

    made = await write(recording, client, slow=2, a=1)
    async with Receiver(behave).serving() as receiver:
        sink = new_sink(recording, receiver.url)
        async with delivering(sink):
            await eventually(lambda: receiver.taken == [("a", 1)])
            # Accepted after the slow request began: so the receiver is not slow.
            made += await write(recording, client, b=40, slow=1)
            await eventually(lambda: ("b", 40) in receiver.taken, within_s=30)
            assert [each.subject for each in receiver.requests].count("slow") == 1
            release.set()
            await eventually(lambda: len(receiver.taken) == len(made))
            await eventually(lambda: settled(sink, recording, client))
    assert by_subject(receiver.taken) == by_subject(made)


async def test_a_delivery_without_an_answer_fails_by_timeout(
    recording: Recording, client: Client
) -> None:
    """It is retried, and the others continue."""

    def behave(request: Request) -> Reply:
        return Reply(hang=request.subject == "deaf" and len(receiver.requests) < 4)

    made = await write(recording, client, deaf=1, a=2)
    async with Receiver(behave).serving() as receiver:
        sink = new_sink(recording, receiver.url, timeout_s=0.3)
        async with delivering(sink):
            await eventually(lambda: len(receiver.taken) == len(made), within_s=30)
            assert by_subject(receiver.taken) == by_subject(made)
            await eventually(lambda: settled(sink, recording, client))


async def test_a_broken_connection_is_retried_at_once(recording: Recording, client: Client) -> None:
    """Only that event may arrive twice."""
    broken: set[str] = set()

    def behave(request: Request) -> Reply:
        first = request.version == 2 and request.subject not in broken
        broken.add(request.subject if request.version == 2 else "")
        return Reply(reset=first)

    made = await write(recording, client, a=3, b=3)
    async with Receiver(behave).serving() as receiver:
        async with delivering(new_sink(recording, receiver.url)):
            await eventually(lambda: len(receiver.taken) == len(made))
        assert by_subject(receiver.taken) == by_subject(made)
        came = Counter((each.subject, each.version) for each in receiver.requests)
        assert {each for each, count in came.items() if count > 1} == {("a", 2), ("b", 2)}
        assert await waiting(recording) == {}


async def test_redirects_are_not_followed(recording: Recording, client: Client) -> None:
    """An event that is signed for one receiver is sent to no other."""
    await write(recording, client, a=1)
    async with Receiver().serving() as other:
        away = Reply(status=307, headers={"location": other.url})
        async with Receiver(lambda request: away).serving() as receiver:
            async with delivering(new_sink(recording, receiver.url)):
                await eventually(lambda: len(receiver.requests) > 2)
            held = (await waiting(recording))["a"]
            assert held.reason == "HTTP 307: a redirect, which is not followed; correct the URL"
        assert other.requests == []


async def test_an_endless_response_body_is_not_read(recording: Recording, client: Client) -> None:
    """The status is enough."""
    made = await write(recording, client, a=3)
    async with Receiver(lambda request: Reply(endless=True)).serving() as receiver:
        async with delivering(new_sink(recording, receiver.url)):
            await eventually(lambda: receiver.taken == made)
        assert receiver.connections == 3


async def test_a_deposed_sink_stores_no_pending_deliveries(
    recording: Recording, client: Client
) -> None:
    """Its older fencing token is refused, also by receivers that check it; its deliveries
    contain it.
    """
    go_on = asyncio.Event()

    async def behave(request: Request) -> Reply:
        if request.fence == 1:
            await go_on.wait()
            return Reply(status=400)
        return Reply()

    made = await write(recording, client, a=2)
    async with Receiver(behave).serving() as receiver:
        zombie = new_sink(recording, receiver.url)
        task = asyncio.create_task(zombie.consumer.run(1))
        await eventually(lambda: len(receiver.requests) == 1)
        successor = new_sink(recording, receiver.url)
        async with delivering(successor, 2):
            await eventually(lambda: receiver.taken == made)
            go_on.set()
            with pytest.raises(LeaseLost, match="fencing token 1, "):
                await task
            assert await waiting(recording) == {}
        assert [each.fence for each in receiver.requests] == [1, 2, 2]


async def test_a_successor_continues_pending_deliveries(
    recording: Recording, client: Client
) -> None:
    """The predecessor may have stored them before the checkpoint of the page."""
    ill = True

    def behave(request: Request) -> Reply:
        return Reply(status=500 if ill and request.subject == "b" else 200)

    made = await write(recording, client, a=2, b=3)
    async with Receiver(behave).serving() as receiver:
        first = new_sink(recording, receiver.url)
        async with delivering(first, 1):
            await eventually(lambda: first.sink.statistics()["waiting"] == 1)
        name = first.sink.name
        stored = await recording.checkpoints.load(name)
        assert stored is not None
        # As after a kill in between.
        before = replace(stored, token=(await recording.versions())[0]["_id"][:16])
        await recording.checkpoints.save(name, before, fencing_token=1)
        ill = False
        second = new_sink(recording, receiver.url)
        async with delivering(second, 2):
            await eventually(lambda: settled(second, recording, client))
            made += await write(recording, client, b=1)
            await eventually(lambda: receiver.taken[-1] == ("b", 4))
    found = by_subject(receiver.taken)
    assert found["b"] == [1, 2, 3, 4]
    # Its page was delivered again, which is allowed, in order.
    assert found["a"] in ([1, 2], [1, 2, 1, 2])


async def test_lost_history_is_delivered_as_an_event(recording: Recording, client: Client) -> None:
    """It is lost for the collection by retention, or for a document by truncation during a wait.

    The same loss has the same id.
    """
    ill = True

    def behave(request: Request) -> Reply:
        return Reply(status=500 if ill and request.subject == "b" else 200)

    await write(recording, client, a=1, b=2)
    async with Receiver(behave).serving() as receiver:
        made = new_sink(recording, receiver.url)
        async with delivering(made, 1):
            await eventually(lambda: made.sink.statistics()["waiting"] == 1)
        await write(recording, client, c=1)
        records = await recording.versions()
        await recording.mongo.command(
            {
                "delete": "things.versions",
                "deletes": [{"q": {"doc": "b", "v": 1}, "limit": 1}],
            }
        )
        await Horizons(recording.mongo).advance("things", records[-1]["_id"])
        ill = False
        again = new_sink(recording, receiver.url)
        async with delivering(again, 2):
            await eventually(lambda: settled(again, recording, client))
            await eventually(lambda: ("c", 1) in receiver.taken)
    lost = [each for each in receiver.requests if each.event["type"].endswith(".history-lost")]
    assert sorted(each.subject for each in lost) == ["None", "b"]
    reasons = {each.subject: each.event["data"]["reason"] for each in lost}
    assert "were deleted before sink:things:test handled them" in reasons["None"]
    assert reasons["b"] == "version 1 was deleted before its delivery"
    assert by_subject(receiver.taken)["b"] == [0, 2]


async def test_an_unreadable_pending_version_is_reported(
    recording: Recording, client: Client
) -> None:
    """Neither the document's other versions nor the sink wait for it."""
    refuse = True

    def behave(request: Request) -> Reply:
        return Reply(status=400 if refuse and request.subject == "a" else 200)

    await write(recording, client, a=3, b=1)
    async with Receiver(behave).serving() as receiver:
        made = new_sink(recording, receiver.url)
        async with delivering(made):
            await eventually(lambda: made.sink.statistics()["waiting"] == 1)
        client[recording.mongo.name]["things.versions"].update_one(
            {"doc": "a", "v": 2},
            {"$set": {"packed": True, "kept": 99}, "$unset": {"full": "", "patch": ""}},
        )
        refuse = False
        made = new_sink(recording, receiver.url)
        async with delivering(made, 2):
            await eventually(lambda: settled(made, recording, client))
    said = [each for each in receiver.requests if each.status == 200 and each.subject == "a"]
    assert [each.version for each in said] == [1, 0, 3]
    assert said[1].event["data"]["reason"].startswith("version 2 of things/'a': ")


NUMBERED = read_model('type Thing @collection(name: "things") { id: Int! n: Int }')
"""A model for which the ids of most documents of these tests are invalid."""


async def test_a_version_without_a_possible_event_is_parked(
    recording: Recording, client: Client
) -> None:
    """Another program wrote an id that the model does not allow; the receiver is not at fault."""
    await write(recording, client, a=1)
    async with Receiver().serving() as receiver:
        made = new_sink(recording, receiver.url, model=NUMBERED)
        async with delivering(made):
            await eventually(lambda: made.sink.statistics()["parked"] == 1)
        assert receiver.requests == []
        held = (await waiting(recording))["a"]
        assert "id: string 'a', expected Int" in str(held.reason)


async def test_documents_without_possible_events_delay_no_other(
    recording: Recording, client: Client
) -> None:
    """A whole page of them does not count against the receiver."""
    ill = 3 * BRISK.doubts
    await write(recording, client, **{f"ill{n}": 1 for n in range(ill)})
    client[recording.mongo.name].things.insert_one({"_id": 7, "n": 1, "version": 1})
    await write(recording, client, last=1)
    async with Receiver().serving() as receiver:
        pages = replace(PAGES, page=ill)
        made = new_sink(recording, receiver.url, model=NUMBERED, pages=pages)
        async with delivering(made) as delivery:
            await eventually(lambda: receiver.taken == [("7", 1)])
            await eventually(lambda: made.sink.statistics()["parked"] == ill + 1)
            assert not delivery.done()


async def test_the_next_pending_version_is_found_among_many(
    recording: Recording, client: Client
) -> None:
    """More versions wait than one read returns."""
    ill = True

    def behave(request: Request) -> Reply:
        return Reply(status=400 if ill and request.subject == "a" else 200)

    few = replace(BRISK, redelivery=replace(BRISK.redelivery, versions=2))
    made = await write(recording, client, a=7, b=1)
    async with Receiver(behave).serving() as receiver:
        sink = new_sink(recording, receiver.url, options=few)
        async with delivering(sink):
            await eventually(lambda: sink.sink.statistics()["waiting"] == 1)
            made += await write(recording, client, a=6, b=1)
            ill = False
            await request_retry(recording.mongo, {}, datetime.now(UTC))
            await eventually(lambda: settled(sink, recording, client))
    assert by_subject(receiver.taken) == by_subject(made)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", representatives(range(4), 0))
async def test_random_receivers_and_interruptions_keep_the_order_per_document(
    recording: Recording, client: Client, seed: int
) -> None:
    """The receiver behaves at random, and lease holders end at any step.

    Each version that is new to the receiver is the next one of its document.
    """
    dice = random.Random(seed)
    moods = [
        (Reply(), 12),
        (Reply(status=500), 2),
        (Reply(status=400), 2),
        (Reply(reset=True), 1),
        (Reply(hang=True), 1),
        (Reply(status=503, headers={"retry-after": "0"}), 1),
    ]
    ill: dict[str, Reply] = {}
    known: Counter[str] = Counter()
    skipped: list[Request] = []
    well = False

    def behave(request: Request) -> Reply:
        act = ill.get(request.subject, Reply()) if not well else Reply()
        # A delivery without an answer may have been accepted all the same.
        if act == Reply() or (act.reset and dice.random() < 0.5):
            skipped.extend([request] if request.version > known[request.subject] + 1 else [])
            known[request.subject] = max(known[request.subject], request.version)
        return act

    written: Counter[str] = Counter()
    few = replace(BRISK, redelivery=replace(BRISK.redelivery, versions=3))
    pages = replace(PAGES, page=7)
    async with Receiver(behave).serving() as receiver:
        for fence in range(1, 9):
            names = dice.sample([f"d{n}" for n in range(12)], 5)
            acts, weights = zip(*moods, strict=True)
            ill = {f"d{n}": dice.choices(acts, weights)[0] for n in range(12)}
            if dice.random() < 0.25:
                # Every delivery fails.
                ill = {f"d{n}": Reply(status=500) for n in range(12)}
            counts = {name: dice.randrange(1, 5) for name in names}
            await write(recording, client, **counts)
            written.update(counts)
            made = new_sink(recording, receiver.url, options=few, pages=pages, timeout_s=0.2)
            async with delivering(made, fence):
                await asyncio.sleep(dice.choice([0.02, 0.05, 0.1, 0.3, 0.6]))
        well = True
        made = new_sink(recording, receiver.url, options=few, pages=pages)
        async with delivering(made, 9):

            def done() -> bool:
                return known == written and settled(made, recording, client)

            while not done():
                await request_retry(recording.mongo, {}, datetime.now(UTC))
                await asyncio.sleep(0.05)
    assert skipped == []
