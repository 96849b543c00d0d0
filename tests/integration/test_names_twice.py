"""Documents with a repeated field name, as drivers in C, PHP and Perl write them.

MongoDB 6.0 crashes when a pipeline changes such a field, so none is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from tests.fuzzing.raw_documents import document_of, int32, text
from tests.support.eventually import wait_until
from tests.support.gateway import RunningGateway, running_gateway

Client = MongoClient[dict[str, Any]]

MODEL = """
type Maker @collection(name: "makers", version: null) { id: ID! name: Int }
type Thing @collection(name: "things") {
  id: ID!
  makerId: ID
  maker: Maker @reference(by: "makerId")
  name: Int @copy(of: "maker.name")
  n: Int
}
"""


@pytest.fixture
def gateway(
    mongo_uri: str, client: Client, database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    model = tmp_path_factory.mktemp("model") / "schema.graphql"
    model.write_text(MODEL)
    with running_gateway(mongo_uri, database, model) as running:
        yield running


def thing(key: str, *fields: tuple[bytes, int]) -> RawBSONDocument:
    """Return a thing of the maker m with these numbers, in this order."""
    elements = [b"\x10" + name + b"\0" + int32(number) for name, number in fields]
    head = [b"\x02_id\0" + text(key.encode()), b"\x02makerId\0" + text(b"m")]
    return RawBSONDocument(document_of([*head, *elements]))


def test_a_repeated_field_name_refuses_copies_and_mutations(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """MongoDB keeps running, and copies in other documents are updated."""
    client[database].makers.insert_one({"_id": "m", "name": 7})
    odd = thing("odd", (b"name", 1), (b"n", 1), (b"name", 2), (b"n", 2))
    client[database].command("insert", "things", documents=[odd, thing("whole", (b"n", 1))])
    things = client[database].things
    wait_until(lambda: things.find_one({"_id": "whole", "name": 7}), within_s=30)
    wait_until(lambda: any("copy refused" in each for each in gateway.lines), within_s=30)
    answer = gateway.query(
        """mutation {
          odd: updateThing(id: "odd", patch: {n: 5}) { __typename ... on WriteError { message } }
          whole: updateThing(id: "whole", patch: {n: 5}) { __typename }
        }"""
    )
    assert answer["whole"] == {"__typename": "ThingWritten"}
    assert answer["odd"]["__typename"] == "InvalidDocument"
    assert answer["odd"]["message"].startswith("the stored document: a field occurs twice")
    found = client[database].command("find", "things", filter={"_id": "odd"})
    assert found["cursor"]["firstBatch"] == [{"_id": "odd", "makerId": "m", "name": 2, "n": 2}]
