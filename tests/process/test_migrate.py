"""`revstream migrate` as a user runs it: during writes, at the switch, and afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.support.eventually import wait_until
from tests.support.gateway import run_command, running_gateway
from tests.support.layouts import program
from tests.support.repeating import repeat_in_background

Shop = Database[dict[str, Any]]
MODEL = """
type Product @collection(name: "products", history: CURRENT_FLAG, version: "v") {
  id: ID! name: String stock: Int
}
"""
AFTER = 'type Product @collection(name: "goods", plural: "products", version: "v") {'
HISTORY = """{
  productVersions(first: 1000) { nodes { documentId version resumeToken document { stock } } }
}"""
GENEROUS_S = 120.0


def test_a_collection_is_moved_while_it_is_in_use(
    mongo_uri: str, database: Shop, model: Path, tmp_path: Path
) -> None:
    """Each version and each document is in the new collection, and indexes and rules are kept."""
    where = ("--mongodb-uri", mongo_uri, "--database", database.name, "--schema", str(model))
    writer, written = program("CURRENT_FLAG", database), 0
    database.products.create_index("name", name="by_name")
    database.command("collMod", "products", validator={"name": {"$exists": True}})

    def write() -> None:
        nonlocal written
        writer.write(f"p{written % 7}", {"name": "Lamp", "stock": written})
        written += 1

    def recorded() -> int:
        return database["products.versions"].count_documents({})

    with running_gateway(mongo_uri, database.name, model) as gateway:
        with repeat_in_background(write):
            wait_until(lambda: recorded() > 30, within_s=GENEROUS_S)
            first = run_command("migrate", "Product", "--to", "goods", *where)
            assert first.returncode == 0, first.stderr
            assert "versions of products were copied to goods" in first.stdout
            assert "run it with --finish" in first.stdout
        finished = run_command("migrate", "Product", "--to", "goods", "--finish", *where, "--json")
        assert finished.returncode == 0, finished.stderr
        report = json.loads(finished.stdout)
        assert report["finished"] is True
        rules = report["moved"].pop("rules")
        assert report["moved"] == {"versions": written, "documents": 7, "findings": []}
        assert rules["carried"] == [
            'index by_name: {"name": 1}',
            'validator: {"name": {"$exists": true}}',
        ]
        assert all("belongs to the old layout" in each for each in rules["left"])
        assert report["undo"] == [
            'db.runCommand({"collMod": "products", "validator": {"name": {"$exists": true}}, '
            '"validationLevel": "strict", "validationAction": "error"})'
        ]
        before = gateway.query(HISTORY)["productVersions"]["nodes"]

    changed = tmp_path / "after.graphql"
    changed.write_text(MODEL.replace(MODEL.strip().splitlines()[0], AFTER))
    with running_gateway(mongo_uri, database.name, changed) as gateway:
        assert gateway.query(HISTORY)["productVersions"]["nodes"] == before
        last = max(each["version"] for each in before if each["documentId"] == "p0")
        database.goods.update_one({"_id": "p0"}, {"$set": {"stock": -1}, "$inc": {"v": 1}})

        def newest() -> tuple[int, int]:
            node = gateway.query(HISTORY)["productVersions"]["nodes"][0]
            return node["version"], node["document"]["stock"]

        wait_until(lambda: newest() == (last + 1, -1), within_s=GENEROUS_S)
    again = run_command("migrate", "Product", "--to", "goods", "--finish", *where)
    assert again.returncode == 1
    assert "goods: already recorded" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Nothing", "--to", "goods"), "TYPE: 'Nothing', expected an entity of the model: Product"),
        (("Product", "--to", "products"), "the model has this collection"),
        (("Product", "--to", "a$b"), "which MongoDB does not allow"),
        (("Product",), "Missing option '--to'"),
    ],
)
def test_a_migration_that_is_impossible_is_refused(
    mongo_uri: str, database: Shop, model: Path, arguments: tuple[str, ...], message: str
) -> None:
    """The exit code is 2, with the reason."""
    where = ("--mongodb-uri", mongo_uri, "--database", database.name, "--schema", str(model))
    refused = run_command("migrate", *arguments, *where)
    assert refused.returncode == 2
    assert message in refused.stderr


def test_without_a_recorder_a_migration_cannot_finish(
    mongo_uri: str, database: Shop, model: Path
) -> None:
    """The exit code is 1, with the reason."""
    where = ("--mongodb-uri", mongo_uri, "--database", database.name, "--schema", str(model))
    database.create_collection("products")
    refused = run_command("migrate", "Product", "--to", "goods", "--finish", *where)
    assert refused.returncode == 1
    assert "products: never recorded" in refused.stderr
    database.products.insert_one({"docId": "p1", "v": 1, "current": True})


def test_writes_are_not_refused_while_no_recorder_follows(
    mongo_uri: str, database: Shop, model: Path
) -> None:
    """The recorder has ended: later writes could not be copied."""
    where = ("--mongodb-uri", mongo_uri, "--database", database.name, "--schema", str(model))
    with running_gateway(mongo_uri, database.name, model):
        program("CURRENT_FLAG", database).write("p1", {"name": "Lamp"})
        wait_until(
            lambda: database["products.versions"].count_documents({}) == 1, within_s=GENEROUS_S
        )
    database.products.insert_one({"docId": "p2", "v": 1, "current": True, "name": "Cup"})
    refused = run_command("migrate", "Product", "--to", "goods", "--finish", *where)
    assert refused.returncode == 1
    assert "archive of products: recorded up to" in refused.stderr
    database.products.insert_one({"docId": "p3", "v": 1, "current": True, "name": "Pot"})
