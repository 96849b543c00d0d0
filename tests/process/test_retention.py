"""Retention and purge by the real command: truncated history in the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.support import http
from tests.support.eventually import wait_until
from tests.support.gateway import (
    GraphQLFailed,
    RunningGateway,
    run_command,
    running_gateway,
)

Client = MongoClient[dict[str, Any]]

MODEL = """
type Thing @collection(name: "things", keep: "2 versions") { id: ID! n: Int m: Int note: String }
"""
CUT = "cut { versions at purgedBy purgedWhy purgedAt }"


@pytest.fixture
def gateway(mongo_uri: str, database_name: str, model: Path) -> Iterator[RunningGateway]:
    """Run a gateway with ten passes per second, and a ring that holds one event."""
    options = ("--retention-every-s", "0.1", "--ring-events", "1", "--archive-wait-s", "60")
    with running_gateway(mongo_uri, database_name, model, *options) as running:
        yield running


def history(gateway: RunningGateway, key: str) -> list[dict[str, Any]]:
    thing = f'thing(id: "{key}") {{ history {{ nodes {{ version {CUT} }} }} }}'
    found = gateway.query(f"{{ {thing} }}")["thing"]
    return found["history"]["nodes"] if found else []


def refused(gateway: RunningGateway, query: str, **variables: Any) -> dict[str, Any]:
    """Return the only error with its extensions."""
    (error,) = gateway.post(query, **variables)["errors"]
    assert error["extensions"]["code"] == "HISTORY_LOST", error
    return {**error["extensions"], "message": error["message"]}


async def test_truncated_history_is_reported(
    gateway: RunningGateway, client: Client, database_name: str
) -> None:
    """The oldest remaining version has a mark, and HISTORY_LOST has a token that works."""
    things = client[database_name].things
    start = gateway.query("{ resumeToken }")["resumeToken"]
    things.insert_one({"_id": "a", "n": 0, "note": "x", "version": 1})
    gateway.query('{ thing(id: "a") { history { nodes { version } } } }')
    for n in range(4):
        things.update_one({"_id": "a"}, {"$set": {"n": n + 1}, "$inc": {"version": 1}})
    wait_until(lambda: [e["version"] for e in history(gateway, "a")] == [5, 4], within_s=60)
    newest, oldest = history(gateway, "a")
    assert newest["cut"] is None
    assert oldest["cut"]["versions"] == 3
    assert (oldest["cut"]["purgedBy"], oldest["cut"]["purgedAt"]) == (None, None)

    state = 'query($t: TimePoint) { thing(id: "a") { state(asOf: $t) { version } } }'
    lost = refused(gateway, '{ thing(id: "a") { state(version: 2) { version } } }')
    assert "version 2 was requested" in lost["message"]
    assert lost["oldestVersion"] == 4
    works = {"token": lost["oldestResumeToken"]}
    assert gateway.query(state, t=works)["thing"]["state"]["version"] == 4
    assert gateway.query('{ thingVersion(id: "a", version: 9) { version } }') == {
        "thingVersion": None
    }
    diff = 'query { thing(id: "a") { diff(from: 1) { path } } }'
    assert "version 1 was requested" in refused(gateway, diff)["message"]

    # The document did not exist yet; for the collection this is unknown.
    assert gateway.query(state, t={"token": start})["thing"]["state"] is None
    all_then = "query($t: TimePoint!) { thingsAsOf(asOf: $t) { nodes { version } } }"
    lost = refused(gateway, all_then, t={"token": start})
    works = {"token": lost["oldestResumeToken"]}
    assert gateway.query(all_then, t=works)["thingsAsOf"]["nodes"] == [{"version": 4}]

    changes = "subscription($t: ResumeToken) { thingChanges(after: $t) { version } }"
    with pytest.raises(GraphQLFailed) as failed:
        await anext(gateway.subscribe(changes, t=start))
    (error,) = failed.value.args
    assert error["extensions"]["code"] == "HISTORY_LOST"
    events = gateway.subscribe(changes, t=error["extensions"]["oldestResumeToken"])
    assert (await anext(events))["thingChanges"]["version"] == 5
    await events.aclose()

    # Unknown facts are omitted, not guessed.
    template = 'thing(id: "a") { blame { path version { version } } history { nodes { %s } } }'
    selection = "version changedFields diff { path kind before after } previous { version }"
    found = gateway.query(f"{{ {template % selection} }}")["thing"]
    assert [(e["path"], e["version"]["version"]) for e in found["blame"]] == [("n", 5)]
    assert found["history"]["nodes"][1] == {
        "version": 4,
        "changedFields": ["n"],
        "diff": [{"path": "n", "kind": "CHANGED", "before": None, "after": 3}],
        "previous": None,
    }
    restore = 'mutation { restoreThing(id: "a", version: 1) { __typename } }'
    assert "version 1 was requested" in refused(gateway, restore)["message"]
    comment = 'mutation { commentOnThing(id: "a", version: 1, text: "?") { id } }'
    assert "version 1 was requested" in refused(gateway, comment)["message"]

    metrics = http.get(f"{gateway.address}/metrics").text
    assert 'revstream_retention_versions_total{collection="things"} 3.0' in metrics
    assert any("versions dropped" in line for line in gateway.lines)


async def test_a_purge_is_a_command(
    gateway: RunningGateway, client: Client, mongo_uri: str, database_name: str, model: Path
) -> None:
    """It needs a confirmation and lists unreachable copies, and the API names the operator."""
    things = client[database_name].things
    things.insert_one({"_id": "a", "note": "secret", "version": 1})
    things.update_one({"_id": "a"}, {"$set": {"note": "open"}, "$inc": {"version": 1}})
    wait_until(lambda: len(history(gateway, "a")) == 2, within_s=60)
    held = gateway.query('{ thing(id: "a") { history(last: 1) { nodes { resumeToken } } } }')
    token = held["thing"]["history"]["nodes"][0]["resumeToken"]
    place = ("--mongodb-uri", mongo_uri, "--database", database_name, "--schema", str(model))
    operator = ("--by", "officer", "--why", "request 4711")
    unconfirmed = run_command("purge", "Thing", "a", *operator, *place)
    assert unconfirmed.returncode == 2
    assert "pass --yes" in unconfirmed.stderr
    unknown = run_command("purge", "Thin", "a", "--yes", *operator, *place)
    assert "TYPE: 'Thin', expected an entity of the model: Thing" in unknown.stderr

    done = run_command("purge", "Thing", "a", "--yes", *operator, *place)
    assert done.returncode == 0, done.stderr
    assert "Thing a: removed 1 versions, 0 drafts and 0 comments" in done.stdout
    assert "the document exists: version 2 stays" in done.stdout
    for each in ("MongoDB's oplog: reaches back", "config.system.preimages", "backups"):
        assert each in done.stdout
    (only,) = history(gateway, "a")
    assert (only["version"], only["cut"]["versions"]) == (2, 1)
    assert (only["cut"]["purgedBy"], only["cut"]["purgedWhy"]) == ("officer", "request 4711")
    assert only["cut"]["purgedAt"]
    lost = refused(gateway, '{ thingVersion(id: "a", version: 1) { version } }')
    assert "by a purge" in lost["message"]
    # A client that holds the secret version is asked to drop it, though its content is no longer
    # known.
    things.insert_many([{"_id": n, "note": "secret"} for n in ("b1", "b2")])
    wait_until(lambda: history(gateway, "b2"), within_s=60)
    changes = """subscription($t: ResumeToken) {
        thingChanges(after: $t, where: { note: { eq: "secret" } }) { documentId transition gap }
    }"""
    events = gateway.subscribe(changes, t=token)
    received = [(await anext(events))["thingChanges"] for _ in range(2)]
    await events.aclose()
    assert received == [
        {"documentId": "a", "transition": "LEAVE", "gap": True},
        {"documentId": "b1", "transition": "ENTER", "gap": False},
    ]
    verified = run_command("verify", *place)
    assert verified.returncode == 0, verified.stdout
    missing = run_command("purge", "Thing", "b", "--yes", *operator, *place)
    assert (missing.returncode, "Thing b: no versions" in missing.stderr) == (1, True)
