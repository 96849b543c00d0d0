"""The examples of docs/reference/graphql.md, asked of real gateways in the page's order."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary, CodecOptions, Decimal128, ObjectId
from bson.binary import UuidRepresentation
from pymongo import MongoClient

from revstream.model.definition import EnumType, Scalar
from revstream.model.filter_operators import filter_operators
from tests.site.subscription import open_subscription
from tests.support import http
from tests.support.eventually import wait_until
from tests.support.gateway import ROOT, RunningGateway, running_gateway
from tests.support.page_examples import PageExample, assert_answer, page_examples
from tools.reference.filters import DOCUMENTS, FILTERS, MODEL, Filter

PAGE = ROOT / "docs" / "reference" / "graphql.md"
EXAMPLES = page_examples(PAGE)
Client = MongoClient[dict[str, Any]]
CODEC = CodecOptions[dict[str, Any]](tz_aware=True, uuid_representation=UuidRepresentation.STANDARD)
ACME, ZENITH = ObjectId(f"{1:024x}"), ObjectId(f"{2:024x}")
WRITER = {"by": "ada", "why": "new prices"}


def product(number: int, name: str, price: str, supplier: ObjectId) -> dict[str, Any]:
    return {
        "_id": f"p{number}",
        "sku": f"A-{number}",
        "name": name,
        "price": Decimal128(price),
        "stock": number * 10,
        "tags": ["home"],
        "supplierId": supplier,
        "added_at": datetime(2025, number, 1, tzinfo=UTC),
    }


@pytest.fixture(scope="module")
def shop(mongo_uri: str, client: Client) -> Iterator[RunningGateway]:
    """Run a gateway for the example model, with three products; the price of one has changed."""
    name = "graphql_examples"
    database = client.get_database(name, codec_options=CODEC)
    model = ROOT / "schema.graphql"
    with running_gateway(mongo_uri, name, model, "--author-header", "x-author") as running:
        database.suppliers.insert_many(
            [{"_id": ACME, "name": "Acme"}, {"_id": ZENITH, "name": "Zenith"}]
        )
        database.products.insert_many(
            [
                product(1, "Lamp", "30.00", ACME),
                product(2, "Shade", "12.50", ACME),
                product(3, "Mirror", "80.00", ZENITH),
            ]
        )
        # A copy is a write of its own: after all of them the numbers are known.
        names = {"supplierName": {"$exists": True}}
        wait_until(lambda: database.products.count_documents(names) == 3)
        change = {"id": Binary(b"change-1"), **WRITER}
        database.products.update_one(
            {"_id": "p1"}, {"$set": {"price": Decimal128("25.00"), "_change": change}}
        )
        wait_until(lambda: database["products.versions"].find_one({"doc": "p1", "v": 3}))
        wait_until(lambda: not {"waiting", "reading"} & _states(running))
        yield running
    client.drop_database(name)


def _states(gateway: RunningGateway) -> set[str]:
    return {each["state"] for each in gateway.query("{ streams { state } }")["streams"]}


@pytest.fixture(scope="module")
def lamps(
    mongo_uri: str, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """Run a gateway with the documents that the filters are asked of."""
    model = tmp_path_factory.mktemp("lamps") / "schema.graphql"
    model.write_text(MODEL)
    with running_gateway(mongo_uri, "filter_examples", model) as running:
        database = client.get_database("filter_examples", codec_options=CODEC)
        database.lamps.insert_many(DOCUMENTS)
        yield running
    client.drop_database("filter_examples")


def test_the_answers_are_those_of_the_page(shop: RunningGateway) -> None:
    """Each request is sent in the page's order; mutations change what later ones find."""
    assert len(EXAMPLES) > 30
    token = ""
    for example in EXAMPLES:
        try:
            answers = answers_of(shop, example, token)
            for actual, expected in zip(answers, example.answers, strict=True):
                assert_answer(actual, expected)
        except AssertionError as exc:
            raise AssertionError(f"{PAGE.name}:{example.line}: {exc}") from exc
        token = next(tokens_in(answers), token)


def answers_of(gateway: RunningGateway, example: PageExample, token: str) -> list[Any]:
    """Return the answer to a request, or as many events as the page shows.

    Args:
        token: value of variables that are `…` on the page.
    """
    variables = example.body.get("variables", {})
    body = {**example.body, "variables": {name: token for name in variables}}
    if example.body["query"].lstrip().startswith("subscription"):
        with open_subscription(gateway.address, body) as subscription:
            return [{"data": subscription.next()["data"]} for _ in example.answers]
    headers = {"x-author": "ada"}
    response = http.post(f"{gateway.address}/graphql", json=body, headers=headers, timeout=30)
    return [response.json()]


def tokens_in(value: Any) -> Iterator[str]:
    """Yield the resume tokens of an answer."""
    for name, each in value.items() if isinstance(value, dict) else enumerate(value):
        if name == "resumeToken":
            yield each
        elif isinstance(each, dict | list):
            yield from tokens_in(each)


@pytest.mark.parametrize("kind", FILTERS)
def test_a_filter_finds_what_the_page_says(lamps: RunningGateway, kind: str) -> None:
    """Each operator is asked of a real MongoDB, as of a moment too, by the gateway itself."""
    token = lamps.query("{ resumeToken }")["resumeToken"]
    for each in FILTERS[kind]:
        query = f"""
          query ($token: ResumeToken!) {{
            lamps(where: {each.where}) {{ nodes {{ id }} }}
            lampsAsOf(asOf: {{ token: $token }}, where: {each.where}) {{ nodes {{ documentId }} }}
          }}"""
        answer = lamps.query(query, token=token)
        now = "".join(sorted(node["id"] for node in answer["lamps"]["nodes"]))
        past = "".join(sorted(node["documentId"] for node in answer["lampsAsOf"]["nodes"]))
        assert (each, now, past) == (each, each.found, each.found)


def test_each_operator_has_an_example() -> None:
    """A new operator or scalar needs one."""

    def shown(kind: str) -> list[str]:
        return list(dict.fromkeys(each.operator for each in FILTERS[kind]))

    for scalar in Scalar:
        assert shown(scalar.value) == list(filter_operators(scalar, is_list=False))
    socket = EnumType(name="Socket", values=("E14",))
    assert shown("enum") == list(filter_operators(socket, is_list=False))
    assert shown("list") == list(filter_operators(Scalar.STRING, is_list=True))
    assert shown("embedded")[1:] == list(filter_operators(None, is_list=False))
    assert shown("list of embedded") == list(filter_operators(None, is_list=True))
    assert isinstance(FILTERS["ID"][0], Filter)
