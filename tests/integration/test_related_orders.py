"""Orders by fields of referenced documents and by numbers of referring ones on a real MongoDB,
compared with a plain model: now, as of a moment, under row rules, in pages of both directions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import cmp_to_key
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.resolvers.access.principal import Principal
from revstream.resolvers.pagination import related_order
from revstream.resolvers.values import reference_ids
from tests.integration.test_reference_filters import (
    ANN,
    BACK_LINKS,
    BOB,
    LINKS,
    LIST_LINKS,
    MODELS,
    STAFF,
    WORLDS,
    World,
    ask,
    related,
    store,
)
from tests.support.editing import Row, Shop, open_shop
from tests.support.exhaustive import examples

pytestmark = pytest.mark.asyncio(loop_scope="module")

Orders = Sequence[Row]
TYPES = {"products": "Product", "suppliers": "Supplier"}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=MODELS, ids=["full", "deltas"])
async def shop(
    mongo_uri: str, client: MongoClient[Row], request: pytest.FixtureRequest
) -> AsyncIterator[Shop]:
    """Run a gateway over empty collections."""
    name = f"related_orders_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=request.param) as shop:
        yield shop
    client.drop_database(name)


def visible(document: Row, caller: Principal) -> bool:
    return not document.get("hidden") or document.get("owner") == caller.name


def value_of(world: World, caller: Principal, kind: str, document: Any, order: Row) -> Any:
    """Return the value by which an order sorts a document, in plain Python."""
    ((name, inner),) = order.items()
    if isinstance(inner, str):
        return document.get(name)
    if name == "origin":
        return value_of(world, caller, name, document.get(name) or {}, inner)
    if (kind, name) in BACK_LINKS or (kind, name) in LIST_LINKS:
        return len(related(world, caller, kind, document, name))
    by, target = LINKS[kind, name]
    other = world[target].get(document.get(by))
    if other is None or not visible(other, caller):
        return None
    return value_of(world, caller, target, {**other, "id": document[by]}, inner)


def direction_of(order: Row) -> str:
    ((_, inner),) = order.items()
    return inner if isinstance(inner, str) else direction_of(inner)


def keys_of(
    world: World, caller: Principal, kind: str, orders: Orders, id_: str
) -> list[tuple[Any, int]]:
    """Return the values of a document in an order, each with its direction."""
    document = {**world[kind][id_], "id": id_}
    signs = [1 if direction_of(each) == "ASC" else -1 for each in orders]
    values = [value_of(world, caller, kind, document, each) for each in orders]
    return [*zip(values, signs, strict=True), (id_, signs[-1])]


def compare(one: list[tuple[Any, int]], other: list[tuple[Any, int]]) -> int:
    """Compare two positions: a missing value is the smallest."""
    for (a, sign), (b, _) in zip(one, other, strict=True):
        x, y = (a is not None, a or ""), (b is not None, b or "")
        if isinstance(a, int) or isinstance(b, int):
            x, y = (a is not None, a or 0), (b is not None, b or 0)
        if x != y:
            return sign if x > y else -sign
    return 0


def sorted_ids(world: World, caller: Principal, kind: str, orders: Orders) -> list[str]:
    def position(id_: str) -> Any:
        return cmp_to_key(compare)(keys_of(world, caller, kind, orders, id_))

    seen = [id_ for id_, each in world[kind].items() if visible(each, caller)]
    return sorted(seen, key=position)


async def walk(
    shop: Shop, caller: Principal, kind: str, field: str, variables: Row, size: int, forward: bool
) -> list[str]:
    """Return the ids of all pages, forwards or backwards, in the order of the list."""
    past = "AsOf" in field
    # A document that is new is executed by graphql-core, a known one is compiled.
    fresh = "" if caller is ANN else f"# {uuid4()}"
    text = f"""query($orders: [{TYPES[kind]}Order!], {"$asOf: TimePoint!," if past else ""}
                     $first: Int, $last: Int, $after: String, $before: String) {{ {fresh}
      page: {field} first: $first, last: $last, after: $after, before: $before, orderBy: $orders) {{
        nodes {{ {"id: documentId" if past else "id"} }} totalCount
        pageInfo {{ hasNextPage hasPreviousPage startCursor endCursor }} }}
    }}"""
    found: list[str] = []
    place: Row = {}
    while True:
        given = {**variables, **place, "first" if forward else "last": size}
        answer = await ask(shop, caller, text, **given)
        assert answer["codes"] == [], answer
        page = answer["data"]["page"]
        ids = [each["id"] for each in page["nodes"]]
        info = page["pageInfo"]
        found = [*found, *ids] if forward else [*ids, *found]
        if not info["hasNextPage" if forward else "hasPreviousPage"]:
            assert page["totalCount"] == len(found)
            return found
        assert len(ids) == size
        place = {"after": info["endCursor"]} if forward else {"before": info["startCursor"]}


def by(name: str) -> st.SearchStrategy[Row]:
    return st.builds(lambda direction: {name: direction}, st.sampled_from(["ASC", "DESC"]))


def below(name: str, inner: st.SearchStrategy[Row]) -> st.SearchStrategy[Row]:
    return st.builds(lambda each: {name: each}, inner)


PRODUCT_ORDERS = (
    by("price")
    | below("supplier", by("rank"))
    | below("supplier", by("id"))
    | below("origin", below("city", by("size")))
    | below("partners", by("count"))
)
SUPPLIER_ORDERS = (
    below("products", by("count"))
    | below("partnerIn", by("count"))
    | below("city", by("size"))
    | by("rank")
)


def path_of(order: Row) -> str:
    ((name, inner),) = order.items()
    return name if isinstance(inner, str) else f"{name}.{path_of(inner)}"


def lists_of(one: st.SearchStrategy[Row]) -> st.SearchStrategy[list[Row]]:
    return st.lists(one, min_size=1, max_size=3, unique_by=path_of)


ASKED = st.tuples(st.just("products"), lists_of(PRODUCT_ORDERS)) | st.tuples(
    st.just("suppliers"), lists_of(SUPPLIER_ORDERS)
)


@settings(
    deadline=None,
    max_examples=examples(6),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(
    before=WORLDS,
    after=WORLDS,
    asked=st.lists(ASKED, min_size=2, max_size=3),
    size=st.integers(1, 3),
    forward=st.booleans(),
)
async def test_pages_equal_those_of_a_plain_model(
    shop: Shop,
    before: World,
    after: World,
    asked: list[tuple[str, list[Row]]],
    size: int,
    forward: bool,
) -> None:
    """Each document once, in both directions, now and then; a hidden supplier is a missing one."""
    store(shop, before)
    token = (await ask(shop, ANN, "{ resumeToken }"))["data"]["resumeToken"]
    store(shop, after)
    for kind, orders in asked:
        for caller in (ANN, BOB):
            given = {"orders": orders}
            found = await walk(shop, caller, kind, f"{kind}(", given, size, forward)
            assert found == sorted_ids(after, caller, kind, orders), (orders, caller)
            given["asOf"] = {"token": token}
            field = f"{kind}AsOf(asOf: $asOf, "
            found = await walk(shop, caller, kind, field, given, size, forward)
            assert found == sorted_ids(before, caller, kind, orders), (orders, caller)


@settings(
    deadline=None,
    max_examples=examples(5),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(before=WORLDS, after=WORLDS, asked=ASKED, forward=st.booleans())
async def test_a_cursor_keeps_its_place_while_documents_change(
    shop: Shop, before: World, after: World, asked: tuple[str, list[Row]], forward: bool
) -> None:
    """The next page has the documents that are beyond the values that the cursor holds."""
    kind, orders = asked
    store(shop, before)
    ids = sorted_ids(before, ANN, kind, orders)
    if not ids:
        return
    text = f"""query($orders: [{TYPES[kind]}Order!], $after: String, $before: String) {{
      page: {kind}(orderBy: $orders, first: 50, after: $after, before: $before) {{
        edges {{ cursor node {{ id }} }} }} }}"""
    edges = (await ask(shop, ANN, text, orders=orders))["data"]["page"]["edges"]
    assert [each["node"]["id"] for each in edges] == ids
    middle = len(ids) // 2
    place = keys_of(before, ANN, kind, orders, ids[middle])
    store(shop, after)
    where = {"after" if forward else "before": edges[middle]["cursor"]}
    page = (await ask(shop, ANN, text, orders=orders, **where))["data"]["page"]
    expected = [
        id_
        for id_ in sorted_ids(after, ANN, kind, orders)
        if (compare(keys_of(after, ANN, kind, orders, id_), place) > 0) == forward
        and compare(keys_of(after, ANN, kind, orders, id_), place) != 0
    ]
    assert [each["node"]["id"] for each in page["edges"]] == expected


@pytest.fixture
def three(shop: Shop) -> Shop:
    """Return the shop with two suppliers, and three products of them."""
    store(
        shop,
        {
            "cities": {"c": {"size": 1}, "d": {"size": 2}},
            "suppliers": {"a": {"rank": 1, "cityId": "d"}, "b": {"rank": 2, "cityId": "c"}},
            "products": {
                "p": {"price": 1, "supplierId": "b", "origin": {"cityId": "d"}},
                "q": {"price": 2, "supplierId": "b", "origin": {"cityId": "c"}},
                "r": {"price": 3, "supplierId": "a"},
            },
        },
    )
    return shop


async def test_back_references_are_ordered_by_related_values(three: Shop) -> None:
    """Now and as of the moment of each document, with a page for each."""
    text = """query($asOf: TimePoint!) {
      suppliers { nodes { products(first: 1, orderBy: [{origin: {city: {size: ASC}}}]) {
        nodes { id } totalCount pageInfo { hasNextPage } } } }
      suppliersAsOf(asOf: $asOf) { nodes { document {
        products(first: 1, orderBy: [{origin: {city: {size: ASC}}}]) {
          nodes { documentId price } totalCount pageInfo { hasNextPage } } } } }
    }"""
    token = (await ask(three, ANN, "{ resumeToken }"))["data"]["resumeToken"]
    three.database["cities"].update_one({"_id": "c"}, {"$set": {"size": 3}})
    for _ in range(2):
        found = await ask(three, ANN, text, asOf={"token": token})
        assert found["codes"] == []
        now = [each["products"] for each in found["data"]["suppliers"]["nodes"]]
        assert [each["nodes"][0]["id"] for each in now] == ["r", "p"]
        assert [each["totalCount"] for each in now] == [1, 2]
        assert [each["pageInfo"]["hasNextPage"] for each in now] == [False, True]
        past = [each["document"]["products"] for each in found["data"]["suppliersAsOf"]["nodes"]]
        assert [each["nodes"][0]["documentId"] for each in past] == ["r", "q"]
        assert [each["totalCount"] for each in past] == [1, 2]


async def test_histories_are_ordered_at_each_of_their_moments(three: Shop) -> None:
    """Each state has the order of its own time."""
    three.database["cities"].update_one({"_id": "c"}, {"$set": {"size": 3}})
    three.database["suppliers"].update_one({"_id": "b"}, {"$set": {"rank": 3}})
    text = """{ supplier(id: "b") { history(first: 2) { nodes { document {
      products(orderBy: [{origin: {city: {size: ASC}}}]) { nodes { documentId } } } } } } }"""
    # Waits for both versions.
    await ask(three, ANN, "{ suppliers(where: {version: {gt: 0}}) { totalCount } }")
    found = await ask(three, ANN, text)
    assert found["codes"] == []
    states = [each["document"] for each in found["data"]["supplier"]["history"]["nodes"]]
    ids = [[each["documentId"] for each in state["products"]["nodes"]] for state in states]
    assert ids[0] == ["p", "q"]


@pytest.mark.parametrize(
    "field",
    [
        "products(orderBy: [{audit: {result: ASC}}])",
        "products(orderBy: [{supplier: {secret: ASC}}])",
        "suppliers(orderBy: [{audits: {count: ASC}}])",
        "cities { nodes { suppliers(orderBy: [{audits: {count: ASC}}]) { totalCount } } } #",
    ],
)
async def test_an_order_does_not_reveal_what_the_caller_may_not_read(
    three: Shop, field: str
) -> None:
    """The types and fields of the other side are checked as anywhere."""
    text = f"{{ {field} {{ totalCount }}\n }}"
    assert "FORBIDDEN" in (await ask(three, ANN, text))["codes"]
    assert (await ask(three, STAFF, text))["codes"] == []


async def test_the_number_of_ordered_documents_is_bounded(
    three: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are read for each page, now and then, and below other documents."""
    token = (await ask(three, ANN, "{ resumeToken }"))["data"]["resumeToken"]
    monkeypatch.setattr(related_order, "MOST_ORDERED", 2)
    order = "orderBy: [{supplier: {rank: ASC}}]"
    for field in (
        f"products(%s {order}) {{ nodes {{ __typename }} }}",
        f'productsAsOf(asOf: {{token: "{token}"}}, %s {order}) {{ nodes {{ version }} }}',
        f"suppliers {{ nodes {{ products(%s {order}) {{ totalCount }} }} }}",
        f'suppliersAsOf(asOf: {{token: "{token}"}}) {{ nodes {{ document {{ '
        f"products(%s {order}) {{ totalCount }} }} }} }}",
    ):
        accepted = await ask(three, ANN, "{ %s }" % (field % "where: {price: {lt: 3}},"))
        assert accepted["codes"] == []
        refused = await ask(three, ANN, "{ %s }" % (field % ""))
        assert set(refused["codes"]) == {"LIMIT_EXCEEDED"}
        assert refused["messages"][0].startswith(
            "Product: more than 2 documents match, which is the maximum of an order by "
            "supplier.rank; add conditions, or order by fields of the document"
        )


async def test_the_number_of_related_values_is_bounded(three: Shop) -> None:
    """Each is a read of its own."""
    orders = [{"supplier": {name: "ASC"}} for name in ("rank", "hidden", "owner", "cityId", "id")]
    text = "query($orders: [ProductOrder!]) { products(orderBy: $orders) { totalCount } }"
    assert (await ask(three, ANN, text, orders=orders))["codes"] == []
    more = [*orders, {"origin": {"city": {"size": "ASC"}}}]
    refused = await ask(three, ANN, text, orders=more)
    assert refused["messages"] == [
        "values of related documents in an order: 6, maximum is 5; use fewer"
    ]
    twice = await ask(three, ANN, text, orders=[orders[0], {"supplier": {"rank": "DESC"}}])
    assert twice["messages"] == [
        "orderBy: supplier.rank twice, expected each field once; remove one of them"
    ]


async def test_ids_of_lists_are_bounded(three: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each different one is looked up."""
    three.database["products"].update_one({"_id": "p"}, {"$set": {"partnerIds": ["a", "b", "a"]}})
    three.database["products"].update_one({"_id": "q"}, {"$set": {"partnerIds": ["b"]}})
    text = "{ products(orderBy: [{partners: {count: DESC}}]) { nodes { id } } }"
    monkeypatch.setattr(related_order, "MOST_ORDERED", 3)
    found = await ask(three, ANN, text)
    assert [each["id"] for each in found["data"]["products"]["nodes"]] == ["p", "q", "r"]
    ids = {"$set": {"partnerIds": ["c", "d"]}}
    three.database["products"].update_one({"_id": "r"}, ids)
    refused = await ask(three, ANN, text)
    assert refused["messages"] == [
        "Product: 4 ids, maximum of an order by partners.count is 3; add conditions"
    ]


async def test_ids_that_recur_in_lists_are_bounded(
    three: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is looked at, the same one too."""
    three.database["products"].update_one({"_id": "p"}, {"$set": {"partnerIds": ["a", "a", "a"]}})
    monkeypatch.setattr(related_order, "_MOST_ITEMS", 2)
    refused = await ask(
        three, ANN, "{ products(orderBy: [{partners: {count: DESC}}]) { nodes { id } } }"
    )
    assert refused["messages"] == [
        "Product: 3 ids, maximum of an order by partners.count is 2; add conditions"
    ]


@pytest.mark.parametrize("order", ["supplier: {rank: ASC}", "partners: {count: ASC}"])
async def test_ids_to_order_by_are_bounded_in_bytes(
    three: Shop, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    """They are sent to MongoDB in one command."""
    three.database["products"].update_one({"_id": "p"}, {"$set": {"partnerIds": ["a"]}})
    text = f"{{ products(orderBy: [{{{order}}}]) {{ nodes {{ id }} }} }}"
    assert (await ask(three, ANN, text))["codes"] == []
    monkeypatch.setattr(reference_ids, "MOST_ID_BYTES", 10)
    refused = await ask(three, ANN, text)
    assert refused["codes"] == ["LIMIT_EXCEEDED"]
    assert refused["messages"][0].startswith("Supplier: ")


async def test_an_order_does_not_go_on_from_a_related_document(three: Shop) -> None:
    """Each step would be another read."""
    text = "{ products(orderBy: [{supplier: {seat: {city: {size: ASC}}}}]) { totalCount } }"
    refused = await ask(three, ANN, text)
    assert refused["messages"] == [
        "orderBy: supplier.seat.city, expected a relation of the documents that are ordered, not "
        "one that begins at another document"
    ]


async def test_values_to_order_by_are_bounded_in_bytes(
    three: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are sent back to MongoDB in one command."""
    monkeypatch.setattr(related_order, "_MOST_BYTES", 400)
    text = "{ products(orderBy: [{supplier: {owner: ASC}}]) { totalCount } }"
    assert (await ask(three, ANN, text))["codes"] == []
    three.database["suppliers"].update_one({"_id": "a"}, {"$set": {"owner": "x" * 400}})
    refused = await ask(three, ANN, text)
    assert refused["messages"][0].startswith("Product: more than 400 bytes of values to order by")


async def test_a_page_has_its_token_and_its_version_numbers(three: Shop) -> None:
    """A subscription after the token misses no change of the page."""
    order = "orderBy: [{supplier: {rank: ASC}}, {version: DESC}]"
    text = f"{{ products(first: 3, {order}) {{ resumeToken nodes {{ id version price }} }} }}"
    past = f"""query($token: ResumeToken!) {{
      productsAsOf(asOf: {{token: $token}}, {order}) {{ nodes {{ id: documentId version }} }}
      productStates(asOf: {{token: $token}}, {order}) {{ nodes {{ id: documentId version }} }} }}"""
    for _ in range(2):
        page = (await ask(three, ANN, text))["data"]["products"]
        first, *others = page["nodes"]
        assert first["id"] == "r"
        assert others == sorted(others, key=lambda each: each["version"], reverse=True)
        then = await ask(three, ANN, past, token=page["resumeToken"])
        shown = [{"id": each["id"], "version": each["version"]} for each in page["nodes"]]
        assert [each["nodes"] for each in then["data"].values()] == [shown, shown]


async def test_a_cursor_belongs_to_its_order(three: Shop) -> None:
    """The same values in another order name another place."""
    text = """query($orders: [ProductOrder!], $after: String) {
      products(first: 1, orderBy: $orders, after: $after) { pageInfo { endCursor } } }"""
    one = await ask(three, ANN, text, orders=[{"supplier": {"rank": "ASC"}}])
    cursor = one["data"]["products"]["pageInfo"]["endCursor"]
    other = await ask(three, ANN, text, orders=[{"supplier": {"id": "ASC"}}], after=cursor)
    assert other["codes"] == ["BAD_USER_INPUT"]
    assert "expected a cursor of this list in this order" in other["messages"][0]
