"""Metrics of `/metrics`: names and true values."""

from __future__ import annotations

from typing import Any

from pymongo.collection import Collection

from revstream.gql.observability.metric_definitions import METRICS
from tests.support import http
from tests.support.eventually import eventually, wait_until
from tests.support.gateway import RunningGateway
from tests.support.metrics import families, scraped
from tests.support.sockets import open_socket

Things = Collection[dict[str, Any]]

CHANGES = "subscription { thingChanges { kind } }"


def test_the_served_metrics_are_the_documented_ones(
    gateway: RunningGateway, things: Things
) -> None:
    """Each has its type, help and labels, and there is no other metric of revstream."""
    gateway.post("{ nothing }")
    found = {
        name: family
        for name, family in families(gateway.address).items()
        if name.startswith("revstream_")
    }
    assert list(found) == [each.name for each in METRICS]
    for each in METRICS:
        family = found[each.name]
        assert (family.type, family.documentation) == (each.kind, each.help)
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(each.labels), sample


def test_counters_end_in_total_and_names_have_their_units() -> None:
    """Names follow the recommendations of Prometheus and name the counted thing."""
    for each in METRICS:
        assert each.name.endswith("_total") == (each.kind == "counter"), each.name
        assert each.help.endswith("."), each.name
        for unit in ("_s", "_ms", "_mb", "_kb"):
            assert not each.name.endswith(unit), each.name


def test_recording_is_counted(gateway: RunningGateway, things: Things) -> None:
    """Events, versions, the ring, the lag and the recorder have metrics."""

    def metric(name: str) -> float:
        return scraped(gateway.address).get((name, "things"), 0)

    # The recorder has read the oplog up to here.
    wait_until(lambda: metric("revstream_recorder_first_reading_done") == 1, within_s=60)
    # Writes of other tests are recorded, and counted.
    gateway.recorded("things")
    before = scraped(gateway.address)

    def since(name: str) -> float:
        return metric(name) - before.get((name, "things"), 0)

    things.insert_many([{"name": "counted"} for _ in range(25)])
    wait_until(lambda: since("revstream_recorder_versions_total") == 25)
    assert since("revstream_stream_events_total") == 25
    assert since("revstream_recorder_batches_total") > 0
    assert since("revstream_ring_events") == 25
    assert since("revstream_ring_bytes") > 25 * 30
    assert since("revstream_recorder_duplicates_total") == 0
    wait_until(lambda: metric("revstream_recorder_lag_events") == 0)
    assert metric("revstream_recorder_lag_seconds") == 0
    assert metric("revstream_recorder_fencing_token") == 1
    assert metric("revstream_recorder_lease_changes_total") == 1
    assert metric("revstream_recorder_fences_refused_total") == 0


async def test_subscriptions_and_their_events_are_counted(
    gateway: RunningGateway, things: Things
) -> None:
    """Live events, replays and snapshots are counted separately."""
    before = scraped(gateway.address)

    def since(name: str, *labels: str) -> float:
        found = (name, *labels)
        return scraped(gateway.address).get(found, 0) - before.get(found, 0)

    token = gateway.query("{ resumeToken }")["resumeToken"]
    replay = f'subscription {{ thingChanges(after: "{token}") {{ kind }} }}'
    snapshot = "subscription { thingChanges(snapshot: true) { kind } }"
    delivered = "revstream_delivered_changes_total"
    async with open_socket(gateway.address) as socket:
        await socket.start("live", CHANGES)
        assert (await socket.receive())["payload"]["data"]["thingChanges"]["kind"] == "CHECKPOINT"
        assert since("revstream_subscriptions", "things") == 1
        assert since("revstream_subscribers", "things") == 1
        assert since("revstream_socket_operations") == 1
        things.insert_one({"name": "live"})
        await eventually(lambda: since(delivered, "things", "live") == 1)
        await socket.start("replay", replay)
        await eventually(lambda: since(delivered, "things", "replay") == 1)
        await socket.start("snapshot", snapshot)
        count = things.count_documents({})
        await eventually(lambda: since(delivered, "things", "snapshot") == count)
    await eventually(lambda: since("revstream_subscriptions", "things") == 0)
    await eventually(lambda: since("revstream_socket_operations") == 0)


def test_a_compiled_query_that_falls_back_is_counted(gateway: RunningGateway) -> None:
    """The compiled query leaves the refused argument to graphql-core, once."""
    text = "query($n: Int) { things(first: $n) { totalCount } }"
    for _ in range(3):
        gateway.post(text, n=1)
    key = "revstream_compiled_fallbacks_total", "query", "error"
    before = scraped(gateway.address).get(key, 0)
    gateway.post(text, n=-1)
    assert scraped(gateway.address)[key] - before == 1


def test_operations_are_counted_by_kind_and_code(gateway: RunningGateway) -> None:
    """Number, duration and error codes of operations are counted."""
    before = scraped(gateway.address)
    gateway.post("{ resumeToken }")
    gateway.post('{ things(first: 1, after: "nonsense") { totalCount } }')
    gateway.post('mutation { deleteThing(id: "no such") { ... on WriteError { message } } }')
    gateway.post("{ unknownField }")
    gateway.post("{ neither brackets nor sense")
    url = f"{gateway.address}/graphql"
    http.post(url, content=b"no JSON", headers={"content-type": "application/json"})
    http.post(url, content=b"a=b")
    http.post(url, json={"query": "{ resumeToken }", "operationName": "Missing"})
    after = scraped(gateway.address)

    def since(*found: str) -> float:
        return after.get(found, 0) - before.get(found, 0)

    assert since("revstream_operation_seconds_count", "query") == 3
    assert since("revstream_operation_seconds_count", "mutation") == 1
    assert since("revstream_operations_failed_total", "BAD_USER_INPUT", "query") == 2
    assert since("revstream_operations_failed_total", "BAD_USER_INPUT", "unknown") == 4
