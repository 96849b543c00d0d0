"""Days, timestamps and binary data through the API: written, filtered, sorted and grouped."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from bson import Timestamp
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import context_of
from revstream.model.compiler.loader import read_model
from tests.support.editing import open_shop

MODEL = read_model(
    'type Scan @collection(name: "scans") '
    "{ id: ID! day: Date! clock: Timestamp data: Binary days: [Date!] }"
)


async def test_values_have_one_form_everywhere(
    mongo_uri: str, client: MongoClient[dict[str, Any]]
) -> None:
    """They are stored as BSON has them; both executions of the API show the same."""
    name = f"scans_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=MODEL) as shop:

        async def ask(text: str) -> Any:
            result = await shop.schema.execute(text, {}, context_of(shop.gateway))
            assert result.errors is None
            return result.data

        values = '{day: "2024-02-29", clock: "7:1", data: "AP8=", days: ["2024-02-28"]}'
        await ask(f'mutation {{ createScan(id: "a", document: {values}) {{ __typename }} }}')
        await ask('mutation { createScan(id: "b", document: {day: "2024-03-01"}) { __typename } }')
        stored = client[name]["scans"].find_one({"_id": "a"}) or {}
        assert {each.name: stored[each.name] for each in MODEL.entities[0].fields[1:]} == {
            "day": datetime(2024, 2, 29, tzinfo=UTC),
            "clock": Timestamp(7, 1),
            "data": b"\x00\xff",
            "days": [datetime(2024, 2, 28, tzinfo=UTC)],
        }
        await shop.recorded()
        fields = "id day clock data"
        listed = 'orderBy: [{day: DESC}], where: {day: {gte: "2024-02-29"}}'
        shown = [
            {"id": "b", "day": "2024-03-01", "clock": None, "data": None},
            {"id": "a", "day": "2024-02-29", "clock": "7:1", "data": "AP8="},
        ]
        # A list of days is not compiled.
        for more in ("", " days"):
            found = (await ask(f"{{ scans({listed}) {{ nodes {{ {fields}{more} }} }} }}"))["scans"]
            assert [{key: each[key] for key in shown[0]} for each in found["nodes"]] == shown
        where = '{clock: {lt: "7:2"}, data: {in: ["AP8="]}, days: {has: "2024-02-28"}}'
        assert await ask(f"{{ scans(where: {where}) {{ totalCount }} }}") == {
            "scans": {"totalCount": 1}
        }
        change = 'patch: {day: "2024-01-01"}'
        await ask(f'mutation {{ updateScan(id: "a", {change}) {{ __typename }} }}')
        await shop.recorded()
        assert await ask('{ scan(id: "a") { diff(from: 1) { path before after } } }') == {
            "scan": {"diff": [{"path": "day", "before": "2024-02-29", "after": "2024-01-01"}]}
        }
        text = (
            "{ scansAggregate(groupBy: {day: {by: DAY}}) "
            "{ groups { key { day } count max { clock } } max { day } } }"
        )
        assert await ask(text) == {
            "scansAggregate": {
                "groups": [
                    {"key": {"day": "2024-01-01"}, "count": 1, "max": {"clock": "7:1"}},
                    {"key": {"day": "2024-03-01"}, "count": 1, "max": {"clock": None}},
                ],
                "max": {"day": "2024-03-01"},
            }
        }
