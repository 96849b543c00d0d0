"""Fixtures: a model with every kind of field, its schema, and queries over memory."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import strawberry
from strawberry.types import ExecutionResult

from revstream.gql.schema import build_schema
from revstream.model.compiler.loader import read_model
from revstream.model.definition import Model
from tests.support.reads import Memory

SHOP = """
"A thing for sale."
type Product @collection(name: "products") {
  id: ID!
  "What it is ordered by."
  sku: String! @unique
  name: String!
  price: Decimal!
  stock: Int!
  sold: Long
  rating: Float
  listed: Boolean
  code: UUID
  colour: Colour
  tags: [String!]!
  sizes: [Int]
  colours: [Colour!]
  dimensions: Dimensions
  packages: [Package!]
  parcel: Package
  origin: Origin!
  supplierId: ID
  supplier: Supplier @reference(by: "supplierId")
  makerId: ID!
  maker: Supplier! @reference(by: "makerId")
  attributes: JSON
  addedAt: DateTime! @stored(as: "added_at")
}
"What can be seen from afar."
enum Colour { "Like a rose." RED GREEN }
type Dimensions { width: Float! height: Float! unit: Unit }
type Unit { name: String! factor: Float @stored(as: "f") }
type Package { weight: Int! dimensions: Dimensions inner: [Package!] outer: Package }
type Origin { country: String! cityId: ID city: City @reference(by: "cityId") }
type Supplier @collection(name: "suppliers") {
  id: ObjectID!
  name: String!
  country: String
  products(first: Int): [Product!]! @referencedBy(field: "supplierId")
}
"A place; its documents carry no version."
type City @collection(name: "cities", plural: "towns", version: null) {
  id: Int!
  name: String!
}
type Reading @collection(name: "readings") { id: String! sequence: Long! @fence value: Float! }
""".replace("products(first: Int)", "products")

Ask = Callable[..., Coroutine[Any, Any, ExecutionResult]]


@pytest.fixture(scope="session")
def model() -> Model:
    return read_model(SHOP)


@pytest.fixture(scope="session")
def schema(model: Model) -> strawberry.Schema:
    return build_schema(model)


@pytest.fixture
def memory() -> Memory:
    return Memory()


@pytest.fixture
def ask(schema: strawberry.Schema, memory: Memory) -> Ask:
    """Return a function that executes a query over the memory."""

    async def execute(query: str, **variables: Any) -> ExecutionResult:
        return await schema.execute(query, variables, memory.context())

    return execute
