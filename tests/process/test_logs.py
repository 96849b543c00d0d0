"""Logs of a process: a line for each change of state, as JSON if configured.

Writes, events and subscribers have no lines.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from tests.support.eventually import wait_until
from tests.support.gateway import ensure_ended, start_gateway

MODEL = 'type Thing @collection(name: "things") { id: ID! n: Int }'
WRITES = 3000
GENEROUS_S = 120.0
# The log events of a run from start to end, in this order, and their facts.
STORY = [
    ("connected", {"mongodb", "database", "driver", "deployment"}),
    ("serving", {"address"}),
    ("share", {"members", "partitions"}),
    ("lease acquired", {"listener", "fencing_token"}),
    ("stopping", set()),
    ("lease released", {"listener"}),
]


def test_a_run_has_few_log_lines_for_any_writes(
    mongo_uri: str, client: MongoClient[dict[str, Any]], database_name: str, tmp_path: Path
) -> None:
    """One JSON object per line, with stable names; thousands of writes add none."""
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    database = client[database_name]
    arguments = (mongo_uri, database_name, model)
    with ensure_ended(start_gateway(*arguments, "--log-json", "--log-level", "debug")) as gateway:
        wait_until(
            lambda: any('"lease acquired"' in line for line in gateway.lines), within_s=GENEROUS_S
        )
        for first in range(0, WRITES, 500):
            database.things.insert_many(
                [{"_id": f"t{n}", "n": 0} for n in range(first, first + 500)]
            )
        database.things.update_many({}, {"$inc": {"n": 1}})
        database.things.delete_many({"n": 1})
        wait_until(
            lambda: database["things.versions"].estimated_document_count() == 3 * WRITES,
            within_s=GENEROUS_S,
        )
        assert gateway.stop() == 0
    lines = [json.loads(line) for line in gateway.lines]
    assert [line["event"] for line in lines] == [event for event, _ in STORY]
    for line, (_, facts) in zip(lines, STORY, strict=True):
        assert set(line) == {"time", "level", "logger", "event"} | facts, line
        assert line["level"] == "info", line
