"""Numbers beyond JavaScript's integers or 64 bits: always texts, never rounded."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from bson import Binary, Decimal128, Int64
from pymongo import MongoClient

from tests.support import http
from tests.support.gateway import RunningGateway
from tests.support.sockets import open_socket

Client = MongoClient[dict[str, Any]]

MODEL = """
type Thing @collection(name: "things") {
  id: ID!
  serial: Long
  price: Decimal
  weight: Float
  data: JSON
}
"""
TOO_LARGE = (str(2**63), str(-(2**63) - 1), "99999999999999999999999", "-1" + "0" * 40)


def test_a_value_has_one_form_everywhere(
    served: RunningGateway, client: Client, database: str
) -> None:
    """Fields, JSON, diffs and blame have the same form, for current documents and history."""
    large, moment, uuid = Int64(2**53 + 1), datetime(2024, 5, 1, tzinfo=UTC), UUID(int=7)
    data = {
        "n": large,
        "below": Int64(-(2**53)),
        "safe": Int64(2**53 - 1),
        "list": [large],
        "price": Decimal128("1.50"),
        "at": moment,
        "uuid": Binary.from_uuid(uuid),
        "bytes": b"abc",
    }
    shown = {
        "n": "9007199254740993",
        "below": "-9007199254740992",
        "safe": 9007199254740991,
        "list": ["9007199254740993"],
        "price": "1.50",
        "at": "2024-05-01T00:00:00.000Z",
        "uuid": str(uuid),
        "bytes": "YWJj",
    }
    things = client[database]["things"]
    things.insert_one({"_id": "a", "serial": 1, "price": Decimal128("1")})
    things.update_one({"_id": "a"}, {"$set": {"serial": large, "data": data}})
    now = {"token": served.query("{ resumeToken }")["resumeToken"]}
    found = served.query(
        """query($now: TimePoint!) {
          thingVersion(id: "a", asOf: $now) {
            document { serial data } diff { path after }
          }
          thing(id: "a") { serial data diff(from: 1) { path after } blame { path value } }
        }""",
        now=now,
    )
    for document in (found["thing"], found["thingVersion"]["document"]):
        assert (document["serial"], document["data"]) == (shown["n"], shown)
    for changes in (found["thing"]["diff"], found["thingVersion"]["diff"]):
        by_path = {each["path"]: each["after"] for each in changes}
        assert (by_path["serial"], by_path["data"]) == (shown["n"], shown)
    values = {each["path"]: each["value"] for each in found["thing"]["blame"]}
    assert values["serial"] == shown["n"]
    assert values["data"] == shown


@pytest.mark.parametrize("number", TOO_LARGE)
@pytest.mark.parametrize("field", ["data", "serial"])
def test_an_integer_beyond_64_bits_is_refused(
    served: RunningGateway, client: Client, database: str, field: str, number: str
) -> None:
    """Variables and literals are refused, and nothing is written."""
    with_variable = (
        'mutation($d: ThingInput!) { createThing(id: "x", document: $d) { __typename } }'
    )
    literal = f'mutation {{ createThing(id: "x", document: {{ {field}: {number} }}) '
    for query, variables in (
        (with_variable, f'{{"d": {{"{field}": {number}}}}}'),
        (literal + "{ __typename } }", "{}"),
    ):
        # JSON written by hand: a serializer might round the numbers itself.
        body = f'{{"query": {json.dumps(query)}, "variables": {variables}}}'
        answer = http.post(
            f"{served.address}/graphql",
            content=body,
            headers={"content-type": "application/json"},
        ).json()
        assert answer["errors"][0]["extensions"]["code"] == "BAD_USER_INPUT", answer
        assert "e+" not in answer["errors"][0]["message"]
    assert client[database]["things"].find_one({"_id": "x"}) is None


def test_an_integer_beyond_64_bits_is_refused_in_a_url(served: RunningGateway) -> None:
    """The variables of a GET request are JSON, too."""
    query = quote("query($n: Long) { things(where: {serial: {eq: $n}}) { totalCount } }")
    variables = quote('{"n": 99999999999999999999999}')
    answer = http.get(
        f"{served.address}/graphql?query={query}&variables={variables}",
        headers={"accept": "application/json"},
    ).json()
    assert "99999999999999999999999" in answer["errors"][0]["message"]


async def test_an_integer_beyond_64_bits_is_refused_on_a_socket(served: RunningGateway) -> None:
    """WebSocket messages follow the same rule."""
    async with open_socket(served.address) as socket:
        await socket.start(
            "1",
            "query($n: Long) { things(where: {serial: {eq: $n}}) { totalCount } }",
            n=99999999999999999999999,
        )
        answer = await socket.receive()
    assert "99999999999999999999999" in str(answer["payload"])


def test_a_decimal_keeps_all_digits_of_a_number(served: RunningGateway) -> None:
    """Up to 34 digits are kept, also if the request has a JSON number."""
    number = 1234567890123456789012345678901234
    data = served.query(
        "mutation($p: Decimal) { createThing(document: {price: $p}) {"
        " ... on ThingWritten { thing { price } } } }",
        p=number,
    )
    assert data["createThing"]["thing"]["price"] == str(number)
