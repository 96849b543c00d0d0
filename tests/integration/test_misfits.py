"""Documents that do not fit the model, as other programs write them: the rest is served, and the
error names collection, document and field."""

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
    "nothing": ({"name": None}, "name", "null or nothing, String expected"),
    "a number for text": ({"name": 5}, "name", "the int 5, String expected"),
    "text for a number": ({"price": "cheap"}, "price", "the string 'cheap', Decimal expected"),
    "half a piece": ({"stock": 1.5}, "stock", "the double 1.5, Int expected"),
    "too many": ({"stock": Int64(2**40)}, "stock", "the long 1099511627776, Int expected"),
    "text for a list": ({"tags": "a"}, "tags", "the string 'a', a list of String expected"),
    "null in a list": ({"tags": ["a", None]}, "tags.1", "null or nothing, String expected"),
    "a number in a list": ({"tags": ["a", 3]}, "tags.1", "the int 3, String expected"),
}
OPTIONAL: dict[str, tuple[dict[str, Any], str, str]] = {
    "text for a Float": ({"weight": "heavy"}, "weight", "the string 'heavy', Float expected"),
    "not a number": ({"weight": float("nan")}, "weight", "the double 'NaN', Float expected"),
    "a fraction for a Long": ({"serial": 2.5}, "serial", "the double 2.5, Long expected"),
    "text for a date": ({"addedAt": "2024"}, "addedAt", "the string '2024', DateTime expected"),
    "half a size": ({"size": {"width": 1.0}}, "size.height", "null or nothing, Float expected"),
}
OTHER_IDS = {"5": 5, '{"a": 1}': {"a": 1}, str(SUPPLIER): SUPPLIER}
FIELDS = "name price stock tags weight serial addedAt size { width height } supplierId"


def id_of(case: str) -> str:
    return case.replace(" ", "-")


@pytest.fixture(scope="module")
def gateway(
    mongo_uri: str, client: Client, database: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    """One for all tests here, over good documents and every misfit; it has no fault of its own."""
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
        token = running.query("{ resumeToken }")["resumeToken"]
        # Waits until all of it is history, too.
        running.query(
            "query($now: TimePoint!) { productsAsOf(asOf: $now) { totalCount } }",
            now={"token": token},
        )
        yield running
        assert running.stop() == 0
    assert not [line for line in running.lines if "INTERNAL" in line or "Traceback" in line]


@pytest.fixture
def now(gateway: RunningGateway) -> dict[str, str]:
    """A moment at which all of them were there."""
    return {"token": gateway.query("{ resumeToken }")["resumeToken"]}


def all_ids(database: str, client: Client) -> set[str]:
    """Ids of other types than text are text in the API."""
    found = client[database]["products"].find({"_id": {"$type": "string"}})
    return {each["_id"] for each in found} | OTHER_IDS.keys()


def named(errors: list[dict[str, Any]], id_: object) -> list[dict[str, Any]]:
    """The errors about one document, each of which says so."""
    found = [each for each in errors if each["extensions"]["documentId"] == id_]
    for each in found:
        assert each["extensions"]["code"] == "DOCUMENT_MISFIT"
        assert each["extensions"]["collection"] == "products"
        assert each["message"].startswith(f"products/{id_}: {each['extensions']['field']} holds ")
        assert each["extensions"]["mend"]
    return found


@pytest.mark.parametrize("case", REQUIRED)
def test_a_document_without_a_required_value_is_left_out_of_its_page(
    gateway: RunningGateway, client: Client, database: str, case: str
) -> None:
    """The others are served; the error has the field's path, and names document and field."""
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


def test_what_is_not_asked_for_does_no_harm(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """Each document is there where its misfit is not selected, whatever its id is stored as."""
    data = gateway.query("{ products(first: 100) { nodes { id } } }")
    assert {each["id"] for each in data["products"]["nodes"]} == all_ids(database, client)


@pytest.mark.parametrize("id_", ["5", str(SUPPLIER), "good"], ids=["number", "ObjectId", "text"])
def test_what_is_shown_as_an_id_finds_its_document(gateway: RunningGateway, id_: str) -> None:
    """A filter takes an id as the API shows it, also one that is not stored as text."""
    for where in (f'{{id: {{eq: "{id_}"}}}}', f'{{id: {{in: ["{id_}", "x"]}}}}'):
        data = gateway.query(f"{{ products(where: {where}) {{ nodes {{ id }} }} }}")
        assert data["products"]["nodes"] == [{"id": id_}]


@pytest.mark.parametrize("case", OPTIONAL)
def test_a_value_that_may_be_null_is_null_where_it_does_not_fit(
    gateway: RunningGateway, case: str
) -> None:
    """The document stays on its page, and the error stands at the field."""
    _, field, said = OPTIONAL[case]
    answer = gateway.post(f"{{ products(first: 100) {{ nodes {{ id {FIELDS} }} }} }}")
    nodes = answer["data"]["products"]["nodes"]
    place = next(n for n, each in enumerate(nodes) if each["id"] == id_of(case))
    (error,) = named(answer["errors"], id_of(case))
    assert error["path"] == ["products", "nodes", place, *field.split(".")]
    assert error["message"].endswith(said)
    assert nodes[place][field.partition(".")[0]] is None
    assert nodes[place]["name"] == "n"


@pytest.mark.parametrize("case", REQUIRED)
def test_one_document_that_does_not_fit_is_null_with_the_error_at_its_field(
    gateway: RunningGateway, case: str
) -> None:
    """Nothing else can be put where a value must be; what else is asked for is answered."""
    _, field, _ = REQUIRED[case]
    answer = gateway.post(
        f'{{ product(id: "{id_of(case)}") {{ {FIELDS} }} other: product(id: "good") {{ name }} }}'
    )
    assert answer["data"] == {"product": None, "other": {"name": "n"}}
    (error,) = named(answer["errors"], id_of(case))
    assert error["path"] == ["product", field.partition(".")[0]]


@pytest.mark.parametrize("case", [*REQUIRED, *OPTIONAL])
def test_history_keeps_what_does_not_fit_and_says_so(
    gateway: RunningGateway, now: dict[str, str], case: str
) -> None:
    """In a snapshot every field may be null: it is, as of a moment and in the document's history
    alike; the error stands at the first of them, and counts the other."""
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
    # The difference is JSON: whatever there was is shown as it was.
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
    """However many there are, and of however many documents: it counts them."""
    products = client[database]["products"]
    for id_ in ("was-text-1", "was-text-2"):
        products.insert_one({"_id": id_, **GOOD, "stock": "0"})
        for number in range(1, 6):
            products.update_one({"_id": id_}, {"$set": {"stock": str(number)}})
        products.update_one({"_id": id_}, {"$set": {"stock": 6}})
    try:
        now = {"token": gateway.query("{ resumeToken }")["resumeToken"]}
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


def _shown(document: dict[str, Any], field: str) -> Any:
    top, _, rest = field.partition(".")
    return document[top][rest] if rest == "height" else document[top]


def test_pages_of_history_have_ids_of_every_type(
    gateway: RunningGateway, client: Client, database: str, now: dict[str, str]
) -> None:
    """The trail and the collection as of a moment show each, and what was shown finds it."""
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


def test_references_that_lead_nowhere_are_null(gateway: RunningGateway) -> None:
    """Of another kind: an error at the reference; to nothing: null, as the model allows; to a
    document that does not fit: null, and the error names that one."""
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
    assert misfit["message"] == f"suppliers/{NAMELESS}: name holds null or nothing, String expected"


def test_a_list_of_those_who_refer_is_served_without_the_one_that_does_not_fit(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """The error stands at the field in the list of that one document."""
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
    assert error["message"] == "products/odd: stock holds the string 'one', Int expected"


@pytest.mark.parametrize("field", ["name", "price", "stock", "weight", "serial", "addedAt"])
def test_an_order_by_values_of_any_type_shows_each_document_once(
    gateway: RunningGateway, client: Client, database: str, now: dict[str, str], field: str
) -> None:
    """Page by page, now and as of a moment, whatever types stand side by side."""
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
    """What is of another type does not match, and is no error; now and as of a moment."""
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


def test_what_is_no_count_and_no_author_is_none(
    gateway: RunningGateway, now: dict[str, str]
) -> None:
    """A version field that is text, or far too large, does not disturb the archive's numbers."""
    query = """query($id: ID!, $now: TimePoint!) {
      productVersion(id: $id, asOf: $now) { version author comment }
      product(id: $id) { version }
    }"""
    for id_ in ("counts-oddly", "counts-far"):
        data = gateway.query(query, id=id_, now=now)
        assert data["productVersion"] == {"version": 1, "author": None, "comment": None}
        assert data["product"] == {"version": 1}


def test_an_order_is_kept_for_those_that_it_has_a_place_for(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """MongoDB sorts nothing where one document has lists in two fields of the order: that one is
    left out with an error, now, as of a moment and below a reference; the next page goes on."""
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
            # The second time as it was compiled.
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


async def test_a_subscription_goes_on_past_what_does_not_fit(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """The event comes with its token, the document null and the error at the field; the next event
    is as good as ever, and the others on the connection notice nothing."""
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
    changes = [each["data"]["productChanges"] for each in events]
    assert [each["operation"] for each in changes[:4]] == ["INSERT", "UPDATE", "INSERT", "UPDATE"]
    assert changes[0]["product"] == {"id": "live", "stock": 1}
    assert changes[1]["product"] is None
    assert changes[1]["diff"] == [{"path": "stock", "after": "many"}]
    assert events[1]["errors"][0]["message"] == (
        "products/live: stock holds the string 'many', Int expected"
    )
    assert events[1]["errors"][0]["path"] == ["productChanges", "product", "stock"]
    assert changes[2]["documentId"] == "77"
    assert changes[3]["product"] == {"id": "live", "stock": 3}
    assert changes[3]["before"] == {"stock": None}
    assert all(each["resumeToken"] for each in changes)


async def test_a_snapshot_is_sent_whole(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """Every document comes; of those that do not fit the identity, with the error."""
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


async def test_replay_out_of_the_archive_goes_on_past_what_does_not_fit(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """Each version is replayed, the misfits among them with their error."""
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


def test_a_document_that_is_too_long_to_be_sorted_does_not_harm_the_page(
    gateway: RunningGateway, client: Client, database: str
) -> None:
    """With the values that it is sorted by it is longer than MongoDB lets a document be: that one
    is left out with an error."""
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
            # The second time as it was compiled.
            answer = gateway.post(query, now=now)
            data = answer["data"]
            others = all_ids(database, client) - {"long"}
            assert {each["id"] for each in data["products"]["nodes"]} == others
            then = {each["documentId"] for each in data["productsAsOf"]["nodes"]}
            assert then - {"long"} == others
            assert "good" in [each["id"] for each in data["supplier"]["products"]["nodes"]]
            assert ["products"] in [each["path"] for each in answer["errors"]]
            assert {each["extensions"]["code"] for each in answer["errors"]} == {"DOCUMENT_MISFIT"}
            assert "too long values in the fields name" in answer["errors"][0]["message"]
    finally:
        products.delete_one({"_id": "long"})
