"""Repair after a program's crash between two writes of an update: by recorders, by a command, and
reported by `doctor`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pymongo import MongoClient

from revstream.gql.cli.verify import lines_of, verify
from revstream.gql.runtime.configuration.settings import Settings
from revstream.streams.archive.store import Archive
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.layouts.factory import create_layout
from revstream.streams.layouts.self_versioned.current_flag import CurrentFlagLayout
from revstream.streams.layouts.self_versioned.separate import SeparateLayout
from revstream.streams.maintenance.diagnosis import Diagnosis, DiagnosisFinding
from revstream.streams.mongo.database import Mongo
from revstream.streams.recording.layout_repair import repair_layout
from tests.support.layouts import Program, layout_model, program
from tests.support.streams import Recording, unless_ended

Client = MongoClient[dict[str, Any]]
pytestmark = [
    pytest.mark.parametrize("mongo", ["motor"], indirect=True),
    pytest.mark.parametrize("history", ["CURRENT_FLAG", "SEPARATE"]),
]
LAMP, TORCH, CANDLE = ({"name": name, "stock": 1} for name in ("Lamp", "Torch", "Candle"))


def crashed(writes: Program) -> None:
    """Write the first part of an update, as a program that crashed."""
    writes.write("a", LAMP)
    writes.write("b", LAMP)
    first, *_ = writes.steps("a", TORCH)
    first()


async def prepared(mongo: Mongo, history: str) -> Layout:
    layout = create_layout(mongo, layout_model(history).entity("Product"))
    await layout.prepare()
    return layout


async def said(mongo: Mongo, history: str) -> list[DiagnosisFinding]:
    """Return the findings of `doctor` on layouts."""
    found = await Diagnosis(mongo, layout_model(history), {}, {}).run()
    return [each for each in found if each.subject == "layouts"]


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the time after which a partial update counts as a crash to a second."""
    monkeypatch.setitem(repair_layout.__kwdefaults__, "every_s", 1.0)
    for each in (Layout, SeparateLayout, CurrentFlagLayout):
        monkeypatch.setitem(each.recover.__kwdefaults__, "settle_s", 1.0)


async def test_a_running_gateway_repairs_a_partial_update(
    mongo: Mongo, client: Client, history: str
) -> None:
    """It needs no restart; the program's next update succeeds, and all of it is recorded."""
    layout = await prepared(mongo, history)
    writes = program(history, client[mongo.name])
    archive = Archive(mongo, "products", layout)
    recording = Recording(mongo, "products", version_field="v", archive=archive)
    await recording.begin()
    async with recording.running() as task:
        await recording.at_rest(task)
        crashed(writes)
        assert await layout.count_unfinished() == 1

        async def mended() -> None:
            while await layout.count_unfinished():
                pass

        # Up to two leases; the machine may be slow.
        async with asyncio.timeout(120):
            await unless_ended(task, mended())
        if history == "SEPARATE":
            # Its partial update is undone: a retry succeeds.
            writes.numbers["a"], writes.bodies["a"] = 1, dict(LAMP)
        writes.write("a", CANDLE)
        await recording.at_rest(task)
    [newest] = await archive.newest([{"key": "a"}], limit=1)
    assert newest["full"]["name"] == "Candle"
    [present] = await layout.find({"_id": "a"})
    assert present["name"] == "Candle"


async def test_doctor_reports_a_partial_update_and_a_command_repairs_it(
    mongo: Mongo, mongo_uri: str, client: Client, history: str
) -> None:
    """No process records meanwhile."""
    layout = await prepared(mongo, history)
    assert [each.level for each in await said(mongo, history)] == ["ok"]
    crashed(program(history, client[mongo.name]))
    [finding] = await said(mongo, history)
    assert (finding.level, finding.text) == (
        "warning", "products: 1 unfinished updates after a crash",
    )  # fmt: skip
    assert finding.mend is not None
    assert "revstream verify --mend" in finding.mend
    model = layout_model(history)
    found = await verify(Settings(), model, mongo_uri, mongo.name, lambda *_: None, mend=True)
    assert "products: 1 unfinished updates are completed" in lines_of(found)
    assert await layout.count_unfinished() == 0
    assert [each.level for each in await said(mongo, history)] == ["ok"]
