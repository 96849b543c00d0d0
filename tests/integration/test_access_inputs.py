"""Every argument of the generated API, from its type map: a field that the caller may not read is
refused wherever an argument names it, in filters, orders, groups and unique keys.

Each path through the input types that ends at such a field is one query. As control, a caller with
the role asks the same queries.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from graphql import (
    GraphQLField,
    get_named_type,
    get_nullable_type,
    is_enum_type,
    is_input_object_type,
    is_list_type,
    is_required_argument,
    is_required_input_field,
)
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import context_of
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import Principal
from tests.support.editing import Row, Shop, open_shop
from tests.support.exhaustive import scaled

pytestmark = pytest.mark.asyncio(loop_scope="module")

# The names of all hidden fields begin with z.
MODEL = read_model(
    """
    type Supplier @collection(name: "suppliers", version: null) {
      id: ID! name: String
      zsecret: String @unique @access(read: ["staff"])
      zpoint: Point @access(read: ["staff"])
      znumber: Int @access(read: ["staff"])
      zdate: DateTime @access(read: ["staff"])
      zjson: JSON @access(read: ["staff"])
      products: [Product!]! @referencedBy(field: "supplierId")
      zproducts: [Product!]! @referencedBy(field: "zid")
    }
    type Product @collection(name: "products", version: null) {
      id: ID! sku: String
      supplierId: ID supplier: Supplier @reference(by: "supplierId")
      supplierIds: [ID!] suppliers: [Supplier!]! @reference(by: "supplierIds")
      zid: ID @access(read: ["staff"]) zsupplier: Supplier @reference(by: "zid")
      zids: [ID!] @access(read: ["staff"]) zsuppliers: [Supplier!]! @reference(by: "zids")
      vaultId: ID zvault: Vault @reference(by: "vaultId")
      size: Size sizes: [Size!] zsize: Hidden ztags: [String!] @access(read: ["staff"])
      payment: Payment
    }
    type Size { v: Int zv: Int @access(read: ["staff"]) }
    type Hidden @access(read: ["staff"]) { v: Int }
    union Payment @discriminator(field: "kind") = Card | Cash
    type Card { n: Int zn: Int @access(read: ["staff"]) }
    type Cash { n: Int }
    type Vault @collection(name: "vaults", version: null) @access(read: ["staff"]) {
      id: ID! v: Int
    }
    """
)
ANN = Principal(name="ann", roles=frozenset())
STAFF = Principal(name="eve", roles=frozenset({"staff"}))
_DEEPEST = scaled(all=5, fast=3)
# Each leads to the same fields again.
_COMBINATORS = frozenset({"and", "or", "not", "every", "none", "avg", "max"})
_VALUES = {
    "Int": "1",
    "Float": "1.5",
    "Long": "1",
    "Decimal": "1",
    "Boolean": "true",
    "DateTime": '"2024-05-01T00:00:00Z"',
    "PointInput": "{longitude: 1, latitude: 1}",
    "TimeBucket": "{by: DAY}",
}
_GROUPS = {"products": "{sku: true}", "suppliers": "{name: true}", "vaults": "{v: true}"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(mongo_uri: str, client: MongoClient[Row]) -> AsyncIterator[Shop]:
    """Run a gateway over a document of each type."""
    name = f"inputs_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=MODEL) as shop:
        shop.database["suppliers"].insert_one({"_id": "s", "zsecret": "x"})
        shop.database["products"].insert_one({"_id": "p", "supplierId": "s", "zid": "s"})
        yield shop
    client.drop_database(name)


def _value(type_: Any) -> str:
    """Return any value of a type, with at least one condition."""
    bare = get_nullable_type(type_)
    if is_list_type(bare):
        return f"[{_value(bare.of_type)}]"
    if is_enum_type(bare):
        return str(next(iter(bare.values)))
    if not is_input_object_type(bare) or bare.name in _VALUES:
        return _VALUES.get(bare.name, '"x"')
    chosen = [name for name, each in bare.fields.items() if is_required_input_field(each)]
    chosen = chosen or [name for name in bare.fields if name not in (*_COMBINATORS, "path")][:1]
    return f"{{{', '.join(f'{name}: {_value(bare.fields[name].type)}' for name in chosen)}}}"


def _hidden(type_: Any, depth: int) -> Iterator[str]:
    """Yield values of a type that name a hidden field, one for each path to one."""
    bare = get_nullable_type(type_)
    if is_list_type(bare):
        yield from (f"[{each}]" for each in _hidden(bare.of_type, depth))
    elif is_input_object_type(bare) and depth:
        for name, each in bare.fields.items():
            if name in _COMBINATORS:
                continue
            inner = [_value(each.type)] if name[0] == "z" else _hidden(each.type, depth - 1)
            yield from (f"{{{name}: {value}}}" for value in inner)


def _queries(name: str, field: GraphQLField, token: str) -> Iterator[str]:
    """Yield the queries of a root field whose arguments name a hidden field."""
    is_aggregate = get_named_type(field.type).name.endswith("Aggregate")
    selection = "count" if is_aggregate else "__typename"
    moment = f'{{token: "{token}"}}'
    for argument, each in field.args.items():
        for value in _hidden(each.type, _DEEPEST):
            given = {argument: value}
            for other, wanted in field.args.items():
                if is_required_argument(wanted):
                    given.setdefault(other, moment if other == "asOf" else _value(wanted.type))
            if is_aggregate and argument in ("having", "orderBy"):
                given["groupBy"] = _GROUPS[name.removesuffix("Aggregate")]
            arguments = ", ".join(f"{other}: {text}" for other, text in given.items())
            yield f"{{ {name}({arguments}) {{ {selection} }} }}"


async def _codes(shop: Shop, caller: Principal, text: str) -> list[Any]:
    result = await shop.schema.execute(text, {}, context_of(shop.gateway, caller=caller))
    return [
        # It does not look at the field, which is not among those of the groups.
        "FORBIDDEN" if "expected a field of groupBy" in each.message else code
        for each in result.errors or ()
        for code in [(each.extensions or {}).get("code")]
    ]


async def test_hidden_fields_are_refused_in_every_argument(shop: Shop) -> None:
    """None of them can be compared, ordered, grouped, counted or looked up by."""
    token = (await shop.ask("{ resumeToken }"))["resumeToken"]
    query_type: Any = shop.schema._schema.query_type
    asked: dict[str, int] = {}
    for name, field in query_type.fields.items():
        for text in _queries(name, field, token):
            assert await _codes(shop, ANN, text) == ["FORBIDDEN"], text
            asked[name] = asked.get(name, 0) + 1
            if asked[name] % 10 == 1:
                assert await _codes(shop, STAFF, text) in ([], ["FORBIDDEN"]), text
    assert {"products", "productsAsOf", "productsAggregate", "supplier", "productStates"} <= set(
        asked
    )
    assert sum(asked.values()) > 100
