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
from urllib.parse import quote

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
_REFERRING = Template(
    "query ($$below: String!) { products(first: $first, "
    "where: { supplier: { name: { lt: $$below } } }) { nodes { $fields } } }"
)
_RULE = """@access(
  read: ["reader"], rows: "{ or: [{ sku: { eq: $sub } }, { stock: { gte: $least } }] }")"""


@dataclass(frozen=True, slots=True)
class Shape:
    """A query that is sent again and again with other variables.

    Args:
        first: how many products; 0 for one by its id.
        supplier: whether the supplier's name is selected, too.
        by_supplier: whether the supplier's name filters, not `stock`.
    """

    name: str
    first: int = 0
    fields: tuple[str, ...] = _FIELDS
    supplier: bool = False
    by_supplier: bool = False

    def drawn(self, count: int) -> list[int]:
        """Return random ids, or limits that about three quarters of the products are below: of
        `stock`, or of the suppliers' numbers.
        """
        dice = random.Random(count)
        most = SUPPLIERS if self.by_supplier else 1000
        return [
            dice.randrange(most // 2, most) if self.first else dice.randrange(PRODUCTS)
            for _ in range(count)
        ]

    def graphql(self, drawn: int, token: str = "") -> Request:
        selected = " ".join(self.fields) + " supplier { name }" * self.supplier
        variables: dict[str, Any]
        if self.by_supplier:
            query, variables = _REFERRING, {"below": _supplier(drawn)}
        elif self.first:
            query, variables = _MANY, {"below": drawn}
        else:
            query, variables = _ONE, {"id": str(drawn)}
        text = query.substitute(first=self.first, fields=selected)
        body = json.dumps({"query": text, "variables": variables})
        return Request("/graphql", body, token)

    def route(self, drawn: int) -> Request:
        """Return the request to a bare route."""
        if not self.first:
            return Request(f"/product/{drawn}")
        if self.by_supplier:
            return Request(f"/products?first={self.first}&referring={quote(_supplier(drawn))}")
        options = "&supplier=1" * self.supplier + "&more=1" * (_MORE[0] in self.fields)
        return Request(f"/products?first={self.first}&below={drawn}{options}")

    def expected(self, database: Database[Document], drawn: int) -> list[Document]:
        """Return the products in the form of a GraphQL response."""
        if self.by_supplier:
            # Suppliers are named after their ids.
            where: Document = {"supplierId": {"$lt": drawn}}
        else:
            where = {"stock": {"$lt": drawn}} if self.first else {"_id": drawn}
        found = database[COLLECTION].find(where).sort("_id", 1).limit(self.first)
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
    Shape("products(first: 20), by a supplier's name", 20, by_supplier=True),
    Shape("products(first: 200), 8 fields", 200, (*_FIELDS, *_MORE)),
)


def _supplier(number: int) -> str:
    return f"Supplier {number:03d}"


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
        [{"_id": n, "version": 1, "name": _supplier(n)} for n in range(SUPPLIERS)]
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
