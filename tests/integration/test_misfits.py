"""Documents that violate the model, written by other programs: all others are returned, and the
error names collection, document and field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId
from pymongo import MongoClient

from tests.integration.test_bad_input import MODEL
from tests.support.beginning import begin_new
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.sockets import open_socket

Client = MongoClient[dict[str, Any]]

SUPPLIER, NAMELESS = ObjectId(), ObjectId()
GOOD: dict[str, Any] = {"name": "n", "price": Decimal128("1.50"), "stock": 1, "tags": []}
REQUIRED: dict[str, tuple[dict[str, Any], str, str]] = {
    "nothing": ({"name": None}, "name", "null or missing, expected String"),
    "a number for text": ({"name": 5}, "name", "int 5, expected String"),
    "text for a number": ({"price": "cheap"}, "price", "string 'cheap', expected Decimal"),
    "half a piece": ({"stock": 1.5}, "stock", "double 1.5, expected Int"),
    "too many": ({"stock": Int64(2**40)}, "stock", "long 1099511627776, expected Int"),
    "text for a list": ({"tags": "a"}, "tags", "string 'a', expected a list of String"),
    "null in a list": ({"tags": ["a", None]}, "tags.1", "null or missing, expected String"),
    "a number in a list": ({"tags": ["a", 3]}, "tags.1", "int 3, expected String"),
}
OPTIONAL: dict[str, tuple[dict[str, Any], str, str]] = {
    "text for a Float": ({"weight": "heavy"}, "weight", "string 'heavy', expected Float"),
    "not a number": ({"weight": float("nan")}, "weight", "double 'NaN', expected Float"),
    "a fraction for a Long": ({"serial": 2.5}, "serial", "double 2.5, expected Long"),
    "text for a date": ({"addedAt": "2024"}, "addedAt", "string '2024', expected DateTime"),
    "half a size": ({"size": {"width": 1.0}}, "size.height", "null or missing, expected Float"),
}
OTHER_IDS = {"5": 5, '{"a": 1}': {"a": 1}, str(SUPPLIER): SUPPLIER}
FIELDS = "name price stock tags weight serial addedAt size { width height } supplierId"


def id_of(case: str) -> str:
    return case.replace(" ", "-")


@pytest.fixture(scope="module")
def gateway(
    mongo_uri: str, client: Client, database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """Run one gateway for all tests of the module, over valid documents and every invalid one."""
    model = tmp_path_factory.mktemp("model") / "schema.graphql"
    model.write_text(MODEL)
    begin_new(mongo_uri, database, model)
    products = client[database]["products"]
    client[database]["suppliers"].insert_many(
        [{"_id": SUPPLIER, "name": "Nord"}, {"_id": NAMELESS}]
    )
    products.insert_one({"_id": "good", **GOOD, "supplierId": SUPPLIER})
    for case, (bad, _, _) in (REQUIRED | OPTIONAL).items():
        changed = {**GOOD, **bad}
        products.insert_one(
            {"_id": id_of(case), **{k: v for k, v in changed.items() if v is not None}}
        )
    products.insert_one({"_id": "of-nameless", **GOOD, "supplierId": NAMELESS})
    products.insert_one({"_id": "of-nobody", **GOOD, "supplierId": ObjectId()})
    products.insert_one({"_id": "text-for-an-id", **GOOD, "supplierId": "x"})
    products.insert_one({"_id": "counts-oddly", **GOOD, "version": "x", "_change": 7})
    products.insert_one({"_id": "counts-far", **GOOD, "version": Int64(2**40)})
    for id_ in OTHER_IDS.values():
        products.insert_one({"_id": id_, **GOOD})
    with running_gateway(mongo_uri, database, model, "--archive-wait-s", "60") as running:
        running.recorded("products")
        yield running
        assert running.stop() == 0
    assert not [line for line in running.lines if "INTERNAL" in line or "Traceback" in line]


@pytest.fixture
def now(gateway: RunningGateway) -> dict[str, str]:
    """Return a time point at which all of them existed."""
    return {"token": gateway.query("{ resumeToken }")["resumeToken"]}


def all_ids(database: str, client: Client) -> set[str]:
    """Return all ids; ids of other types are texts in the API."""
    found = client[database]["products"].find({"_id": {"$type": "string"}})
    return {each["_id"] for each in found} | OTHER_IDS.keys()


def named(errors: list[dict[str, Any]], id_: object) -> list[dict[str, Any]]:
    """Return the errors about one document, each of which names it."""
    found = [each for each in errors if each["extensions"]["documentId"] == id_]
    for each in found:
        assert each["extensions"]["code"] == "DOCUMENT_MISFIT"
        assert each["extensions"]["collection"] == "products"
        assert each["message"].startswith(f"products/{id_}: {each['extensions']['field']}: ")
        assert each["extensions"]["mend"]
    return found


@pytest.mark.parametrize("case", REQUIRED)
def test_a_document_without_a_required_value_is_left_out_of_its_page(
    gateway: RunningGateway, client: Client, database: str, case: str
) -> None:
    """The others are returned; the error has the field's path, and names document and field."""
    _, field, said = REQUIRED[case]
    top = field.partition(".")[0]
    answer = gateway.post(f"{{ products(first: 100) {{ nodes {{ id {top} }} totalCount }} }}")
    (error,) = named(answer["errors"], id_of(case))
    assert error["path"][:2] == ["products", "nodes"]
    assert error["path"][3:] == [top]
    assert error["extensions"]["field"] == field
    assert error["extensions"]["leftOut"] is True
    assert error["message"].endswith(said)
    page = answer["data"]["products"]
    misfits = {id_of(name) for name, row in REQUIRED.items() if row[1].partition(".")[0] == top}
    assert {each["id"] for each in page["nodes"]} == all_ids(database, client) - misfits
    assert page["totalCount"] == client[database]["products"].count_documents({})


def test_an_invalid_field_that_is_not_selected_does_not_matter(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """Each document is returned, whatever its id is stored as."""
    data = gateway.query("{ products(first: 100) { nodes { id } } }")
    assert {each["id"] for each in data["products"]["nodes"]} == all_ids(database, client)


@pytest.mark.parametrize("id_", ["5", str(SUPPLIER), "good"], ids=["number", "ObjectId", "text"])
def test_an_id_of_any_type_finds_its_document(gateway: RunningGateway, id_: str) -> None:
    """A filter accepts the id's text of the API, also for an id that is not stored as text."""
    for where in (f'{{id: {{eq: "{id_}"}}}}', f'{{id: {{in: ["{id_}", "x"]}}}}'):
        data = gateway.query(f"{{ products(where: {where}) {{ nodes {{ id }} }} }}")
        assert data["products"]["nodes"] == [{"id": id_}]


@pytest.mark.parametrize("case", OPTIONAL)
def test_an_invalid_value_of_a_nullable_field_is_null(gateway: RunningGateway, case: str) -> None:
    """The document stays on its page, and the error has the field's path."""
    _, field, said = OPTIONAL[case]
    answer = gateway.post(f"{{ products(first: 100) {{ nodes {{ id {FIELDS} }} }} }}")
    nodes = answer["data"]["products"]["nodes"]
    place = next(n for n, each in enumerate(nodes) if each["id"] == id_of(case))
    (error,) = named(answer["errors"], id_of(case))
    assert error["path"] == ["products", "nodes", place, *field.split(".")]
    assert error["message"].endswith(said)
    assert nodes[place][field.partition(".")[0]] is None
    assert nodes[place]["name"] == "n"


def test_items_that_are_no_documents_stay_in_their_list(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """Null stays null, and a number is an error, whatever is selected of the items."""
    products = client[database]["products"]
    size = {"width": 1.0, "height": 2.0}
    products.insert_one({"_id": "parts", **GOOD, "parts": [None, size]})
    products.insert_one({"_id": "misfit", **GOOD, "parts": [3, size]})
    ask = '{ %s: product(id: "%s") { parts { width } } }'
    try:
        answers = [gateway.post(ask % (each, each)) for each in ("parts", "misfit")]
    finally:
        products.delete_many({"_id": {"$in": ["parts", "misfit"]}})
    assert answers[0] == {"data": {"parts": {"parts": [None, {"width": 1.0}]}}}
    assert answers[1]["data"] == {"misfit": {"parts": None}}
    (error,) = named(answers[1]["errors"], "misfit")
    assert error["extensions"]["field"] == "parts.0"


@pytest.mark.parametrize("case", REQUIRED)
def test_an_invalid_single_document_is_null(gateway: RunningGateway, case: str) -> None:
    """The error has the path of the required field; other root fields are not affected."""
    _, field, _ = REQUIRED[case]
    answer = gateway.post(
        f'{{ product(id: "{id_of(case)}") {{ {FIELDS} }} other: product(id: "good") {{ name }} }}'
    )
    assert answer["data"] == {"product": None, "other": {"name": "n"}}
    (error,) = named(answer["errors"], id_of(case))
    assert error["path"] == ["product", field.partition(".")[0]]


@pytest.mark.parametrize("case", [*REQUIRED, *OPTIONAL])
def test_snapshots_of_an_invalid_document_have_null_and_an_error(
    gateway: RunningGateway, now: dict[str, str], case: str
) -> None:
    """Every field of a snapshot is nullable, in as-of reads and in the history of a document.

    The error has the path of the first snapshot, and counts the others.
    """
    _, field, said = (REQUIRED | OPTIONAL)[case]
    query = f"""query($id: ID!, $now: TimePoint!) {{
      productVersion(id: $id, asOf: $now) {{ version operation document {{ {FIELDS} }} }}
      product(id: $id) {{ history {{ nodes {{ document {{ {FIELDS} }} diff {{ path }} }} }} }}
    }}"""
    answer = gateway.post(query, id=id_of(case), now=now)
    top = field.partition(".")[0]
    version = answer["data"]["productVersion"]
    assert (version["version"], version["operation"]) == (1, "INSERT")
    assert _shown(version["document"], field) is None
    (historical,) = answer["data"]["product"]["history"]["nodes"]
    assert historical["document"] == version["document"]
    # The diff is JSON: it shows the stored value.
    assert (top in {each["path"].partition(".")[0] for each in historical["diff"]}) is (
        case != "nothing"
    )
    errors = named(answer.get("errors", []), id_of(case))
    if (said.startswith("null") and "." not in field) or field == "size.height":
        assert errors == []
        return
    (error,) = errors
    assert error["path"] in (
        ["productVersion", "document", top],
        ["product", "history", "nodes", 0, "document", top],
    )
    assert error["extensions"]["alike"] == 1


async def test_after_a_change_of_type_old_versions_are_one_error(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """The error counts them, whatever their number and that of their documents."""
    products = client[database]["products"]
    for id_ in ("was-text-1", "was-text-2"):
        products.insert_one({"_id": id_, **GOOD, "stock": "0"})
        for number in range(1, 6):
            products.update_one({"_id": id_}, {"$set": {"stock": str(number)}})
        products.update_one({"_id": id_}, {"$set": {"stock": 6}})
    try:
        now = {"token": gateway.recorded("products")}
        answer = gateway.post(
            """query($now: TimePoint!) {
              productVersion(id: "was-text-2", asOf: $now) { version }
              productVersions(first: 100, where: { documentId: { in: ["was-text-1", "was-text-2"] }
              }) { nodes { documentId document { name stock } diff { path after } } }
            }""",
            now=now,
        )
    finally:
        products.delete_many({"_id": {"$regex": "^was-text"}})
    nodes = answer["data"]["productVersions"]["nodes"]
    assert [each["document"]["stock"] for each in nodes].count(None) == 12
    assert [each["document"]["name"] for each in nodes] == ["n"] * 14
    (error,) = answer["errors"]
    assert error["extensions"]["alike"] == 11
    assert error["path"][:2] == ["productVersions", "nodes"]


async def test_operations_of_a_newer_release_are_misfits(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """They are left out of pages, and name the release as the remedy; so does a subscription."""
    archive = client[database]["products.versions"]
    record = archive.find_one({"doc": "of-nobody"})
    assert record is not None
    archive.update_one({"_id": record["_id"]}, {"$set": {"op": "MERGE"}})
    text = """{
      productVersions(first: 100, where: { documentId: { in: ["of-nobody", "good"] } }) {
        nodes { documentId operation }
      }
      productVersion(id: "of-nobody", version: 1) { operation }
    }"""
    try:
        answers = [gateway.post(text) for _ in range(2)]
        after = gateway.query('{ productVersion(id: "good", version: 1) { resumeToken } }')
        async with open_socket(gateway.address) as socket:
            await socket.start(
                "1",
                "subscription($after: ResumeToken) { productChanges(after: $after, "
                'id: "of-nobody") { documentId operation } }',
                after=after["productVersion"]["resumeToken"],
            )
            event = (await socket.receive())["payload"]
    finally:
        archive.update_one({"_id": record["_id"]}, {"$set": {"op": record["op"]}})
    # The second one as a compiled query.
    assert answers[0] == answers[1]
    assert answers[0]["data"] == {
        "productVersions": {"nodes": [{"documentId": "good", "operation": "INSERT"}]},
        "productVersion": None,
    }
    assert event["data"]["productChanges"]["operation"] is None
    for errors in (answers[0]["errors"], event["errors"]):
        (error,) = [each for each in named(errors, "of-nobody")[:1]]
        assert "operation: string 'MERGE', expected one of BASELINE" in error["message"]
        assert "newer" in error["extensions"]["mend"]
        assert len(named(errors, "of-nobody")) == len(errors)


def _shown(document: dict[str, Any], field: str) -> Any:
    top, _, rest = field.partition(".")
    return document[top][rest] if rest == "height" else document[top]


def test_pages_of_history_have_ids_of_every_type(
    gateway: RunningGateway, client: Client, database: str, now: dict[str, str]
) -> None:
    """The audit trail and as-of reads return each id, and it finds its document."""
    data = gateway.query(
        """query($now: TimePoint!) {
          productsAsOf(first: 100, asOf: $now) { nodes { documentId } totalCount }
          productVersions(first: 100, where: { documentId: { in: ["5", "good"] } }) {
            nodes { id documentId }
          }
        }""",
        now=now,
    )
    expected = all_ids(database, client)
    assert {each["documentId"] for each in data["productsAsOf"]["nodes"]} == expected
    assert data["productsAsOf"]["totalCount"] == len(expected)
    assert {each["id"] for each in data["productVersions"]["nodes"]} == {"5@1", "good@1"}


def test_unresolvable_references_are_null(gateway: RunningGateway) -> None:
    """A reference of another type has an error, and one to a missing document is null.

    One to an invalid document is null, with an error for that document.
    """
    answer = gateway.post(
        """{
          kind: product(id: "text-for-an-id") { name supplier { name } }
          nobody: product(id: "of-nobody") { name supplier { name } }
          nameless: product(id: "of-nameless") { name supplier { name } }
        }"""
    )
    assert list(answer["data"].values()) == [{"name": "n", "supplier": None}] * 3
    by_path = {tuple(each["path"]): each for each in answer["errors"]}
    assert set(by_path) == {("kind", "supplier"), ("nameless", "supplier", "name")}
    misfit = by_path["nameless", "supplier", "name"]
    assert misfit["message"] == f"suppliers/{NAMELESS}: name: null or missing, expected String"


def test_back_references_leave_out_an_invalid_document(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """The error has the path of the field of that document."""
    client[database]["products"].insert_one(
        {"_id": "odd", **GOOD, "stock": "one", "supplierId": SUPPLIER}
    )
    try:
        answer = gateway.post(
            f'{{ supplier(id: "{SUPPLIER}") {{ name products {{ nodes {{ id stock }} }} }} }}'
        )
    finally:
        client[database]["products"].delete_one({"_id": "odd"})
    nodes = answer["data"]["supplier"]["products"]["nodes"]
    assert nodes == [{"id": "good", "stock": 1}]
    (error,) = answer["errors"]
    assert error["path"] == ["supplier", "products", "nodes", 1, "stock"]
    assert error["message"] == "products/odd: stock: string 'one', expected Int"


@pytest.mark.parametrize("field", ["name", "price", "stock", "weight", "serial", "addedAt"])
def test_an_order_by_values_of_any_type_has_each_document_once(
    gateway: RunningGateway, client: Client, database: str, now: dict[str, str], field: str
) -> None:
    """This holds page by page, for current documents and as-of reads, with mixed types."""
    query = """query($order: [ProductOrder!], $after: String, $then: String, $now: TimePoint!) {
      products(first: 3, orderBy: $order, after: $after) {
        nodes { id } pageInfo { hasNextPage endCursor }
      }
      productsAsOf(first: 3, orderBy: $order, after: $then, asOf: $now) {
        nodes { documentId } pageInfo { hasNextPage endCursor }
      }
    }"""
    seen: list[str] = []
    seen_then: list[str] = []
    after = then = None
    more = True
    while more:
        data = gateway.post(query, order=[{field: "DESC"}], after=after, then=then, now=now)["data"]
        seen += [each["id"] for each in data["products"]["nodes"]]
        seen_then += [each["documentId"] for each in data["productsAsOf"]["nodes"]]
        after = data["products"]["pageInfo"]["endCursor"]
        then = data["productsAsOf"]["pageInfo"]["endCursor"]
        more = data["products"]["pageInfo"]["hasNextPage"]
    assert sorted(seen) == sorted(all_ids(database, client))
    assert seen_then == seen


@pytest.mark.parametrize(
    ("where", "without"),
    [
        ("{stock: {gte: 1}}", set()),
        ('{name: {contains: "n"}}', {"nothing", "a-number-for-text"}),
        ('{price: {lt: "5"}}', {"text-for-a-number"}),
    ],
)
def test_a_filter_compares_values_of_its_own_type(
    gateway: RunningGateway,
    client: Client,
    database: str,
    now: dict[str, str],
    where: str,
    without: set[str],
) -> None:
    """Values of another type do not match, and are not errors, in both kinds of reads."""
    answer = gateway.post(
        f"""query($now: TimePoint!) {{
          products(first: 100, where: {where}) {{ nodes {{ id }} }}
          productsAsOf(first: 100, where: {where}, asOf: $now) {{ nodes {{ documentId }} }}
        }}""",
        now=now,
    )
    expected = all_ids(database, client) - without
    assert {each["id"] for each in answer["data"]["products"]["nodes"]} == expected
    assert {each["documentId"] for each in answer["data"]["productsAsOf"]["nodes"]} == expected


def test_an_invalid_version_number_and_author_are_ignored(
    gateway: RunningGateway, now: dict[str, str]
) -> None:
    """A version field that is text, or far too large, does not affect the archive's numbers."""
    query = """query($id: ID!, $now: TimePoint!) {
      productVersion(id: $id, asOf: $now) { version author comment }
      product(id: $id) { version }
    }"""
    for id_ in ("counts-oddly", "counts-far"):
        data = gateway.query(query, id=id_, now=now)
        assert data["productVersion"] == {"version": 1, "author": None, "comment": None}
        assert data["product"] == {"version": 1}


def test_a_document_that_cannot_be_sorted_is_left_out_with_an_error(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """MongoDB sorts nothing if one document has lists in two fields of the order.

    Current reads, as-of reads and back references leave it out; the next page continues.
    """
    products = client[database]["products"]
    lists = {"name": ["n", "a"], "stock": [1, 2], "supplierId": SUPPLIER}
    products.insert_one({"_id": "lists", **GOOD, **lists})
    products.insert_one({"_id": "one-list", **GOOD, "name": "z", "weight": [1, 2]})
    order = "orderBy: [{name: ASC}, {stock: DESC}, {weight: ASC}]"
    query = f"""query($now: TimePoint!, $after: String) {{
      products({order}, first: 100, after: $after) {{
        nodes {{ id }} totalCount pageInfo {{ endCursor }}
      }}
      productsAsOf(asOf: $now, {order}, first: 100) {{ nodes {{ documentId }} }}
      supplier(id: "{SUPPLIER}") {{ products({order}) {{ nodes {{ id }} }} }}
    }}"""
    try:
        now = {"token": gateway.query("{ resumeToken }")["resumeToken"]}
        for _ in range(2):
            # The second time as a compiled query.
            answer = gateway.post(query, now=now)
            data = answer["data"]
            expected = all_ids(database, client) - {"lists"}
            page = data["products"]
            assert {each["id"] for each in page["nodes"]} == expected
            assert page["totalCount"] == len(expected) + 1
            then = {each["documentId"] for each in data["productsAsOf"]["nodes"]}
            assert then == expected
            assert [each["id"] for each in data["supplier"]["products"]["nodes"]] == ["good"]
            assert {each["extensions"]["code"] for each in answer["errors"]} == {"DOCUMENT_MISFIT"}
            paths = sorted(each["path"] for each in answer["errors"])
            assert paths == [["products"], ["productsAsOf"], ["supplier", "products"]]
            assert "name, stock, weight" in answer["errors"][0]["message"]
        rest = gateway.post(query, now=now, after=page["pageInfo"]["endCursor"])
        assert rest["data"]["products"]["nodes"] == []
    finally:
        products.delete_many({"_id": {"$in": ["lists", "one-list"]}})


async def test_a_subscription_continues_after_an_invalid_document(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """The event has its token, a null document and the error with the path.

    The next event is complete, and other subscriptions on the connection are not affected.
    """
    products = client[database]["products"]
    async with open_socket(gateway.address) as socket:
        await socket.start(
            "1",
            "subscription { productChanges { kind documentId operation transition resumeToken "
            "changedFields diff { path after } product { id stock } before { stock } } }",
        )
        assert (await socket.receive())["payload"]["data"]["productChanges"]["kind"] == "CHECKPOINT"
        products.insert_one({"_id": "live", **GOOD})
        products.update_one({"_id": "live"}, {"$set": {"stock": "many"}})
        products.insert_one({"_id": 77, **GOOD})
        products.update_one({"_id": "live"}, {"$set": {"stock": 3}})
        products.delete_many({"_id": {"$in": ["live", 77]}})
        events = [(await socket.receive())["payload"] for _ in range(6)]
        while events[0]["data"]["productChanges"]["documentId"] not in ("live", "77"):
            # A deletion of another test.
            events = [*events[1:], (await socket.receive())["payload"]]
    changes = [each["data"]["productChanges"] for each in events]
    assert [each["operation"] for each in changes[:4]] == ["INSERT", "UPDATE", "INSERT", "UPDATE"]
    assert changes[0]["product"] == {"id": "live", "stock": 1}
    assert changes[1]["product"] is None
    assert changes[1]["diff"] == [{"path": "stock", "after": "many"}]
    assert events[1]["errors"][0]["message"] == (
        "products/live: stock: string 'many', expected Int"
    )
    assert events[1]["errors"][0]["path"] == ["productChanges", "product", "stock"]
    assert changes[2]["documentId"] == "77"
    assert changes[3]["product"] == {"id": "live", "stock": 3}
    assert changes[3]["before"] == {"stock": None}
    assert all(each["resumeToken"] for each in changes)


async def test_a_subscription_snapshot_contains_every_document(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """Invalid documents have their identity, with the error."""
    count = client[database]["products"].count_documents({})
    async with open_socket(gateway.address) as socket:
        query = (
            "subscription { productChanges(snapshot: true) { kind documentId product { name } } }"
        )
        await socket.start("1", query)
        events = [(await socket.receive())["payload"] for _ in range(count + 1)]
    changes = [each["data"]["productChanges"] for each in events]
    assert [each["kind"] for each in changes] == ["SNAPSHOT"] * count + ["CHECKPOINT"]
    nameless = [each["documentId"] for each in changes[:-1] if each["product"] is None]
    assert sorted(nameless) == ["a-number-for-text", "nothing"]


async def test_replay_continues_after_an_invalid_document(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """Each version is replayed from the archive, invalid ones with their error."""
    first = gateway.query('{ productVersion(id: "good", version: 1) { resumeToken } }')[
        "productVersion"
    ]["resumeToken"]
    expected = all_ids(database, client) - {"good"}
    received: set[str] = set()
    async with open_socket(gateway.address) as socket:
        await socket.start(
            "1",
            "subscription($after: ResumeToken) { productChanges(after: $after) "
            "{ documentId product { name price } } }",
            after=first,
        )
        while not expected <= received:
            change = (await socket.receive())["payload"]["data"]["productChanges"]
            received.add(change["documentId"])


def test_a_document_too_large_to_be_sorted_is_left_out_with_an_error(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """The document and its sort keys exceed MongoDB's limit of a document."""
    products = client[database]["products"]
    products.insert_one({"_id": "long", **GOOD, "name": "n" * 9_000_000, "supplierId": SUPPLIER})
    query = f"""query($now: TimePoint!) {{
      products(orderBy: {{name: ASC}}, first: 100) {{ nodes {{ id }} }}
      productsAsOf(asOf: $now, orderBy: {{name: ASC}}, first: 100) {{ nodes {{ documentId }} }}
      supplier(id: "{SUPPLIER}") {{ products(orderBy: {{name: ASC}}) {{ nodes {{ id }} }} }}
    }}"""
    try:
        now = {"token": gateway.query("{ resumeToken }")["resumeToken"]}
        for _ in range(2):
            # The second time as a compiled query.
            answer = gateway.post(query, now=now)
            data = answer["data"]
            others = all_ids(database, client) - {"long"}
            assert {each["id"] for each in data["products"]["nodes"]} == others
            then = {each["documentId"] for each in data["productsAsOf"]["nodes"]}
            assert then - {"long"} == others
            assert "good" in [each["id"] for each in data["supplier"]["products"]["nodes"]]
            assert ["products"] in [each["path"] for each in answer["errors"]]
            assert {each["extensions"]["code"] for each in answer["errors"]} == {"DOCUMENT_MISFIT"}
            assert "values that are too long in name" in answer["errors"][0]["message"]
    finally:
        products.delete_one({"_id": "long"})
