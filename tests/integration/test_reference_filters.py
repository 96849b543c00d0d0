"""Filters through references on a real MongoDB, compared with a plain model: now, as of a moment,
and under the row rules of the other side.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from bson import Regex, encode
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.gql.engine.request import reference_targets
from revstream.gql.runtime.asgi_app import context_of
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import Principal
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.parser import parse_where
from revstream.resolvers.values import reference_ids
from tests.support.editing import Row, Shop, open_shop
from tests.support.exhaustive import examples, representatives

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = """
    type Product @collection(name: "products") {
      id: ID! price: Int
      supplierId: ID supplier: Supplier @reference(by: "supplierId")
      origin: Origin parts: [Part!]
      partnerIds: [ID!] partners: [Supplier!]! @reference(by: "partnerIds")
      auditId: ID audit: Audit @reference(by: "auditId")
    }
    type Origin { cityId: ID city: City @reference(by: "cityId") }
    type Part { size: Int makerId: ID maker: Supplier @reference(by: "makerId") }
    type Supplier @collection(name: "suppliers")
      @access(rows: "{ or: [{ hidden: { ne: true } }, { owner: { eq: $sub } }] }") {
      id: ID! rank: Int hidden: Boolean owner: String
      secret: Int @access(read: ["staff"])
      cityId: ID city: City @reference(by: "cityId")
      seat: Origin
      products: [Product!]! @referencedBy(field: "supplierId")
      partnerIn: [Product!]! @referencedBy(field: "partnerIds")
      audits: [Audit!]! @referencedBy(field: "supplierId")
    }
    type City @collection(name: "cities") {
      id: ID! size: Int suppliers: [Supplier!]! @referencedBy(field: "cityId")
    }
    type Audit @collection(name: "audits") @access(read: ["staff"]) {
      id: ID! result: Int supplierId: ID
    }
"""
MODEL = read_model(TEXT)
# Contents of versions are patches, which MongoDB cannot filter or sort.
DELTAS = read_model(re.sub(r'(name: "\w+")', r"\1, storage: DELTA", TEXT))
MODELS = representatives([MODEL, DELTAS], MODEL)
ANN, BOB = Principal(name="ann"), Principal(name="bob")
STAFF = Principal(name="eve", roles=frozenset({"staff"}))
World = Mapping[str, Mapping[str, Row]]
LINKS = {
    ("products", "supplier"): ("supplierId", "suppliers"),
    ("origin", "city"): ("cityId", "cities"),
    ("parts", "maker"): ("makerId", "suppliers"),
    ("suppliers", "city"): ("cityId", "cities"),
}
LIST_LINKS = {("products", "partners"): ("partnerIds", "suppliers")}
BACK_LINKS = {
    ("suppliers", "products"): ("supplierId", "products"),
    ("suppliers", "partnerIn"): ("partnerIds", "products"),
    ("cities", "suppliers"): ("cityId", "suppliers"),
}
QUANTIFIED: Mapping[str, Callable[[list[bool]], bool]] = {
    "some": any,
    "every": all,
    "none": lambda found: not any(found),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=MODELS, ids=["full", "deltas"])
async def shop(
    mongo_uri: str, client: MongoClient[Row], request: pytest.FixtureRequest
) -> AsyncIterator[Shop]:
    """Run a gateway over empty collections."""
    name = f"reference_filters_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=request.param) as shop:
        yield shop
    client.drop_database(name)


async def ask(shop: Shop, caller: Principal, text: str, **variables: Any) -> dict[str, Any]:
    context = context_of(shop.gateway, caller=caller)
    result = await shop.schema.execute(text, variables, context)
    codes = [(e.extensions or {}).get("code") for e in result.errors or ()]
    messages = [each.message for each in result.errors or ()]
    return {"data": result.data, "codes": codes, "messages": messages}


def related(world: World, caller: Principal, kind: str, document: Row, name: str) -> list[Row]:
    """Return the documents of a relation to many that the caller may see."""
    if (kind, name) in LIST_LINKS:
        by, target = LIST_LINKS[kind, name]
        ids = document.get(by) or []
        others = [{**each, "id": id_} for id_, each in world[target].items() if id_ in ids]
    else:
        by, target = BACK_LINKS[kind, name]
        others = [
            {**each, "id": id_}
            for id_, each in world[target].items()
            if document["id"] == each.get(by) or document["id"] in (each.get(by) or ())
        ]
    return [each for each in others if not each.get("hidden") or each.get("owner") == caller.name]


def matches(world: World, caller: Principal, kind: str, document: Any, where: Row) -> bool:
    """Return whether a document matches, in plain Python."""

    def entry(name: str, value: Any) -> bool:
        if name == "and":
            return all(matches(world, caller, kind, document, each) for each in value)
        if name == "or":
            return any(matches(world, caller, kind, document, each) for each in value)
        if name == "not":
            return not matches(world, caller, kind, document, value)
        if name == "origin":
            return matches(world, caller, name, document.get(name) or {}, value)
        if name == "parts":
            items = document.get(name) or []
            ((quantifier, inner),) = value.items()
            return QUANTIFIED[quantifier]([matches(world, caller, name, x, inner) for x in items])
        if (target := (LIST_LINKS | BACK_LINKS).get((kind, name))) is not None:
            others = related(world, caller, kind, document, name)
            return all(
                QUANTIFIED[each]([matches(world, caller, target[1], x, inner) for x in others])
                for each, inner in value.items()
            )
        if (kind, name) in LINKS:
            by, target = LINKS[kind, name]
            other = world[target].get(document.get(by))
            if other is None or (other.get("hidden") and other.get("owner") != caller.name):
                return False
            return matches(world, caller, target, {**other, "id": document[by]}, value)
        ((operator, operand),) = value.items()
        held = document.get(name)
        return {"eq": held == operand, "ne": held != operand, "gt": (held or 0) > operand}[operator]

    return all(entry(name, value) for name, value in where.items())


NUMBERS, IDS = st.integers(0, 2), st.sampled_from(["a", "b", "c"])
SOME_IDS = IDS | st.none() | st.just("gone")
CITIES = st.dictionaries(IDS, st.fixed_dictionaries({"size": NUMBERS}), max_size=3)
SUPPLIERS = st.dictionaries(
    IDS,
    st.fixed_dictionaries(
        {"rank": NUMBERS, "hidden": st.booleans(), "cityId": SOME_IDS},
        optional={"owner": st.just("ann")},
    ),
    max_size=3,
)
PRODUCTS = st.dictionaries(
    st.sampled_from("pqrstu"),
    st.fixed_dictionaries(
        {"price": NUMBERS},
        optional={
            "supplierId": SOME_IDS,
            "partnerIds": st.lists(IDS | st.just("gone"), max_size=2, unique=True),
            "origin": st.fixed_dictionaries({}, optional={"cityId": SOME_IDS}),
            "parts": st.lists(
                st.fixed_dictionaries({"size": NUMBERS, "makerId": SOME_IDS}), max_size=2
            ),
        },
    ),
    min_size=2,
    max_size=6,
)
WORLDS = st.fixed_dictionaries({"cities": CITIES, "suppliers": SUPPLIERS, "products": PRODUCTS})


def compared(name: str) -> st.SearchStrategy[Row]:
    return st.builds(
        lambda operator, operand: {name: {operator: operand}},
        st.sampled_from(["eq", "ne", "gt"]),
        NUMBERS,
    )


def combined(one: st.SearchStrategy[Row]) -> st.SearchStrategy[Row]:
    return (
        one
        | st.builds(lambda each: {"not": each}, one)
        | st.builds(lambda *two: {"or": list(two)}, one, one)
        | st.builds(lambda *two: {"and": list(two)}, one, one)
    )


def quantified(one: st.SearchStrategy[Row]) -> st.SearchStrategy[Row]:
    return st.dictionaries(st.sampled_from(list(QUANTIFIED)), one, min_size=1, max_size=2)


CITY_WHERES = st.just({}) | compared("size")
SUPPLIER_WHERES = combined(
    st.just({}) | compared("rank") | st.builds(lambda each: {"city": each}, CITY_WHERES)
)
PART_WHERES = combined(compared("size") | st.builds(lambda each: {"maker": each}, SUPPLIER_WHERES))
PRODUCTS_FILTERS = quantified(compared("price") | st.just({}))
PRODUCT_WHERES = combined(
    compared("price")
    | st.builds(lambda each: {"partners": each}, quantified(SUPPLIER_WHERES))
    | st.builds(lambda each: {"supplier": {"products": each}}, PRODUCTS_FILTERS)
    | st.builds(lambda each: {"supplier": each}, SUPPLIER_WHERES)
    | st.builds(lambda each: {"origin": {"city": each}}, CITY_WHERES)
    | st.builds(
        lambda quantifier, each: {"parts": {quantifier: each}},
        st.sampled_from(["some", "every", "none"]),
        PART_WHERES,
    )
)
SUPPLIER_LIST_WHERES = combined(
    compared("rank")
    | st.builds(
        lambda name, each: {name: each},
        st.sampled_from(["products", "partnerIn"]),
        PRODUCTS_FILTERS,
    )
    | st.builds(
        lambda each: {"products": each},
        quantified(st.builds(lambda each: {"partners": each}, quantified(compared("rank")))),
    )
    | st.builds(lambda each: {"city": {"suppliers": each}}, quantified(compared("rank")))
)
QUERIES = {
    kind: f"""query($where: {type_}Where, $asOf: TimePoint!) {{
      now: {kind}(where: $where, first: 50) {{ nodes {{ id }} totalCount }}
      then: {kind}AsOf(where: $where, asOf: $asOf, first: 50) {{
        nodes {{ documentId }} totalCount }}
    }}"""
    for kind, type_ in (("products", "Product"), ("suppliers", "Supplier"))
}


def store(shop: Shop, world: World) -> None:
    for name, documents in world.items():
        collection = shop.database[name]
        collection.delete_many({})
        if documents:
            collection.insert_many([{"_id": id_, **each} for id_, each in documents.items()])


@settings(
    deadline=None,
    max_examples=examples(8),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    # The failure names the filter; shrinking would take minutes.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(
    before=WORLDS,
    after=WORLDS,
    asked=st.lists(
        st.tuples(st.just("products"), PRODUCT_WHERES)
        | st.tuples(st.just("suppliers"), SUPPLIER_LIST_WHERES),
        min_size=6,
        max_size=10,
    ),
)
async def test_answers_equal_those_of_a_plain_model(
    shop: Shop, before: World, after: World, asked: list[tuple[str, Row]]
) -> None:
    """Each moment has its own targets, and a hidden target is none."""
    store(shop, before)
    token = (await ask(shop, ANN, "{ resumeToken }"))["data"]["resumeToken"]
    store(shop, after)
    for kind, where in asked:
        for caller in (ANN, BOB):
            # A document that is new is executed by graphql-core, a known one is compiled.
            text = QUERIES[kind] if caller is ANN else f"{QUERIES[kind]} # {uuid4()}"
            found = await ask(shop, caller, text, where=where, asOf={"token": token})
            if found["codes"] == ["LIMIT_EXCEEDED"]:
                assert "references in a filter" in found["messages"][0]
                continue
            assert found["codes"] == [], (where, found)
            for key, name, world in (("now", "id", after), ("then", "documentId", before)):
                page = found["data"][key]
                expected = [
                    id_
                    for id_, each in sorted(world[kind].items())
                    if (not each.get("hidden") or each.get("owner") == caller.name)
                    and matches(world, caller, kind, {**each, "id": id_}, where)
                ]
                assert sorted(each[name] for each in page["nodes"]) == expected, (where, key)
                assert page["totalCount"] == len(expected)


@pytest.fixture
def three(shop: Shop) -> Shop:
    """Return the shop with a product of a supplier of rank 1, and two of one of rank 2."""
    store(
        shop,
        {
            "cities": {},
            "suppliers": {
                "a": {"rank": 1, "secret": 1},
                "b": {"rank": 2, "secret": 2},
            },
            "products": {
                "p": {"price": 1, "supplierId": "a"},
                "q": {"price": 2, "supplierId": "b"},
                "r": {"price": 3, "supplierId": "b"},
            },
        },
    )
    return shop


async def test_a_repeated_query_sees_the_targets_of_its_time(three: Shop) -> None:
    """A compiled query keeps its reads, but not the ids of targets."""
    text = "{ products(where: {supplier: {rank: {eq: 2}}}) { nodes { id } } }"
    for rank, expected in ((2, ["q", "r"]), (3, []), (2, ["q", "r"]), (2, ["q", "r"]), (1, [])):
        three.database["suppliers"].update_one({"_id": "b"}, {"$set": {"rank": rank}})
        found = await ask(three, ANN, text)
        assert [each["id"] for each in found["data"]["products"]["nodes"]] == expected


async def test_back_references_are_filtered_through_references(three: Shop) -> None:
    """Now, and as of the moment of the document."""
    text = """query($asOf: TimePoint!) {
      suppliers { nodes { id products(where: {supplier: {rank: {gt: 1}}}) { totalCount } } }
      suppliersAsOf(asOf: $asOf) { nodes { document {
        products(where: {supplier: {rank: {gt: 1}}}) { totalCount } } } }
    }"""
    token = (await ask(three, ANN, "{ resumeToken }"))["data"]["resumeToken"]
    three.database["suppliers"].update_many({}, {"$set": {"rank": 0}})
    found = await ask(three, ANN, text, asOf={"token": token})
    assert found["codes"] == []
    counts = [each["products"]["totalCount"] for each in found["data"]["suppliers"]["nodes"]]
    assert counts == [0, 0]
    past = found["data"]["suppliersAsOf"]["nodes"]
    assert [each["document"]["products"]["totalCount"] for each in past] == [0, 2]


async def test_a_filter_through_a_reference_has_one_moment(three: Shop) -> None:
    """In a history each version has its own, and each would need targets of its own."""
    text = """query($where: ProductWhere) { supplier(id: "b") {
      history(first: 2) { nodes { document { products(where: $where) { totalCount } } } }
    } }"""
    three.database["suppliers"].update_one({"_id": "b"}, {"$set": {"rank": 3}})
    # Waits for both versions.
    await ask(three, ANN, "{ suppliers(where: {version: {gt: 0}}) { totalCount } }")
    for where in ({"supplier": {"rank": {"gt": 1}}}, {"partners": {"none": {}}}):
        found = await ask(three, ANN, text, where=where)
        assert found["codes"][0] == "BAD_USER_INPUT"
        assert found["messages"][0] == (
            "Product: a filter through a reference at 2 time points, expected one; filter by the "
            "field with the id, or read one time point"
        )
    assert (await ask(three, ANN, text, where={"price": {"gt": 1}}))["codes"] == []


@pytest.mark.parametrize("quantifier", ["some", "every", "none"])
async def test_a_back_reference_does_not_reveal_what_the_caller_may_not_read(
    three: Shop, quantifier: str
) -> None:
    """Neither a hidden field of the documents on the other side, nor the field that refers."""
    for field in (
        "cities(where: {suppliers: {QUANTIFIER: {secret: {gt: 1}}}})",
        "products(where: {partners: {QUANTIFIER: {secret: {gt: 1}}}})",
        "suppliers(where: {audits: {QUANTIFIER: {}}})",
    ):
        text = f"{{ {field.replace('QUANTIFIER', quantifier)} {{ totalCount }} }}"
        assert (await ask(three, ANN, text))["codes"] == ["FORBIDDEN"]
        assert (await ask(three, STAFF, text))["codes"] == []


async def test_the_number_of_ids_of_a_back_reference_is_bounded(
    three: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many documents hold them, now and then."""
    token = (await ask(three, ANN, "{ resumeToken }"))["data"]["resumeToken"]
    monkeypatch.setattr(reference_targets, "MOST_TARGETS", 1)
    for field in ("suppliers(", f'suppliersAsOf(asOf: {{token: "{token}"}}, '):
        text = "{ found: %swhere: {products: {some: {price: {gt: %s}}}}) { totalCount } }"
        found = await ask(three, ANN, text % (field, 1))
        assert found["data"] == {"found": {"totalCount": 1}}
        refused = await ask(three, ANN, text % (field, 0))
        assert refused["codes"] == ["LIMIT_EXCEEDED"]
        assert refused["messages"] == [
            "Product.supplierId: more than 1 ids are held by matches of the filter through a "
            "reference, which is the maximum; add conditions"
        ]


async def test_values_that_are_no_ids_lead_to_no_document(three: Shop) -> None:
    """A regular expression in a field of an id is no pattern for ids, now and as of a moment."""
    odd = [Regex(".*"), {"$x": 1}, {"$ref": 1, "$id": 2}, ["b", Regex("a")]]
    three.database["products"].insert_many(
        {"_id": f"odd{n}", "price": 99, "supplierId": each, "partnerIds": odd}
        for n, each in enumerate(odd)
    )
    token = (await ask(three, ANN, "{ resumeToken }"))["data"]["resumeToken"]
    for relation in ("products", "partnerIn"):
        where = {relation: {"some": {"price": {"eq": 99}}}}
        found = await ask(three, ANN, QUERIES["suppliers"], where=where, asOf={"token": token})
        assert found["codes"] == []
        expected = ["b"] if relation == "products" else []
        assert [each["id"] for each in found["data"]["now"]["nodes"]] == expected
        assert [each["documentId"] for each in found["data"]["then"]["nodes"]] == expected


async def test_ids_that_show_alike_lead_to_documents(three: Shop) -> None:
    """Programs store the id of one document as a text and as a number."""
    three.database["suppliers"].insert_one({"_id": 7, "rank": 5})
    three.database["products"].insert_many(
        [{"_id": "s", "price": 7, "supplierId": "7"}, {"_id": "t", "partnerIds": ["7"]}]
    )
    text = """{
      suppliers(where: {products: {some: {price: {eq: 7}}}}) { nodes { id } }
      products(where: {partners: {some: {rank: {eq: 5}}}}) { nodes { id } }
    }"""
    found = await ask(three, ANN, text)
    assert found["data"] == {
        "suppliers": {"nodes": [{"id": "7"}]},
        "products": {"nodes": [{"id": "t"}]},
    }


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            {"products": {"all": {}}},
            "Supplier.products: 'all', expected one of some, every, none",
        ),
        (
            {"products": {"some": None}},
            "Supplier.products.some: null, expected an object of conditions; {} matches every",
        ),
        (
            {"products": None},
            "Supplier.products: null, expected an object with some, every or none",
        ),
    ],
)
async def test_a_wrong_condition_on_related_documents_is_refused(where: Row, message: str) -> None:
    """The message says what is expected."""
    with pytest.raises(BadUserInput) as refused:
        parse_where(MODEL, MODEL.entity("Supplier"), where)
    assert refused.value.message.startswith(message)


@pytest.mark.parametrize(
    ("where", "code"),
    [
        ("{audit: {result: {eq: 1}}}", "FORBIDDEN"),
        ("{audit: {}}", "FORBIDDEN"),
        ("{supplier: {secret: {gt: 1}}}", "FORBIDDEN"),
        ("{not: {supplier: {secret: {gt: 1}}}}", "FORBIDDEN"),
        ("{supplier: null}", "BAD_USER_INPUT"),
    ],
)
async def test_a_reference_does_not_reveal_what_the_caller_may_not_read(
    three: Shop, where: str, code: str
) -> None:
    """The types and fields of the other side are checked as anywhere."""
    text = f"{{ products(where: {where}) {{ totalCount }} }}"
    assert (await ask(three, ANN, text))["codes"] == [code]
    if code == "FORBIDDEN":
        assert (await ask(three, STAFF, text))["codes"] == []


async def test_the_number_of_targets_is_bounded(
    three: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their ids are part of the query."""
    monkeypatch.setattr(reference_targets, "MOST_TARGETS", 1)
    text = "{ products(where: {supplier: {rank: {gt: %s}}}) { totalCount } }"
    assert (await ask(three, ANN, text % 1))["data"]["products"]["totalCount"] == 2
    refused = await ask(three, ANN, text % 0)
    assert refused["codes"] == ["LIMIT_EXCEEDED"]
    assert refused["messages"][0].startswith("Supplier: more than 1 documents match the filter")


async def test_the_ids_of_targets_are_bounded_in_bytes(
    three: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command of more than 16 MB is one that MongoDB refuses."""
    text = "{ products(where: {supplier: {rank: {gt: %s}}}) { totalCount } }"
    size = len(encode({"": ["a"]}))
    monkeypatch.setattr(reference_ids, "MOST_ID_BYTES", size)
    assert (await ask(three, ANN, text % 1))["data"]["products"]["totalCount"] == 2
    refused = await ask(three, ANN, text % 0)
    assert refused["codes"] == ["LIMIT_EXCEEDED"]
    assert re.fullmatch(
        rf"Supplier: \d+ bytes of ids of related documents, maximum is {size}; add conditions, "
        "so that fewer documents match",
        refused["messages"][0],
    )


async def test_the_number_of_references_is_bounded(three: Shop) -> None:
    """Each is a read of its own."""
    text = "query($w: ProductWhere) { products(where: $w) { totalCount } }"
    some = [{"supplier": {"rank": {"eq": 2}}}] * 5
    assert (await ask(three, ANN, text, w={"and": some}))["data"]["products"]["totalCount"] == 2
    refused = await ask(three, ANN, text, w={"and": [*some, {"supplier": {}}]})
    assert refused["codes"] == ["LIMIT_EXCEEDED"]
    assert refused["messages"] == ["references in a filter: 6, maximum is 5; use fewer"]


async def test_an_aggregate_counts_through_a_reference(three: Shop) -> None:
    """Its filter is that of the list."""
    text = "{ productsAggregate(where: {supplier: {rank: {eq: 2}}}) { count } }"
    assert (await ask(three, ANN, text))["data"] == {"productsAggregate": {"count": 2}}


@pytest.mark.parametrize(
    ("field", "name", "mend"),
    [
        (
            "productChanges(where: {or: [{supplier: {rank: {eq: 1}}}]})",
            "Product.supplier",
            "the field with the id",
        ),
        (
            "supplierChanges(where: {not: {products: {every: {}}}})",
            "Supplier.products.every",
            "fields of the document",
        ),
    ],
)
async def test_a_subscription_refuses_references_in_its_filter(
    three: Shop, field: str, name: str, mend: str
) -> None:
    """Changes of the other document would not be seen."""
    text = f"subscription {{ {field} {{ kind }} }}"
    context = context_of(three.gateway, caller=ANN)
    result = await three.schema.subscribe(text, {}, context)
    errors = getattr(result, "errors", None) or [
        error async for each in result for error in each.errors or ()
    ]
    assert errors[0].message == (
        f"{name}: a filter through a reference, which subscriptions do not support, "
        f"because changes of the other document would not be seen; filter by {mend}"
    )
    assert errors[0].extensions["code"] == "BAD_USER_INPUT"


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ('supplierChanges(where: {not: {owner: {matches: "a"}}})', "Supplier.owner.matches"),
        ('allDraftChanges(where: {author: {matches: "a"}})', "DraftWhere.author.matches"),
    ],
)
async def test_a_subscription_refuses_regular_expressions(
    three: Shop, field: str, name: str
) -> None:
    """Only MongoDB evaluates them."""
    text = f"subscription {{ {field} {{ kind }} }}"
    result = await three.schema.subscribe(text, {}, context_of(three.gateway, caller=ANN))
    errors = getattr(result, "errors", None) or [
        error async for each in result for error in each.errors or ()
    ]
    assert errors[0].message == (
        f"{name}: a regular expression, which subscriptions do not support, because only MongoDB "
        "evaluates it; use startsWith, endsWith or contains"
    )
