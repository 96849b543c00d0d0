"""Copies of documents in self-versioned layouts follow the writes of another program."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from revstream.model.compiler.loader import read_model
from tests.support.editing import open_shop
from tests.support.eventually import eventually
from tests.support.layouts import CLASSIC, program

MODEL = """
type Supplier @collection(name: "suppliers", history: HISTORY, version: "v") {
  id: ID!
  name: String
}
type Product @collection(name: "products") {
  id: ID!
  supplierId: ID
  supplier: Supplier @reference(by: "supplierId")
  supplierName: String @copy(of: "supplier.name")
}
"""


@pytest.mark.parametrize("history", CLASSIC)
async def test_a_copy_follows_a_source_in_a_classic_layout(
    history: str, mongo_uri: str, client: MongoClient[dict[str, Any]]
) -> None:
    """The source is inserted before and after its copies, changed, deleted, and inserted again."""
    name = f"copies_of_{uuid4().hex[:8]}"
    model = read_model(MODEL.replace("HISTORY", history))
    products = client[name]["products"]
    others = program(history, client[name], "suppliers")

    async def has(wanted: Any, count: int = 2) -> None:
        await eventually(lambda: products.count_documents({"supplierName": wanted}) == count)

    async with open_shop(client, mongo_uri, name, model=model):
        products.insert_one({"_id": "early", "supplierId": "ann"})
        # It does not exist yet.
        await eventually(lambda: products.find_one({"supplierName": {"$exists": True}}))
        await has(None, count=1)
        others.write("ann", {"name": "Ann"})
        products.insert_one({"_id": "late", "supplierId": "ann"})
        await has("Ann")
        others.write("ann", {"name": "Anna"})
        await has("Anna")
        others.write("ann", None)
        await has(None)
        others.write("ann", {"name": "Hannah"})
        await has("Hannah")
    client.drop_database(name)
