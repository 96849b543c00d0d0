"""Errors for invalid requests: a code, the thing, and both values; nothing else is affected."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from bson import Decimal128, ObjectId
from pymongo import MongoClient

from tests.support.beginning import begin_new
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.sockets import LEGACY, TRANSPORT, Protocol, open_socket

Client = MongoClient[dict[str, Any]]

MODEL = """
type Product @collection(name: "products") {
  id: ID!
  name: String!
  price: Decimal!
  stock: Int!
  weight: Float
  serial: Long
  tags: [String!]!
  size: Size
  parts: [Size]
  addedAt: DateTime
  attributes: JSON
  supplierId: ID
  supplier: Supplier @reference(by: "supplierId")
}
type Size { width: Float! height: Float! }
type Supplier @collection(name: "suppliers") {
  id: ObjectID!
  name: String!
  products: [Product!]! @referencedBy(field: "supplierId")
}
type Shelf @collection(name: "shelves") { id: Int! place: String! }
type Order @collection(name: "orders") { id: UUID! status: Status! }
enum Status { OPEN PAID }
"""
BAD, TOKEN = "BAD_USER_INPUT", "RESUME_TOKEN_INVALID"


@pytest.fixture(scope="module")
def gateway(
    mongo_uri: str, client: Client, database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """Run one gateway for all tests of the module; at the end it still runs, without internal
    errors.
    """
    model = tmp_path_factory.mktemp("model") / "schema.graphql"
    model.write_text(MODEL)
    begin_new(mongo_uri, database, model)
    supplier = ObjectId()
    client[database]["suppliers"].insert_one({"_id": supplier, "name": "Nord"})
    client[database]["products"].insert_many(
        {
            "_id": f"p{n}",
            "name": f"n{n}",
            "price": Decimal128("1.50"),
            "stock": n,
            "tags": [],
            "supplierId": supplier,
        }
        for n in range(5)
    )
    with running_gateway(mongo_uri, database, model, "--archive-wait-s", "0.2") as running:
        yield running
        assert running.process.poll() is None
        assert running.stop() == 0
    assert not [line for line in running.lines if "INTERNAL" in line or "Traceback" in line]


@pytest.fixture(scope="module")
def facts(gateway: RunningGateway) -> dict[str, str]:
    """Return the values of words in capitals: valid and invalid tokens and cursors of this
    database.
    """
    data = gateway.query(
        "{ resumeToken products(first: 1, orderBy: [{name: ASC}]) { pageInfo { endCursor } } }"
    )
    token, _, tag = data["resumeToken"].rpartition(".")
    other = "zzzzzz" if tag != "zzzzzz" else "yyyyyy"
    return {
        "NOW": f"{token}.{tag}",
        "FOREIGN": f"{token}.{other}",
        "CUT": f"{token[:10]}.{tag}",
        "FUTURE": f"FFFFFFFF00000001~.{tag}",
        "SNAPSHOT": f"{token}!.{tag}",
        "HERE": tag,
        "OTHER": other,
        "CURSOR": data["products"]["pageInfo"]["endCursor"],
    }


def filled(text: str, facts: dict[str, str]) -> str:
    for name, value in facts.items():
        text = text.replace(name, value)
    return text


def check(errors: list[dict[str, Any]], code: str, said: str, facts: dict[str, str]) -> None:
    """Check that the first error has the code, and its message all the words of `said`."""
    assert errors[0]["extensions"]["code"] == code, errors
    for word in filled(said, facts).split(" & "):
        assert word in errors[0]["message"], errors


def node(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def as_of(token: str) -> str:
    return f'{{ productsAsOf(asOf: {{token: "{token}"}}) {{ nodes {{ version }} }} }}'


def where(text: str) -> str:
    return f"{{ products(where: {text}) {{ nodes {{ id }} }} }}"


def one_version(arguments: str) -> str:
    return f'{{ productVersion(id: "p1"{arguments}) {{ version }} }}'


TOKENS = {
    "no token": (as_of("nonsense"), TOKEN, "'nonsense', expected one of this service"),
    "a token of nothing": (as_of(""), BAD, "ResumeToken: '', expected"),
    "half a token": (as_of("CUT"), TOKEN, "'CUT', expected one of this service"),
    "a very long token": (as_of("A" * 5000), TOKEN, "AAA... & expected one of this service"),
    "a token of another deployment": (as_of("FOREIGN"), TOKEN, "'OTHER' & 'HERE'"),
    "a token of the future": (as_of("FUTURE"), TOKEN, "2106-02-07 & maximum is the database's 20"),
    "a time of the future": (
        '{ productsAsOf(asOf: {time: "2424-01-01T00:00:00Z"}) { nodes { version } } }',
        "ARCHIVE_BEHIND",
        "2424-01-01T00:00:00.000Z & s after the database's 20",
    ),
    "a time beyond all years": (
        '{ productsAsOf(asOf: {time: "+212424-01-01T00:00:00Z"}) { nodes { version } } }',
        "ARCHIVE_BEHIND",
        "+212424-01-01T00:00:00.000Z & s after the database's 20",
    ),
    "a time and a token": (
        one_version(', asOf: {time: "2024-01-01T00:00:00Z", token: "NOW"}'),
        BAD,
        "TimePoint & exactly one",
    ),
    "neither time nor token": (one_version(", asOf: {}"), BAD, "TimePoint & exactly one"),
    "a version and a moment": (
        one_version(', version: 1, asOf: {token: "NOW"}'),
        BAD,
        "arguments version and asOf: got both, expected exactly one",
    ),
    "neither version nor moment": (
        one_version(""),
        BAD,
        "arguments version and asOf: got neither, expected exactly one",
    ),
    "no version": (one_version(", version: null"), BAD, "got neither"),
    "a version that is no Int": (one_version(", version: 3000000000"), BAD, "32-bit & 3000000000"),
    "a state of both": (
        '{ product(id: "p1") { state(version: 1, asOf: {token: "NOW"}) { version } } }',
        BAD,
        "got both",
    ),
    "a difference from a version that is none": (
        '{ product(id: "p1") { diff(from: 77) { path } } }',
        BAD,
        "version 77, expected one of Product p1",
    ),
}
PAGE_ARGUMENTS = {
    "negative": ("first: -1", "first: -1, minimum is 0"),
    "negative from the end": ("last: -1", "last: -1, minimum is 0"),
    "far too many": ("first: 10000000", "first: 10,000,000, maximum is 1,000"),
    "far too many from the end": ("last: 10000000", "last: 10,000,000, maximum is 1,000"),
    "from both ends": ("first: 1, last: 2", "first and last: 1 and 2, expected one"),
    "a number too large for Int": ("first: 99999999999", "Int & 99999999999"),
    "text": ('first: "a"', 'Int & "a"'),
    "a broken cursor": ('after: "!!"', "after: '!!', expected a cursor of this list"),
    "a cursor of nothing": ('before: ""', "before: '', expected a cursor of this list"),
    "another list's cursor": ('after: "CURSOR"', "after: 'CURSOR', expected a cursor of this list"),
}
LISTS = {
    "documents": "{ products(%s) { nodes { id } } }",
    "documents in another order": ("{ products(orderBy: [{name: DESC}], %s) { nodes { id } } }"),
    "the trail": "{ productVersions(%s) { nodes { version } } }",
    "history": '{ product(id: "p1") { history(%s) { nodes { version } } } }',
    "a document's own list": "{ suppliers { nodes { products(%s) { nodes { id } } } } }",
}
IDS = {
    "a word for an ObjectID": ('{ supplier(id: "p1") { id } }', "Supplier.id & 24 hex & 'p1'"),
    "a number for an ObjectID": ("{ supplier(id: 5) { id } }", "Supplier.id & 24 hex & '5'"),
    "a word for an Int": ('{ shelf(id: "top") { id } }', "Shelf.id & 32 bits & 'top'"),
    "a fraction for an Int": ('{ shelf(id: "1.5") { id } }', "Shelf.id & 32 bits & '1.5'"),
    "too large an Int": ('{ shelf(id: "99999999999") { id } }', "Shelf.id & '99999999999'"),
    "an Int written otherwise": ('{ shelf(id: "007") { id } }', "Shelf.id & '007'"),
    "a word for a UUID": ('{ order(id: "x") { id } }', "Order.id & 8-4-4-4-12 & 'x'"),
    "of a version": ('{ supplierVersion(id: "p1", version: 1) { id } }', "Supplier.id & 'p1'"),
    "in a filter": (
        '{ suppliers(where: {id: {eq: "p1"}}) { nodes { id } } }',
        "Supplier.id & 'p1'",
    ),
    "of a reference in a filter": (
        where('{supplierId: {eq: "p1"}}'),
        "Product.supplierId & 24 hex & 'p1'",
    ),
    "no node id": ('{ node(nodeId: "!!!") { nodeId } }', "nodeId: '!!!'"),
    "a node id of nothing": ('{ node(nodeId: "") { nodeId } }', "nodeId: ''"),
    "a node of no type": (f'{{ node(nodeId: "{node("Nope:1")}") {{ nodeId }} }}', "'Nope'"),
    "a node that has no id": (f'{{ node(nodeId: "{node("Size:1")}") {{ nodeId }} }}', "'Size'"),
    "a node's wrong id": (
        f'{{ node(nodeId: "{node("Supplier:p1")}") {{ nodeId }} }}',
        "Supplier.id & 'p1'",
    ),
    "a node version without number": (
        f'{{ node(nodeId: "{node("ProductVersion:p1")}") {{ nodeId }} }}',
        "nodeId: 'p1', expected <document id>@<version>",
    ),
}
VALUES = {
    "no operand": (where("{name: {gt: null}}"), "Product.name.gt & null"),
    "no filter": (where("{name: null}"), "Product.name & null, expected an object of operators"),
    "no list": (where("{stock: {in: null}}"), "Product.stock.in & null"),
    "nothing in a list": (where("{stock: {in: [null]}}"), "Int!"),
    "an operator that is none": (where("{name: {near: 1}}"), "StringFilter & 'near' & 'ne'"),
    "a field that is none": (where("{nmae: {eq: 1}}"), "ProductWhere & 'nmae' & 'name'"),
    "an Int too large": (where("{stock: {eq: 3000000000}}"), "Int & 3000000000"),
    "a Long too large": (where("{serial: {eq: 99999999999999999999}}"), "Long & 9999999999999999"),
    "a Long with letters": (where('{serial: {eq: "12a"}}'), "Long & '12a' & 64 bits"),
    "a Decimal in words": (where('{price: {eq: "cheap"}}'), "Decimal & 'cheap' & 34 digits"),
    "a Decimal too long": (
        where('{price: {eq: "1.23456789012345678901234567890123456789"}}'),
        "Decimal & '1.23456789012345678901234567890123456789' & 34 digits",
    ),
    "a day that is none": (
        where('{addedAt: {gt: "2024-02-30T00:00:00Z"}}'),
        "'2024-02-30T00:00:00Z'",
    ),
    "a day without time": (
        where('{addedAt: {gt: "2024-02-20"}}'),
        "'2024-02-20' & 2024-05-01T12:00",
    ),
    "an infinite Float": (where("{size: {width: {eq: 1e999}}}"), "Product.size.width.eq & inf"),
    "an enum's value that is none": (
        "{ orders(where: {status: {eq: LOST}}) { nodes { id } } }",
        "'LOST' & 'Status'",
    ),
    "no order": ("{ products(orderBy: [{}]) { nodes { id } } }", "ProductOrder & exactly one"),
    "an order twice": (
        "{ products(orderBy: [{name: ASC}, {name: DESC}]) { nodes { id } } }",
        "orderBy: name twice",
    ),
    "two orders in one": (
        "{ products(orderBy: [{name: ASC, stock: ASC}]) { nodes { id } } }",
        "ProductOrder & exactly one",
    ),
}
VARIABLES: dict[str, tuple[dict[str, Any], str]] = {
    "Decimal": ({"price": {"eq": {"a": 1}}}, "$w & .price.eq & {'a': 1} & Decimal"),
    "DateTime": ({"addedAt": {"gt": 12345}}, "$w & .addedAt.gt & 12345 & DateTime"),
    "Int": ({"stock": {"gt": 2**40}}, "$w & .stock.gt & 1099511627776"),
    "fraction": ({"stock": {"gt": 1.5}}, "$w & .stock.gt & 1.5"),
    "Long": ({"serial": {"gt": "9223372036854775808"}}, "$w & .serial.gt & '9223372036854775808'"),
    "enum": ({"nope": {"eq": "x"}}, "$w & nope & ProductWhere"),
}
DOCUMENTS = {
    "half a document": ("{", "Syntax Error"),
    "a field that is none": ("{ nope }", "'nope' & 'Query'"),
    "an argument left out": ("{ product { id } }", "id & ID! & required"),
    "a mutation that is none": ("mutation { x }", "Mutation"),
}
SUBSCRIPTIONS = {
    "no token": ('after: "nonsense"', TOKEN, "'nonsense', expected one of this service"),
    "a token of another deployment": ('after: "FOREIGN"', TOKEN, "'OTHER' & 'HERE'"),
    "a token of the future": ('after: "FUTURE"', TOKEN, "2106-02-07 & 20"),
    "a token of an unfinished snapshot": ('after: "SNAPSHOT"', TOKEN, "snapshot"),
    "a token and a time": (
        'after: "NOW", since: "2024-01-01T00:00:00Z"',
        BAD,
        "after and since, expected at most one",
    ),
    "a time and a snapshot": (
        'since: "2024-01-01T00:00:00Z", snapshot: true',
        BAD,
        "since and snapshot, expected at most one",
    ),
    "a cursor of nobody": ('cursor: "mine"', "UNAUTHENTICATED", "the caller is anonymous"),
    "a time to come": (
        'since: "2424-01-01T00:00:00Z"',
        BAD,
        "2424-01-01T00:00:00.000Z & s after the database's 20",
    ),
    "a year beyond": ('since: "+012345-01-01T00:00:00Z"', BAD, "since & +012345-01-01"),
    "an operation that is none": ("operations: [NOPE]", BAD, "'NOPE' & 'Operation'"),
    "no filter": (
        "where: {name: null}",
        BAD,
        "Product.name & null, expected an object of operators",
    ),
    "an argument that is none": ("first: 1", BAD, "first & productChanges"),
}


def every(*tables: dict[str, tuple[str, str, str]]) -> list[Any]:
    return [pytest.param(*row, id=name) for table in tables for name, row in table.items()]


@pytest.mark.parametrize(
    ("query", "code", "said"),
    [
        *every(TOKENS),
        *every({name: (query, BAD, said) for name, (query, said) in IDS.items()}),
        *every({name: (query, BAD, said) for name, (query, said) in VALUES.items()}),
        *every({name: (query, BAD, said) for name, (query, said) in DOCUMENTS.items()}),
    ],
)
def test_the_error_of_a_bad_request_names_the_fault(
    gateway: RunningGateway, facts: dict[str, str], query: str, code: str, said: str
) -> None:
    """The error has the code, the thing, its value and the expected value."""
    check(gateway.post(filled(query, facts))["errors"], code, said, facts)


@pytest.mark.parametrize(("arguments", "said"), PAGE_ARGUMENTS.values(), ids=PAGE_ARGUMENTS)
@pytest.mark.parametrize("query", LISTS.values(), ids=LISTS)
def test_an_impossible_page_is_refused(
    gateway: RunningGateway, facts: dict[str, str], query: str, arguments: str, said: str
) -> None:
    """Pages of documents, of versions, and below a document are checked alike."""
    check(gateway.post(filled(query % arguments, facts))["errors"], BAD, said, facts)


@pytest.mark.parametrize(("given", "said"), VARIABLES.values(), ids=VARIABLES)
def test_a_bad_variable_is_named_with_the_path_of_its_value(
    gateway: RunningGateway, given: dict[str, Any], said: str
) -> None:
    """The error has the variable, the path into it, the value and the type."""
    query = "query($w: ProductWhere) { products(where: $w) { nodes { id } } }"
    check(gateway.post(query, w=given)["errors"], BAD, said, {})


@pytest.mark.parametrize("protocol", [TRANSPORT, LEGACY])
async def test_a_bad_subscription_is_refused_and_its_connection_stays_open(
    gateway: RunningGateway,
    client: Client,
    database: str,
    facts: dict[str, str],
    protocol: Protocol,
) -> None:
    """Bad subscriptions, one after the other, do not affect others on the same connection."""
    async with open_socket(gateway.address, protocol) as socket:
        await socket.start("live", "subscription { supplierChanges { kind supplier { name } } }")
        assert (await socket.receive())["id"] == "live"
        for arguments, code, said in SUBSCRIPTIONS.values():
            text = f"subscription {{ productChanges({arguments}) {{ kind }} }}"
            check(await socket.errors(filled(text, facts)), code, said, facts)
        for query, said in DOCUMENTS.values():
            check(await socket.errors(query), BAD, said, facts)
        wrong_id = 'subscription { supplierChanges(id: "p1") { kind } }'
        check(await socket.errors(wrong_id), BAD, "Supplier.id & 'p1'", facts)
        assert await socket.data('{ product(id: "p1") { name } }') == {"product": {"name": "n1"}}
        client[database]["suppliers"].insert_one({"name": protocol})
        change = (await socket.receive())["payload"]["data"]["supplierChanges"]
        assert change == {"kind": "CHANGE", "supplier": {"name": protocol}}


@pytest.mark.parametrize(
    "query",
    [
        where("{}"),
        where("null"),
        where("{name: {}}"),
        where("{size: {}}"),
        where("{and: []}"),
        where("{and: null}"),
        where("{name: {eq: null}}").replace("eq", "ne"),
    ],
)
def test_an_empty_filter_matches_everything(gateway: RunningGateway, query: str) -> None:
    """Clients build filters from optional inputs; an empty one is valid."""
    assert len(gateway.query(query)["products"]["nodes"]) == 5


def test_a_missing_document_is_null_without_an_error(gateway: RunningGateway) -> None:
    """An unknown id, an unknown version and a deleted node are null."""
    data = gateway.query(
        f"""{{
          product(id: "none") {{ id }}
          shelf(id: "-5") {{ id }}
          productVersion(id: "p1", version: -1) {{ id }}
          far: productVersion(id: "p1", version: 2147483647) {{ id }}
          node(nodeId: "{node("Product:none")}") {{ nodeId }}
          early: productVersion(id: "p1", asOf: {{time: "0001-01-01T00:00:00Z"}}) {{ id }}
        }}"""
    )
    assert set(data.values()) == {None}
