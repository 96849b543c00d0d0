"""The fields of docs/reference/archive-format.md are those of documents of a real run."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from bson import Binary, Int64, ObjectId, Timestamp
from pymongo import MongoClient

from tests.support import http
from tests.support.eventually import wait_until
from tests.support.gateway import ROOT, running_gateway

PAGE = (ROOT / "docs" / "reference" / "archive-format.md").read_text(encoding="utf-8")
DATABASE = "archive_format"
Client = MongoClient[dict[str, Any]]
TYPES: Mapping[type, str] = {
    str: "string",
    bool: "bool",
    int: "int",
    Int64: "long",
    float: "double",
    datetime: "date",
    Timestamp: "timestamp",
    ObjectId: "objectId",
    bytes: "binData",
    Binary: "binData",
    dict: "object",
    list: "array",
    type(None): "null",
}


class _Receiver(BaseHTTPRequestHandler):
    """A receiver of webhooks that refuses one document."""

    def do_POST(self) -> None:
        event = json.loads(self.rfile.read(int(self.headers["content-length"])))
        # The event of versions that `keep` deleted before their delivery has no subject.
        self.send_response(422 if event.get("subject") == "p1" else 204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def _tables() -> dict[str, dict[str, tuple[str, bool]]]:
    """Return, by heading, each field with its type, and whether it is in every document."""
    found: dict[str, dict[str, tuple[str, bool]]] = {}
    for heading, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S):
        rows = re.findall(r"^\| (\*{0,2})`([\w.]+)`\*{0,2} \| ([^|]+?) \|", text, re.M)
        found[heading] = {name: (kind, bool(bold)) for bold, name, kind in rows}
    return found


TABLES = _tables()


@pytest.fixture(scope="module")
def database(
    mongo_uri: str, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """Return the database of a gateway in which everything has happened once."""
    database = client[DATABASE]
    with ThreadingHTTPServer(("127.0.0.1", 0), _Receiver) as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        model = tmp_path_factory.mktemp("archive") / "schema.graphql"
        model.write_text(_model(receiver.server_port))
        author = ("--author-header", "x-author", "--retention-every-s", "0.5")
        with running_gateway(mongo_uri, DATABASE, model, *author) as gateway:
            _write(database, gateway.address)
            versions = database["products.versions"]
            wait_until(lambda: versions.find_one({"cut": {"$exists": True}}))
            wait_until(lambda: versions.find_one({"packed": True}))
            wait_until(lambda: database["revstream.deliveries"].find_one())
            wait_until(lambda: database["readings.versions"].find_one({"op": "DELETE"}))
            yield database
        receiver.shutdown()
    client.drop_database(DATABASE)


def _model(port: int) -> str:
    sink = f'@sink(url: "http://127.0.0.1:{port}/changes")'
    return f"""
        type Product
          @collection(name: "products", storage: DELTA, keep: "5 versions") {sink} {{
          id: ID! name: String! text: String price: Int supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: String @copy(of: "supplier.name")
        }}
        type Supplier @collection(name: "suppliers") {{ id: ID! name: String! }}
        type Reading @collection(name: "readings") {{ id: ID! sequence: Long! @fence }}
        type Note @collection(name: "notes", history: EMBEDDED) {{ id: ID! text: String! }}
    """


def _write(database: Any, address: str) -> None:
    database.suppliers.insert_one({"_id": "s1", "name": "Acme"})
    database.notes.insert_one({"_id": "n1", "current": {"text": "a", "version": 1}, "prev": []})

    def post(query: str, **headers: str) -> Any:
        trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        headers = {"x-author": "ada", "traceparent": trace, **headers}
        body = {"query": query}
        answer = http.post(f"{address}/graphql", json=body, headers=headers, timeout=30).json()
        assert "errors" not in answer, answer
        return answer["data"]

    def mutate(field: str, **headers: str) -> None:
        post(f"mutation {{ {field} {{ __typename }} }}", **headers)

    document = f'{{ name: "Lamp", text: "{"x" * 500}", price: 1, supplierId: "s1" }}'
    mutate(
        f'createProduct(id: "p1", document: {document}, comment: "new")', **{"idempotency-key": "k"}
    )
    mutate('createProduct(id: "p2", document: { name: "Shade" })')
    for price in range(4):
        mutate(f'updateProduct(id: "p1", patch: {{ price: {price} }}, comment: "sale")')
    mutate('restoreProduct(id: "p1", version: 5)')
    mutate('proposeProduct(id: "p1", patch: { price: 9 }, comment: "dearer")')
    mutate('publishProduct(id: "p1", draft: 1, comment: "yes")')
    mutate('proposeProduct(id: "p1", patch: { price: 10 })')
    mutate('rejectProduct(id: "p1", draft: 2, comment: "no")')
    mutate('commentOnProduct(id: "p1", draft: 1, text: "Why?")')
    mutate('applyReading(id: "r1", document: { sequence: 5 })')
    mutate('deleteReading(id: "r1", comment: "broken")')
    token = post("{ resumeToken }")["resumeToken"]
    post(f'mutation {{ saveCursor(name: "here", token: "{token}") }}')


def test_each_field_of_a_stored_document_is_on_the_page(database: Any) -> None:
    """Its type is that of the page."""
    found = set()
    for name in database.list_collection_names():
        heading = next((each for each in TABLES if _is_of(each, name)), None)
        if heading is None or not TABLES[heading]:
            continue
        for document in database[name].find():
            found.add(heading)
            problems = list(_problems(document, TABLES[heading]))
            assert problems == [], f"{name}: {document}"
    assert found >= {
        *(f"`<collection>.{each}`" for each in ("versions", "drafts", "comments")),
        *(
            f"`revstream.{each}`"
            for each in ["deployment", "checkpoints", "leases", "members", "horizons", "deletions"]
        ),
        *(f"`revstream.{each}`" for each in ["cursors", "repeats", "deliveries"]),
    }


def _is_of(heading: str, name: str) -> bool:
    kind = heading.strip("`").replace("<collection>.", "")
    return name == kind or (name.endswith(f".{kind}") and not name.startswith("revstream."))


def _problems(
    document: Mapping[str, Any], fields: Mapping[str, tuple[str, bool]], prefix: str = ""
) -> Iterator[str]:
    for name, value in document.items():
        path = prefix + name
        if path not in fields:
            yield f"{path}: not on the page"
            continue
        kind = fields[path][0]
        if kind != "any" and TYPES[type(value)] not in re.split(r" or |, ", kind):
            yield f"{path}: {TYPES[type(value)]}, expected {kind}"
        if isinstance(value, dict) and any(each.startswith(f"{path}.") for each in fields):
            yield from _problems(value, fields, f"{path}.")
    for path, (_, always) in fields.items():
        rest = path.removeprefix(prefix)
        if always and path.startswith(prefix) and "." not in rest and rest not in document:
            yield f"{path}: missing"


def test_the_run_has_left_most_fields_of_a_version(database: Any) -> None:
    """The page is compared with more than the plain case."""
    seen = {name for each in database["products.versions"].find() for name in each}
    seen |= {name for each in database["readings.versions"].find() for name in each}
    seen |= {name for each in database["notes.versions"].find() for name in each}
    fields = {each for each in TABLES["`<collection>.versions`"] if "." not in each}
    assert fields - seen == {"parts", "offset", "readAt", "gap", "spanning"}


def test_each_field_on_the_page_is_in_the_code() -> None:
    """A field that is renamed is renamed on the page, too."""
    code = "".join(
        path.read_text(encoding="utf-8")
        for package in ("resolvers", "streams")
        for path in Path(ROOT / package).rglob("*.py")
    )
    words = set(re.findall(r"\w+", code))
    for heading, fields in TABLES.items():
        for name in fields:
            assert set(name.split(".")) <= words, f"{heading}: {name}"


def test_each_collection_has_a_section() -> None:
    """The page of the footprint has all of them."""
    footprint = (ROOT / "docs" / "reference" / "footprint.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`(revstream\.\w+|<collection>\.\w+)`", footprint))
    headings = "\n".join(TABLES)
    assert {each for each in names if f"`{each}`" not in headings} == set()
