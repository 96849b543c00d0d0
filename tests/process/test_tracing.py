"""Spans of a gateway with `--tracing`, as a collector receives them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.support import http
from tests.support.beginning import begin_new
from tests.support.eventually import eventually, wait_until
from tests.support.exhaustive import exhaustive
from tests.support.gateway import (
    ROOT,
    RunningGateway,
    ensure_ended,
    running_gateway,
    start_command,
)
from tests.support.otlp import ReceivedSpan, SpanCollector, running_collector
from tests.support.receiver import Receiver, Reply, Request, running_receiver
from tests.support.sockets import LEGACY, TRANSPORT, Protocol, open_socket

Things = Database[dict[str, Any]]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
BROWSER = "00f067aa0ba902b7"
HEADERS = {"traceparent": f"00-{TRACE}-{BROWSER}-01"}
SECRET = "a-value-that-no-span-may-have"
CREATE = """mutation Stock($id: ID!) {
  createThing(id: $id, document: {name: "a-value-that-no-span-may-have"}) { __typename }
}"""
CHANGES = "subscription Watch { thingChanges { kind documentId traceparent } }"


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[SpanCollector]:
    """Collect the spans of the processes that the test starts."""
    with running_collector() as running:
        for name in [each for each in os.environ if each.startswith("OTEL_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{running.port}")
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield running


@contextmanager
def tracing_gateway(
    uri: str, database: Things, tmp_path: Path, *options: str, sink: str = ""
) -> Iterator[RunningGateway]:
    model = tmp_path / "schema.graphql"
    directive = f'@sink(url: "{sink}") ' if sink else ""
    model.write_text(
        f'type Thing @collection(name: "things") {directive}{{ id: ID! name: String }}'
    )
    with running_gateway(uri, database.name, model, "--tracing", *options) as running:
        yield running


def post(gateway: RunningGateway, query: str, **variables: Any) -> dict[str, Any]:
    """Send an operation as a page with a trace does, and return the response."""
    body = {"query": query, "variables": variables}
    answer = http.post(f"{gateway.address}/graphql", json=body, headers=HEADERS, timeout=60)
    response: dict[str, Any] = answer.json()
    return response


async def one(collector: SpanCollector, name: str, **attributes: Any) -> ReceivedSpan:
    """Wait for the only span with this name and these attributes, dots written as two
    underscores.
    """
    wanted = {key.replace("__", "."): value for key, value in attributes.items()}
    found: list[ReceivedSpan] = []

    def there() -> bool:
        found[:] = [e for e in collector.named(name) if wanted.items() <= e.attributes.items()]
        return bool(found)

    await eventually(there)
    [span] = found
    return span


async def test_a_trace_leads_from_the_browsers_request_to_the_receiver(
    mongo_uri: str, database: Things, tmp_path: Path, collector: SpanCollector
) -> None:
    """Request, execution, command, recorded batch, delivery: each is a child of the one before, or
    links to it; receiver and subscriber have the trace, too.
    """
    refused = iter([True, False])

    def behave(request: Request) -> Reply:
        return Reply(status=503 if next(refused, False) else 200)

    with ExitStack() as opened:
        receiver = opened.enter_context(running_receiver(Receiver(behave)))
        gateway = opened.enter_context(
            tracing_gateway(mongo_uri, database, tmp_path, sink=receiver.url)
        )
        async with aclosing(gateway.subscribe(CHANGES)) as events:
            assert (await anext(events))["thingChanges"]["kind"] == "CHECKPOINT"
            answer = post(gateway, CREATE, id="a")
            assert answer == {"data": {"createThing": {"__typename": "ThingWritten"}}}
            event = (await anext(events))["thingChanges"]
        request = await one(collector, "POST /graphql")
        execution = await one(collector, "mutation")
        command = await one(collector, "insert things")
        batch = await one(collector, "record things")
        stored = await one(collector, "insert things.versions")
        await eventually(lambda: len(collector.named("deliver")) == 2)
        # For `pytest -s`: what an operator sees.
        sys.stdout.write(f"\n{collector.lines()}\n")

    assert (request.trace, request.parent, request.kind) == (TRACE, BROWSER, "server")
    assert request.attributes == {
        **{"http.request.method": "POST", "http.route": "/graphql", "url.path": "/graphql"},
        "http.response.status_code": 200,
    }
    assert (execution.trace, execution.parent) == (TRACE, request.id)
    assert execution.attributes == {
        **{"graphql.operation.type": "mutation", "graphql.operation.name": "Stock"},
    }
    assert (command.trace, command.parent, command.kind) == (TRACE, execution.id, "client")
    port = int(command.attributes.pop("server.port"))
    assert f":{port}" in mongo_uri
    assert command.attributes == {
        **{"db.system.name": "mongodb", "db.namespace": database.name},
        **{"db.collection.name": "things", "db.operation.name": "insert"},
        "server.address": "127.0.0.1",
    }
    assert batch.links == [(TRACE, execution.id)]
    assert batch.trace != TRACE
    assert batch.attributes == {"recorder.name": "recorder:things", "recorder.versions": 1}
    assert (stored.trace, stored.parent) == (batch.trace, batch.id)
    first, second = collector.named("deliver")
    assert [(each.trace, each.parent) for each in (first, second)] == [(TRACE, execution.id)] * 2
    assert [each.failed for each in (first, second)] == [True, False]
    assert first.attributes["error.type"] == "failed"
    assert second.attributes == {
        **{"server.address": "127.0.0.1", "sink.name": second.attributes["sink.name"]},
    }

    written = f"00-{TRACE}-{execution.id}-01"
    assert [each.event["traceparent"] for each in receiver.requests] == [written] * 2
    attempts = [f"00-{TRACE}-{each.id}-01" for each in (first, second)]
    assert [each.headers["traceparent"] for each in receiver.requests] == attempts
    assert event == {"kind": "CHANGE", "documentId": "a", "traceparent": written}
    assert {each.resource["service.name"] for each in collector.spans} == {"revstream"}
    assert SECRET.encode() not in collector.received
    # The work of the process itself, which never ends, has none.
    assert {each.name for each in collector.spans if not each.parent} <= {
        *("record things", "subscription"),
    }


@pytest.mark.parametrize(
    "options",
    [
        (),
        pytest.param(("--no-wire",), marks=exhaustive),
        pytest.param(("--driver", "pymongo", "--no-wire"), marks=exhaustive),
    ],
)
async def test_reads_are_spans_below_their_operation(
    mongo_uri: str,
    database: Things,
    tmp_path: Path,
    collector: SpanCollector,
    options: tuple[str, ...],
) -> None:
    """They are read over a wire connection or by the driver; a new and a known document alike."""
    database.things.insert_one({"_id": "a", "name": "lamp"})
    query = "query Names { things(first: 1) { nodes { name } } }"
    with tracing_gateway(mongo_uri, database, tmp_path, *options) as gateway:
        for _ in range(3):
            assert post(gateway, query)["data"]["things"]["nodes"] == [{"name": "lamp"}]
        failed = post(gateway, '{ things(after: "x", first: 1) { nodes { name } } }')
        assert failed["errors"][0]["extensions"]["code"] == "BAD_USER_INPUT"
        await eventually(lambda: len(collector.named("query")) == 4)
    reads = [each for each in collector.named("query") if not each.failed]
    assert len(reads) == 3
    for each in reads:
        assert each.attributes["graphql.operation.name"] == "Names"
        assert each.trace == TRACE
        below = {child.name for child in collector.children(each)}
        assert "find things" in below, collector.lines()
    [refused] = [each for each in collector.named("query") if each.failed]
    assert refused.attributes["error.type"] == "BAD_USER_INPUT"


@pytest.mark.parametrize("protocol", [TRANSPORT, LEGACY])
async def test_an_operation_of_a_websocket_is_a_span_in_the_clients_trace(
    mongo_uri: str,
    database: Things,
    tmp_path: Path,
    collector: SpanCollector,
    protocol: Protocol,
) -> None:
    """A subscription's span ends with its first event, while the subscription goes on."""
    with tracing_gateway(mongo_uri, database, tmp_path) as gateway:
        async with open_socket(gateway.address, protocol) as socket:
            kind = "start" if protocol == LEGACY else "subscribe"
            for id_, query in (("s", CHANGES), ("q", "query Ask { things { nodes { name } } }")):
                payload = {"query": query, "extensions": HEADERS}
                await socket.send({"id": id_, "type": kind, "payload": payload})
                assert (await socket.receive())["id"] == id_
            watching = await one(collector, "subscription")
            asking = await one(collector, "query")
            assert (await socket.receive())["type"] == "complete"
            # The subscription's own work after its first event belongs to no trace.
            database.things.insert_one({"_id": "b", "name": "desk"})
            assert (await socket.receive())["id"] == "s"
    for span, name in ((watching, "Watch"), (asking, "Ask")):
        assert (span.trace, span.parent, span.kind) == (TRACE, BROWSER, "server")
        assert span.attributes["graphql.operation.name"] == name
    assert [each.name for each in collector.children(asking)] == ["find things"]


async def test_a_client_without_a_trace_begins_one(
    mongo_uri: str,
    database: Things,
    tmp_path: Path,
    collector: SpanCollector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its writes are kept with it; the standard variables name the service and choose the
    sampler.
    """
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop")
    with tracing_gateway(mongo_uri, database, tmp_path) as gateway:
        gateway.query(CREATE, id="a")
        execution = await one(collector, "mutation")
    assert execution.resource["service.name"] == "shop"
    stored = database.things.find_one({"_id": "a"})
    assert stored is not None
    # Of the flags, one says that it is sampled.
    *ids, flags = stored["_change"]["traceparent"].split("-")
    assert (ids, int(flags, 16) & 1) == (["00", execution.trace, execution.id], 1)

    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    count = len(collector.spans)
    with tracing_gateway(mongo_uri, database, tmp_path) as gateway:
        gateway.query(CREATE, id="b")
        assert post(gateway, CREATE, id="c")["data"]
        assert gateway.stop() == 0
    assert len(collector.spans) == count
    kept = {each["_id"]: each["_change"].get("traceparent") for each in database.things.find()}
    assert (kept["b"], kept["c"]) == (None, HEADERS["traceparent"])


def test_a_collector_that_is_away_delays_nothing(
    mongo_uri: str, database: Things, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests are answered, the log says so now and then, and the process stops in time."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with tracing_gateway(mongo_uri, database, tmp_path) as gateway:
        gateway.query(CREATE, id="a")
        began = time.monotonic()
        assert gateway.stop() == 0
        assert time.monotonic() - began < 15
    # Without the indented lines of tracebacks.
    lines = [line for line in gateway.lines if not line.startswith(" ")]
    said = [line for line in lines if "export" in line.lower()]
    assert 1 <= len(said) <= 5, gateway.lines


def test_without_tracing_opentelemetry_is_not_imported(
    mongo_uri: str, database: Things, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither at the start nor for a request, a write, a version or a delivery."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    watched = """
import sys
class Refusal:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "opentelemetry":
            sys.stderr.write(f"IMPORTED {name}\\n")
sys.meta_path.insert(0, Refusal())
from revstream.gql.cli.main import main
main()
"""
    model = tmp_path / "schema.graphql"

    def lines_of(*options: str) -> list[str]:
        begin_new(mongo_uri, database.name, model)
        where = ("--mongodb-uri", mongo_uri, "--database", database.name, "--schema", str(model))
        started = start_command(
            *("serve", *where, "--port", "0", *options), program=("-c", watched)
        )
        with ensure_ended(started) as gateway:
            assert post(gateway, CREATE, id=f"a{len(options)}")["data"]
            wait_until(lambda: receiver.taken)
            receiver.requests.clear()
            assert gateway.stop() == 0
        return [line for line in gateway.lines if line.startswith("IMPORTED")]

    with running_receiver(Receiver()) as receiver:
        model.write_text(
            f'type Thing @collection(name: "things") @sink(url: "{receiver.url}") '
            "{ id: ID! name: String }"
        )
        assert lines_of() == []
        assert lines_of("--tracing") != []


@pytest.mark.parametrize(
    ("environ", "missing", "message"),
    [
        ({}, True, r"--tracing: opentelemetry\S* is not installed, expected the extra otel"),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, False, "OTEL_TRACES_EXPORTER: zipkin, expected otlp"),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            False,
            "OTEL_EXPORTER_OTLP_PROTOCOL: grpc, expected http/protobuf",
        ),
    ],
)
def test_tracing_that_cannot_work_stops_the_start(
    tmp_path: Path, environ: dict[str, str], missing: bool, message: str
) -> None:
    """The message says what to do, before anything is opened."""
    model = tmp_path / "schema.graphql"
    model.write_text('type Thing @collection(name: "things") { id: ID! name: String }')
    hide = "sys.modules['opentelemetry'] = None" if missing else "pass"
    program = f"import sys; {hide}; from revstream.gql.cli.main import main; main()"
    options = ("--schema", str(model), "--mongodb-uri", "mongodb://127.0.0.1:9/x", "--port", "0")
    ended = subprocess.run(
        [sys.executable, "-c", program, "serve", "--tracing", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert re.search(message, ended.stderr), ended.stderr
