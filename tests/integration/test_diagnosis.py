"""Findings of `doctor`, and the effect of the fixes that it suggests."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from unittest.mock import AsyncMock

import pytest
from bson import Timestamp
from pymongo import MongoClient

from revstream.model.compiler.loader import read_model
from revstream.streams.archive.coverage import CoverageStore, TimeMark
from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Baseline, Checkpoint
from revstream.streams.coordination.lease import Holder
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DatabaseError, TimeLimit, Unsuitable
from revstream.streams.maintenance.diagnosis import Diagnosis, DiagnosisFinding
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.server_check import enable_collection_images
from revstream.streams.recording.bootstrap.index_creation import create_indexes

Client = MongoClient[dict[str, Any]]
MODEL = read_model(
    """
    type Thing @collection(name: "things") @index(fields: ["size"]) {
      id: ID!
      name: String @unique
      size: Int
    }
    """
)
HELD = Holder("somebody", 3, True)


async def healthy(mongo: Mongo) -> Checkpoint:
    """Do all that a start does, and record until now."""
    await enable_collection_images(mongo, "things")
    await create_indexes(mongo, MODEL, ["things"], lambda *_: None)
    await Archive(mongo, "things").prepare()
    now = resume_tokens.token_from_time(await mongo.operation_time())
    return Checkpoint(now, now, Baseline(done=True))


async def examined(
    mongo: Mongo, checkpoint: Checkpoint | None, holder: Holder | None = HELD
) -> dict[str, list[DiagnosisFinding]]:
    """Return the findings by subject."""
    checkpoints = {} if checkpoint is None else {Partition("things"): checkpoint}
    holders = {} if holder is None else {Partition("things"): holder}
    found: dict[str, list[DiagnosisFinding]] = {}
    for each in await Diagnosis(mongo, MODEL, checkpoints, holders).run():
        if each.level in ("warning", "error"):
            found.setdefault(each.subject, []).append(each)
    return found


async def test_another_text_index_is_reported(mongo: Mongo) -> None:
    """A collection has one at most, so that the model's cannot be created."""
    model = read_model(
        'type Thing @collection(name: "things") @search(fields: ["name"]) { id: ID! name: String }'
    )
    await mongo.create_index("things", [("name", "text")], default_language="english")
    findings = await Diagnosis(mongo, model, {}, {}).run()
    (found,) = [each for each in findings if each.subject == "indexes"]
    assert found.text == (
        'things: text index "name_text" with weights {name: 1} and language english, expected '
        "weights {name: 1} and language none"
    )
    await mongo.drop_index("things", "name_text")
    await create_indexes(mongo, model, ["things"], lambda *_: None)
    findings = await Diagnosis(mongo, model, {}, {}).run()
    assert [each.level for each in findings if each.subject == "indexes"] == ["ok"]


async def test_a_healthy_deployment_has_no_errors(mongo: Mongo) -> None:
    """A single member and an old server are notes."""
    assert await examined(mongo, await healthy(mongo)) == {}


@pytest.mark.parametrize(("accepted", "level"), [(False, "error"), (True, "warning")])
async def test_a_sharded_cluster_is_reported_with_its_limitations(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch, accepted: bool, level: str
) -> None:
    """It is an error unless it is accepted, since the start refuses it."""
    command = mongo.command

    async def answer(asked: Any, **options: Any) -> Any:
        return (await command(asked, **options)) | ({"msg": "isdbgrid"} if "hello" in asked else {})

    monkeypatch.setattr(mongo, "command", answer)
    found = await Diagnosis(mongo, MODEL, {}, {}, sharded=accepted).run()
    (said,) = [each for each in found if "shard key" in each.text]
    assert (said.subject, said.level) == ("server", level)
    assert said.mend is not None
    assert "--experimental-sharded" in said.mend


async def test_before_the_first_start_doctor_says_which_command_to_run(mongo: Mongo) -> None:
    """History and indexes are missing; indexes of a missing collection are created with it."""
    found = await examined(mongo, None, None)
    assert set(found) == {"recorders"}
    assert "none has run for things" in found["recorders"][0].text
    await mongo.command({"create": "things"})
    found = await examined(mongo, None, None)
    assert set(found) == {"images", "indexes", "recorders"}
    assert "{size: 1, _id: 1}, {name: 1}" in found["indexes"][0].text


async def test_the_suggested_command_turns_on_post_images(mongo: Mongo, client: Client) -> None:
    """The command is run as in mongosh."""
    checkpoint = await healthy(mongo)
    images = {"enabled": False}
    client[mongo.name].command({"collMod": "things", "changeStreamPreAndPostImages": images})
    (finding,) = (await examined(mongo, checkpoint))["images"]
    assert finding.mend is not None
    assert 'collMod: "things"' in finding.mend
    images = {"enabled": True}
    client[mongo.name].command({"collMod": "things", "changeStreamPreAndPostImages": images})
    assert await examined(mongo, checkpoint) == {}


async def test_a_missing_index_is_named(mongo: Mongo, client: Client) -> None:
    """Indexes of the archive are checked, too."""
    checkpoint = await healthy(mongo)
    client[mongo.name].things.drop_index("name_1")
    client[mongo.name]["things.versions"].drop_index("doc_1_v_-1")
    found = {each.text for each in (await examined(mongo, checkpoint))["indexes"]}
    assert found == {
        "things: missing on {name: 1}",
        "things.versions: missing on {doc: 1, v: -1}",
    }


async def test_a_view_in_place_of_a_collection_hides_no_other_finding(
    mongo: Mongo, client: Client
) -> None:
    """It is reported once: a view has no post-images and no indexes that could be missing."""
    checkpoint = await healthy(mongo)
    database = client[mongo.name]
    database.things.drop()
    database.create_collection("things", viewOn="elsewhere", pipeline=[])
    database["things.versions"].drop_index("doc_1_v_-1")
    found = await examined(mongo, checkpoint)
    assert set(found) == {"change stream", "indexes"}
    assert "things is a view" in found["change stream"][0].text
    texts = [each.text for each in found["indexes"]]
    assert texts == ["things.versions: missing on {doc: 1, v: -1}"]


@pytest.mark.parametrize("holder", [None, Holder("gone", 3, False)])
async def test_a_collection_without_a_recorder_is_an_error(
    mongo: Mongo, holder: Holder | None
) -> None:
    """The lease is free, or has expired."""
    (finding,) = (await examined(mongo, await healthy(mongo), holder))["recorders"]
    assert finding.level == "error"
    assert "no process records" in finding.text


async def test_a_recorder_near_the_end_of_the_oplog_is_an_error(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finding comes before history is lost, with the command that enlarges the oplog."""
    checkpoint = await healthy(mongo)
    now = await mongo.operation_time()
    command = mongo.command

    async def full(asked: dict[str, Any], **options: Any) -> Any:
        if "collStats" in asked:
            return {"size": 1000 * 2**20, "maxSize": 1024 * 2**20}
        return await command(asked, **options)

    async def ten_hours_back(*_: Any, **__: Any) -> Any:
        return {"ts": Timestamp(now.time - 36_000, 1)}

    monkeypatch.setattr(mongo, "command", full)
    monkeypatch.setattr(mongo, "oldest", ten_hours_back)
    (finding,) = (await examined(mongo, checkpoint))["oplog"]
    assert finding.level == "warning"
    late = resume_tokens.token_from_time(Timestamp(now.time - 30_000, 1))
    (finding,) = (await examined(mongo, replace(checkpoint, token=late)))["oplog"]
    assert finding.level == "error"
    assert finding.mend is not None
    assert "replSetResizeOplog: 1, size: Double(2048)" in finding.mend


async def test_a_check_without_access_is_reported_and_the_others_run(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One refusal hides no other finding."""
    checkpoint = await healthy(mongo)

    async def forbidden(*_: Any, **__: Any) -> Any:
        raise Unsuitable("MongoDB does not permit this: not authorized on local")

    monkeypatch.setattr(mongo, "oldest", forbidden)
    monkeypatch.setattr(mongo, "clock", _refused)
    found = await examined(mongo, checkpoint)
    # The lag of a recorder is also known from the clock.
    assert set(found) == {"oplog", "clock", "recorders"}
    assert "history begins at the first start" in found["oplog"][0].text


async def test_a_check_that_times_out_hides_no_other_finding(
    mongo: Mongo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own findings so far are kept, too."""
    checkpoint = await healthy(mongo)

    async def slow(*_: Any, **__: Any) -> Any:
        raise TimeLimit("the read took longer than its limit on the server")

    monkeypatch.setattr(mongo, "clock", slow)
    monkeypatch.setattr(mongo, "count", slow)
    monkeypatch.setattr(mongo, "operation_time", AsyncMock(return_value=Timestamp(1, 1)))
    found = await examined(mongo, checkpoint)
    assert set(found) == {"clock", "recorders"}
    assert "took longer" in found["clock"][0].text + found["recorders"][0].text


async def test_gaps_are_counted_by_their_own_index(mongo: Mongo, client: Client) -> None:
    """The number of versions does not matter."""
    checkpoint = await healthy(mongo)
    versions = client[mongo.name]["things.versions"]
    for n in range(50):
        gap = {} if n % 25 else {"gap": True}
        versions.insert_one({"_id": f"82{n:02}", "doc": n, "v": 1, **gap})
    found = await Diagnosis(
        mongo, MODEL, {Partition("things"): checkpoint}, {Partition("things"): HELD}
    ).run()
    # The lag in whole seconds of the clock does not matter here.
    assert [each.text.split("; ")[1:] for each in found if "gap" in each.text] == [
        ["2 versions after a gap"]
    ]
    plan = client[mongo.name].command(
        {
            "explain": {"count": "things.versions", "query": {"gap": True}},
            "verbosity": "executionStats",
        }
    )
    assert plan["executionStats"]["totalDocsExamined"] <= 2


async def _refused(*_: Any, **__: Any) -> Any:
    raise DatabaseError("MongoDB refused: no")


async def test_lost_time_windows_are_reported(mongo: Mongo) -> None:
    """The finding has their number and the reason of the last one; there is no fix."""
    checkpoint, coverages = await healthy(mongo), CoverageStore(mongo)
    day = datetime(2024, 1, 1, tzinfo=UTC)
    for n in (1, 2):
        await coverages.open_gap("things", "p", TimeMark(Timestamp(100 * n, 1), day), f"reason {n}")
        await coverages.close_gap("things", "p", TimeMark(Timestamp(100 * n + 9, 1), day))
    partition = Partition("things")
    run = Diagnosis(mongo, MODEL, {partition: checkpoint}, {partition: HELD}).run()
    (said,) = [each for each in await run if "windows of history" in each.text]
    assert said.level == "note"
    assert said.text.startswith("things: 2 windows")
    assert "reason 2" in said.text
