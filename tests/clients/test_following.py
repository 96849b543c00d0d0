"""Clients that follow a subscription over HTTP while the gateway is stopped, killed and restarted:
a plain EventSource, graphql-sse, and Apollo Client in multipart.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database

from tests.clients.node import running_program
from tests.conftest import ServedShop
from tests.support.eventually import wait_until
from tests.support.gateway import RunningGateway, ensure_ended, start_gateway
from tests.support.repeating import repeat_in_background

CLIENTS = ("EventSource", "graphql-sse", "Apollo Client")
MODEL = 'type Thing @collection(name: "things") { id: ID! n: Int }'
GENEROUS_S = 120.0


class Writer:
    """Inserts things one by one; `written` are their ids."""

    def __init__(self, database: Database[dict[str, Any]]) -> None:
        self.written: list[str] = []
        self._things = database["things"]

    def write(self) -> None:
        id_ = f"t{len(self.written)}"
        self._things.insert_one({"_id": id_, "n": len(self.written)})
        self.written.append(id_)


def seen_by(said: list[Any]) -> list[str]:
    return [each["document"] for each in list(said) if "document" in each]


def test_queries_and_mutations_run_over_a_stream(gateway: ServedShop) -> None:
    """graphql-sse runs a query and a mutation, EventSource a query; each receives `complete`."""
    with running_program("asking.mjs", gateway.url) as (process, said):
        assert process.wait(timeout=GENEROUS_S) == 0
    first, deleted, second = (each.pop("data") for each in said)
    assert said == [
        {"client": "graphql-sse", "kind": "query"},
        {"client": "graphql-sse", "kind": "mutation"},
        {"client": "EventSource", "kind": "query"},
    ]
    assert first["resumeToken"] <= second["resumeToken"]
    assert deleted == {"deleteProduct": {"__typename": "DocumentNotFound"}}


def test_no_event_is_missed_and_none_comes_twice(
    mongo_uri: str, client: MongoClient[dict[str, Any]], database_name: str, tmp_path: Path
) -> None:
    """Each client reconnects after a stop and a kill and continues after its last event."""
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    writer = Writer(client[database_name])

    def start(*options: str) -> RunningGateway:
        return start_gateway(mongo_uri, database_name, model, "--lease-s", "2", *options)

    with contextlib.ExitStack() as ends:
        gateway = ends.enter_context(ensure_ended(start()))
        port = gateway.address.rpartition(":")[2]
        after = gateway.query("{ resumeToken }")["resumeToken"]
        said = {
            name: ends.enter_context(
                running_program("following.mjs", name, gateway.address, after)
            )[1]
            for name in CLIENTS
        }

        def reached(count: int) -> bool:
            return all(len(seen_by(each)) > count for each in said.values())

        with repeat_in_background(writer.write, every_s=0.01):
            for end in (RunningGateway.stop, RunningGateway.kill):
                count = len(writer.written)
                wait_until(lambda count=count: reached(count), within_s=GENEROUS_S)
                end(gateway)
                gateway = ends.enter_context(ensure_ended(start("--port", port)))
            count = len(writer.written)
            wait_until(lambda count=count: reached(count), within_s=GENEROUS_S)
        wait_until(lambda: reached(len(writer.written) - 1), within_s=GENEROUS_S)
    for name, lines in said.items():
        assert seen_by(lines) == writer.written, name
        opened = max(each["opened"] for each in lines if "opened" in each)
        assert opened >= 3, f"{name}: {opened}"
        told = {each["told"] for each in lines if "told" in each}
        assert told == set(), f"{name}: {told}"
