"""The examples of docs/reference/errors.md, each provoked in a real gateway."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx2 as httpx
import jwt
import pytest
from bson import Timestamp
from cryptography.hazmat.primitives.asymmetric import rsa
from pymongo import MongoClient

from revstream.gql.observability.error_codes import CODES
from tests.support import http
from tests.support.eventually import wait_until
from tests.support.gateway import ROOT, RunningGateway, running_gateway
from tests.support.page_examples import assert_answer, headed_blocks, page_examples

PAGE = ROOT / "docs" / "reference" / "errors.md"
EXAMPLES = {each.heading: each for each in page_examples(PAGE)}
MODEL = """
type Product @collection(name: "products") {
  id: ID! name: String! stock: Int! attributes: JSON
}
type Supplier @collection(name: "suppliers") @access(read: ["staff"]) { id: ID! name: String! }
type Customer @collection(name: "customers", storage: DELTA) {
  id: ID! name: String! notes: String
}
type Order @collection(name: "orders") { id: ID! lines: JSON }
"""
Client = MongoClient[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Gateways:
    """A gateway that records, and one that does not and has little time; and their database."""

    recording: RunningGateway
    waiting: RunningGateway
    database: Any


@pytest.fixture(scope="module")
def gateways(
    mongo_uri: str, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateways]:
    folder = tmp_path_factory.mktemp("errors")
    model, keys = folder / "schema.graphql", folder / "keys.toml"
    model.write_text(MODEL)
    hashed = hashlib.sha256(b"key").hexdigest()
    keys.write_text(f'[[keys]]\nsha256 = "{hashed}"\nprincipal = "importer"\nroles = []\n')
    names = ("error_examples", "error_examples_waiting")
    authentication = ("--jwt-issuer", "https://login.example.org", "--jwt-audience", "shop")
    with (
        running_gateway(
            *(mongo_uri, names[0], model, "--anonymous"),
            *("--api-keys", str(keys), "--backlog-events", "5", "--archive-wait-s", "1"),
        ) as recording,
        running_gateway(
            *(mongo_uri, names[1], model, "--anonymous", "--no-record"),
            *("--operation-limit-s", "0.5", *authentication),
            # Nobody listens there.
            *("--jwt-keys", "http://127.0.0.1:1/jwks"),
        ) as waiting,
    ):
        database = client[names[0]]
        database.products.insert_many(
            [
                {"_id": "p1", "name": "Lamp", "stock": 4},
                {"_id": "p2", "name": "Shade", "stock": "many"},
            ]
        )
        # Recording of orders has begun just now.
        now = client.admin.command("ping")["operationTime"]
        wall = {"at": Timestamp(now.time, 0), "wall": now.as_datetime()}
        database["revstream.horizons"].update_one({"_id": "orders"}, {"$set": {"begun": wall}})
        yield Gateways(recording, waiting, database)
    for name in names:
        client.drop_database(name)


def test_each_code_has_an_example() -> None:
    """A new code needs one."""
    shown = {heading for heading, _ in headed_blocks(PAGE)}
    assert set(CODES) <= shown
    assert set(EXAMPLES) == set(CODES) - {"SLOW_CONSUMER"}


@pytest.mark.parametrize(
    ("code", "headers"),
    [
        ("BAD_USER_INPUT", {}),
        ("UNAUTHENTICATED", {"x-api-key": "another"}),
        ("FORBIDDEN", {}),
        ("LIMIT_EXCEEDED", {}),
        ("PERSISTED_QUERY_NOT_FOUND", {}),
        ("DOCUMENT_MISFIT", {}),
        ("RESUME_TOKEN_INVALID", {}),
        ("HISTORY_LOST", {}),
        ("ARCHIVE_BEHIND", {}),
    ],
)
def test_an_answer_is_that_of_the_page(
    gateways: Gateways, code: str, headers: Mapping[str, str]
) -> None:
    """The page has code, message and facts as a gateway sends them."""
    response = _post(gateways.recording, code, headers)
    assert response.status_code == (401 if code == "UNAUTHENTICATED" else 200)


def test_a_damaged_version_is_masked_as_on_the_page(gateways: Gateways) -> None:
    """The client reads the number of the incident, and nothing of the fault."""
    customers, versions = gateways.database.customers, gateways.database["customers.versions"]
    customers.insert_one({"_id": "c1", "name": "Mei", "notes": "x" * 2000})
    customers.update_one({"_id": "c1"}, {"$set": {"name": "Vera"}})
    wait_until(lambda: versions.find_one({"doc": "c1", "v": 2}))
    # The second is stored as a difference to the first.
    versions.delete_one({"doc": "c1", "v": 1})
    _post(gateways.recording, "INTERNAL")


def test_an_operation_that_waits_too_long_ends_as_on_the_page(gateways: Gateways) -> None:
    """The archive is not written, and the limit of an operation is shorter than its wait."""
    now = gateways.waiting.query("{ resumeToken }")["resumeToken"]
    _post(gateways.waiting, "TIMEOUT", now=now)


def test_keys_that_cannot_be_read_are_unavailable_as_on_the_page(gateways: Gateways) -> None:
    """The answer says when to come again."""
    key = rsa.generate_private_key(65537, 2048)
    claims = {"sub": "anna", "exp": int(time.time()) + 600}
    token = jwt.encode(claims, key, algorithm="RS256", headers={"kid": "k1"})
    response = _post(gateways.waiting, "UNAVAILABLE", {"authorization": f"Bearer {token}"})
    assert (response.status_code, response.headers["retry-after"]) == (503, "10")


def test_a_slow_consumer_reads_the_comment_of_the_page(gateways: Gateways) -> None:
    """A stream whose client does not read ends without `complete`, after its last token."""
    comment = next(each.text for heading, each in headed_blocks(PAGE) if heading == "SLOW_CONSUMER")
    host, _, port = gateways.recording.address.removeprefix("http://").partition(":")
    asked = {"query": "subscription { productChanges { product { attributes } } }"}
    body = json.dumps(asked).encode()
    head = (
        f"POST /graphql HTTP/1.1\r\nhost: {host}:{port}\r\naccept: text/event-stream\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=30) as reader:
        reader.sendall(head.encode() + body)
        received = reader.recv(2048)
        for index in range(60):
            changed = {"attributes": {"text": "x" * 400_000, "index": index}}
            gateways.database.products.update_one({"_id": "p1"}, {"$set": changed})
        while not received.endswith(b"0\r\n\r\n"):
            received = received[-2048:] + reader.recv(1 << 20)
    assert comment.strip() in received.decode(errors="replace")
    assert b"event: complete" not in received


def _post(
    gateway: RunningGateway, code: str, headers: Mapping[str, str] | None = None, **variables: str
) -> httpx.Response:
    """Send the example of a code, and compare the answer with the page's."""
    example = EXAMPLES[code]
    body = {**example.body, **({"variables": variables} if variables else {})}
    response = http.post(f"{gateway.address}/graphql", json=body, headers=headers, timeout=30)
    (expected,) = example.answers
    assert_answer(response.json(), expected)
    return response
