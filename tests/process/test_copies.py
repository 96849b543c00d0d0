"""Copies by the real command: a killed process leaves the rest of many copies to the next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from tests.support.eventually import wait_until
from tests.support.gateway import running_gateway

MODEL = """
type Supplier @collection(name: "suppliers") { id: ID! name: String }
type Product @collection(name: "products") {
  id: Int!
  supplierId: ID
  supplier: Supplier @reference(by: "supplierId")
  supplierName: String @copy(of: "supplier.name")
}
"""
COPIES = 6000
GENEROUS_S = 120.0


@pytest.fixture
def shop(client: MongoClient[dict[str, Any]], database_name: str) -> Database[Any]:
    """Provide a supplier of many products, and one of a single product."""
    shop = client[database_name]
    shop.suppliers.insert_many([{"_id": "ann", "name": "Ann"}, {"_id": "bob", "name": "Bob"}])
    many = [{"_id": n, "supplierId": "ann"} for n in range(COPIES)]
    shop.products.insert_many([*many, {"_id": -1, "supplierId": "bob"}])
    return shop


def named(shop: Database[Any], name: str) -> int:
    return shop.products.count_documents({"supplierName": name})


def job(shop: Database[Any]) -> dict[str, Any]:
    return shop["revstream.copies"].find_one({}) or {}


@pytest.mark.timeout(300)
def test_a_killed_process_leaves_the_rest_of_many_copies_to_the_next(
    mongo_uri: str, shop: Database[Any], tmp_path: Path
) -> None:
    """The next process continues, sets each copy, and logs it.

    Changes of another supplier do not wait for the end.
    """
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    options = ("--lease-s", "5")
    with running_gateway(mongo_uri, shop.name, model, *options, command="record") as first:
        wait_until(lambda: named(shop, "Ann") == COPIES, within_s=GENEROUS_S)
        wait_until(lambda: not job(shop), within_s=GENEROUS_S)
        shop.suppliers.update_one({"_id": "ann"}, {"$set": {"name": "Anna"}})
        wait_until(lambda: job(shop).get("done", 0) >= 1000, within_s=GENEROUS_S)
        first.kill()
    left = job(shop)
    assert 1000 <= left["done"] < COPIES
    assert left["total"] == COPIES
    shop.suppliers.update_one({"_id": "bob"}, {"$set": {"name": "Bobby"}})
    with running_gateway(mongo_uri, shop.name, model, *options, command="record") as second:
        wait_until(lambda: named(shop, "Bobby") == 1, within_s=GENEROUS_S)
        wait_until(lambda: named(shop, "Anna") == COPIES, within_s=GENEROUS_S)
        wait_until(lambda: not job(shop), within_s=GENEROUS_S)
        wait_until(lambda: any("copied" in each for each in second.lines), within_s=30)
    # One of the processes sets each copy once: a correct one is not written again.
    writes = {each["version"] for each in shop.products.find({"supplierId": "ann"})}
    assert writes == {2}
