"""The management port: health and metrics beside the API, and without one."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

from pymongo.database import Database

from tests.support import http
from tests.support.eventually import wait_until
from tests.support.gateway import RunningGateway, run_command, running_gateway

MODEL = 'type Thing @collection(name: "things") { id: ID! name: String }'
PATHS = ("/livez", "/readyz", "/metrics")


def management_address(gateway: RunningGateway) -> str:
    """Return the address that the log names."""
    [address] = re.findall(r"managing address=(\S+)", "".join(gateway.lines))
    return str(address)


def status(address: str, path: str) -> int:
    return http.get(f"{address}{path}", timeout=30).status_code


def test_the_public_port_serves_neither_health_nor_metrics(
    mongo_uri: str, database: Database[dict[str, Any]], model: Path
) -> None:
    """The management port serves these, about the API's port, and nothing else."""
    with running_gateway(mongo_uri, database.name, model, "--management-port", "0") as gateway:
        management = management_address(gateway)
        assert management != gateway.address
        wait_until(lambda: status(management, "/readyz") == 200)
        assert [status(management, each) for each in PATHS] == [200, 200, 200]
        assert [status(gateway.address, each) for each in PATHS] == [404, 404, 404]
        assert [status(management, each) for each in ("/", "/graphql")] == [404, 404]
        gateway.query("{ things { nodes { id } } }")
        metrics = http.get(f"{management}/metrics", timeout=30).text
        assert 'revstream_operation_seconds_count{kind="query"} 1.0' in metrics
        # A page whose name resolves to this machine.
        refused = http.get(f"{management}/metrics", headers={"Host": "evil.example.org"})
        assert refused.status_code == 421
        assert gateway.stop() == 0


def test_readiness_ends_first_at_shutdown_and_the_management_port_last(
    mongo_uri: str, database: Database[dict[str, Any]], model: Path
) -> None:
    """A request that has begun holds up the end of the API's port.

    Meanwhile the process is alive, and says that it is not ready.
    """
    with running_gateway(mongo_uri, database.name, model, "--management-port", "0") as gateway:
        management = management_address(gateway)
        wait_until(lambda: status(management, "/readyz") == 200)
        host, _, port = gateway.address.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(
                b"POST /graphql HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 100\r\n\r\n{"
            )
            gateway.process.terminate()
            wait_until(lambda: status(management, "/readyz") == 503)
            answer = http.get(f"{management}/readyz").json()
            assert answer["notReady"]["gateway"] == "shutting down"
            assert status(management, "/livez") == 200
            assert gateway.process.poll() is None
        assert gateway.process.wait(timeout=60) == 0


def test_a_process_that_only_records_has_a_management_port(
    mongo_uri: str, database: Database[dict[str, Any]], model: Path
) -> None:
    """Its metrics show that it holds the lease and records."""
    options = ("--management-port", "0", "--management-host", "127.0.0.2")
    with running_gateway(mongo_uri, database.name, model, *options, command="record") as recorder:
        management = management_address(recorder)
        assert management.startswith("http://127.0.0.2:")
        wait_until(lambda: status(management, "/readyz") == 200)
        database.things.insert_one({"_id": "a", "name": "one"})
        expected = 'revstream_recorder_versions_total{collection="things",partition="1/1"} 1.0'
        wait_until(lambda: expected in http.get(f"{management}/metrics").text, within_s=60)
        assert recorder.stop() == 0


def test_a_management_port_that_is_taken_is_reported_with_its_options(model: Path) -> None:
    """The check is before the connection to MongoDB."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run_command(
            *("serve", "--schema", str(model), "--port", "0", "--management-port", str(port)),
            *("--mongodb-uri", "mongodb://127.0.0.1:1/shop"),
        )
    assert ended.returncode == 1
    assert f"address to listen on: 127.0.0.1:{port}: Address already in use" in ended.stderr
    assert "--management-port or --management-host" in ended.stderr
