"""The shop that all servers serve: its documents, and the queries for it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from string import Template
from typing import Any

from pymongo.database import Database

from benchmarks.http_load import Request
from benchmarks.products import COLLECTION, SMALL_BYTES, product
from benchmarks.stage import Document

__all__ = ["MODEL", "PRODUCTS", "SHAPES", "SHELVES", "Shape", "guarded", "stock_up"]

PRODUCTS, SUPPLIERS, SHELVES = 10_000, 200, 100
MODEL = Path(__file__).parent / "shop.graphql"

_FIELDS = ("id", "version", "sku", "name", "price", "stock")
_MORE = ("tags", "updatedAt")
_ONE = Template("query ($$id: ID!) { product(id: $$id) { $fields } }")
_MANY = Template(
    "query ($$below: Int!) { products(first: $first, where: { stock: { lt: $$below } }) "
    "{ nodes { $fields } } }"
)
_RULE = """@access(
  read: ["reader"], rows: "{ or: [{ sku: { eq: $sub } }, { stock: { gte: $least } }] }")"""


@dataclass(frozen=True, slots=True)
class Shape:
    """A query that is sent again and again with other variables.

    Args:
        first: how many products; 0 for one by its id.
        supplier: whether the supplier's name is selected, too.
    """

    name: str
    first: int = 0
    fields: tuple[str, ...] = _FIELDS
    supplier: bool = False

    def drawn(self, count: int) -> list[int]:
        """Return random ids, or limits of `stock` that about three quarters of the products are
        below.
        """
        dice = random.Random(count)
        return [
            dice.randrange(500, 1000) if self.first else dice.randrange(PRODUCTS)
            for _ in range(count)
        ]

    def graphql(self, drawn: int, token: str = "") -> Request:
        selected = " ".join(self.fields) + " supplier { name }" * self.supplier
        variables: dict[str, Any] = {"below": drawn} if self.first else {"id": str(drawn)}
        query = (_MANY if self.first else _ONE).substitute(first=self.first, fields=selected)
        body = json.dumps({"query": query, "variables": variables})
        return Request("/graphql", body, token)

    def route(self, drawn: int) -> Request:
        """Return the request to a bare route."""
        if not self.first:
            return Request(f"/product/{drawn}")
        options = "&supplier=1" * self.supplier + "&more=1" * (_MORE[0] in self.fields)
        return Request(f"/products?first={self.first}&below={drawn}{options}")

    def expected(self, database: Database[Document], drawn: int) -> list[Document]:
        """Return the products in the form of a GraphQL response."""
        found = (
            database[COLLECTION].find({"stock": {"$lt": drawn}}).sort("_id", 1).limit(self.first)
            if self.first
            else database[COLLECTION].find({"_id": drawn})
        )
        return [self._shown(database, each) for each in found]

    def _shown(self, database: Database[Document], document: Document) -> Document:
        shown = plain(document)
        shown = {name: shown[name] for name in self.fields}
        if self.supplier:
            supplier = database["suppliers"].find_one({"_id": document["supplierId"]})
            assert supplier is not None
            shown["supplier"] = {"name": supplier["name"]}
        return shown


SHAPES = (
    Shape("product(id), 6 fields"),
    Shape("products(first: 20), by a filter", 20),
    Shape("products(first: 20), each with its supplier", 20, supplier=True),
    Shape("products(first: 200), 8 fields", 200, (*_FIELDS, *_MORE)),
)


def plain(document: Mapping[str, Any]) -> Document:
    """Return a stored document, or one of a bare route, with ids and times as in GraphQL."""
    shown = {**document, "id": str(document["_id"])}
    del shown["_id"]
    at = shown.get("updatedAt")
    if isinstance(at, str):
        at = datetime.fromisoformat(at)
    if at is not None:
        shown["updatedAt"] = f"{at.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    return shown


def stock_up(database: Database[Document]) -> None:
    """Write the documents."""
    dice = random.Random(1)
    database["suppliers"].insert_many(
        [{"_id": n, "version": 1, "name": f"Supplier {n:03d}"} for n in range(SUPPLIERS)]
    )
    database[COLLECTION].insert_many(
        product(n, size_bytes=SMALL_BYTES)
        | {"supplierId": dice.randrange(SUPPLIERS), "shelf": n % SHELVES}
        for n in range(PRODUCTS)
    )


def guarded() -> str:
    """Return the model for authenticated callers: with a role, and a row rule that hides
    nothing.
    """
    text = MODEL.read_text(encoding="utf-8")
    text = text.replace('(name: "products")', f'(name: "products") {_RULE}')
    return text.replace('(name: "suppliers")', '(name: "suppliers") @access(read: ["reader"])')
