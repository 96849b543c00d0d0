"""Documents that Beanie writes fit the model that `revstream init` makes from its classes."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from pymongo import AsyncMongoClient

from revstream.gql.cli.init import import_schema
from revstream.model.compiler.loader import read_model
from revstream.resolvers.admin.data_sample import examine_data
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.client import MongoOptions
from tests.support.gateway import ROOT

pytestmark = pytest.mark.skipif(sys.version_info >= (3, 14), reason="there is no Beanie for it yet")

NOW = datetime(2026, 1, 1, 1, tzinfo=UTC)


async def write_documents(uri: str, database: str) -> None:
    """Write documents of each class, with all fields and with those that are required."""
    import beanie

    from tests.support import beanie_models as models

    async with AsyncMongoClient[dict[str, Any]](uri) as client:
        classes = [models.Maker, models.Thing, models.Event, models.Click, models.Job]
        await beanie.init_beanie(client[database], document_models=classes)
        maker = await models.Maker(name="m", code="c", created=NOW).insert()
        home = models.Address(street="s", inner=models.Address(street="t"))
        ids = [uuid4(), uuid4()]
        needed = {
            "maker": maker,
            "price": Decimal("1.50"),
            "day": date(2026, 1, 2),
            "number": 2**40,
        }
        await models.Thing(_id=ids[0], created=NOW, **needed).insert()
        await models.Thing(
            _id=ids[1],
            created=NOW,
            **needed,
            makers=[maker],
            first_maker_id=maker.id,
            other_ids=[maker.id],
            lasts=timedelta(seconds=1.5),
            kind=models.Kind.IN_USE,
            raw=b"x",
            counts={"a": 1},
            mixed="text",
            address=home,
            addresses=[home],
            tags={"a", "b"},
            secret="x",
        ).insert()
        await models.Event(at=NOW).insert()
        await models.Click(at=NOW, url="/").insert()
        await models.Job(thing_id=ids[0], payload={"a": [1]}).insert()


async def test_the_model_of_beanies_classes_fits_its_documents(
    mongo_uri: str, database_name: str
) -> None:
    """Each type is stored as the model says; references are those by ids."""
    text = import_schema(str(ROOT / "tests/support/beanie_models.py"), None, [])
    model = read_model(text)
    await write_documents(mongo_uri, database_name)
    async with Mongo.connect(mongo_uri, database_name, options=MongoOptions()) as mongo:
        findings = await examine_data(mongo, model)
    assert [each for each in findings if each.level != "ok"] == [], text
    assert {each.collection for each in model.entities} == {"makers", "things", "events", "Job"}
    assert [(each.name, each.target) for each in model.entity("Thing").references] == [
        ("firstMaker", "Maker")
    ]
    assert [(each.name, each.target) for each in model.entity("Job").references] == [
        ("thing", "Thing")
    ]
    for line in (
        "  name: String! @unique\n  code: String! @unique\n",
        '# not translated: "maker" is a Link, which Beanie stores as a DBRef',
        "  id: UUID!",
        "  otherIds: [ObjectID!]",
        "  price: Decimal!",
        "  day: Date!",
        "  lasts: Float",
        '  IN_USE @stored(as: "in-use")',
        "  number: Long!",
        '  otherName: Boolean',
        "  inner: JSON",
        "# documents of the classes Event, Click",
        "  url: String\n",
    ):  # fmt: skip
        assert line in text
    assert "secret" not in text
    assert "Timestamped" not in text
