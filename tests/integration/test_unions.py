"""Unions and interfaces of embedded documents: reads, filters, writes, histories, access."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import context_of
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import Principal
from revstream.resolvers.admin.data_sample import examine_data
from revstream.resolvers.filters.parser import parse_where
from revstream.resolvers.filters.predicate import compile_predicate
from revstream.streams.core import resume_tokens
from tests.support.editing import Row, Shop, open_shop
from tests.support.exhaustive import examples

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = read_model(
    """
    type Order @collection(name: "orders")
      @access(
        rows: "{ or: [{ payment: { card: { limit: { lt: 9 } } } }, { hidden: { ne: true } }] }"
      ) {
      id: ID!
      hidden: Boolean
      payment: Payment
      refunds: [Payment!]
      contact: Contact
    }
    union Payment @discriminator(field: "kind") = Card | Transfer | Cash
    type Card @variant(value: "card") {
      limit: Int! holder: String secret: String @access(read: ["staff"], write: ["staff"])
    }
    type Transfer { limit: Int iban: String! @stored(as: "IBAN") }
    type Cash @variant(value: "cash")
    interface Contact @discriminator(field: "type", storedAs: "_class") { name: String! }
    type Person implements Contact @variant(value: "shop.Person") { name: String! age: Int }
    type Company implements Contact { name: String! boss: Contact }
    """
)
FIELDS = """
  id
  payment { __typename kind ...P }
  refunds { ...P }
  contact { type name ... on PersonState { age } ... on CompanyState { boss { name type } } }
"""
FRAGMENT = """
  fragment P on PaymentState {
    kind ... on CardState { limit holder } ... on TransferState { iban some: limit }
  }
"""
STAFF = Principal(name="eve", roles=frozenset({"staff"}))
LIMITS = st.none() | st.integers(0, 12)


def payments() -> st.SearchStrategy[Row]:
    """Draw stored payments of each type, with fields of other types, too."""
    return st.one_of(
        st.builds(
            lambda limit, holder, secret: {
                "kind": "card",
                "limit": limit,
                "holder": holder,
                "secret": secret,
                "IBAN": "none",
            },
            st.integers(0, 12),
            st.sampled_from([None, "ann", "bob"]),
            st.sampled_from(["a", "b"]),
        ),
        st.builds(
            lambda limit, iban: {"kind": "Transfer", "limit": limit, "IBAN": iban, "holder": "ann"},
            LIMITS,
            st.sampled_from(["DE1", "FR2"]),
        ),
        st.just({"kind": "cash"}),
    )


def contacts(depth: int = 0) -> st.SearchStrategy[Row]:
    """Draw stored contacts; a company's boss is a contact, too."""
    names = st.sampled_from(["x", "y"])
    person = st.builds(lambda n, a: {"_class": "shop.Person", "name": n, "age": a}, names, LIMITS)
    boss = st.none() if depth else st.none() | contacts(1)
    return person | st.builds(lambda n, b: {"_class": "Company", "name": n, "boss": b}, names, boss)


ORDERS = st.fixed_dictionaries(
    {},
    optional={
        "hidden": st.booleans(),
        "payment": st.none() | payments(),
        "refunds": st.lists(payments(), max_size=3),
        "contact": contacts(),
    },
)
MEMBERS = {"card": "card", "transfer": "Transfer", "cash": "cash"}
STORED = {"iban": "IBAN", "type": "_class"}
KEYS = {"kind": MEMBERS, "type": {"person": "shop.Person", "company": "Company"}}


def wheres(depth: int = 0) -> st.SearchStrategy[Row]:
    """Draw filters of orders over members, shared fields and lists."""
    number = st.builds(
        lambda o, n: {o: n}, st.sampled_from(["eq", "ne", "lt", "gte"]), st.integers(0, 12)
    )
    word = st.builds(
        lambda o, text: {o: text},
        st.sampled_from(["eq", "ne"]),
        st.sampled_from(["ann", "DE1", "x", "card", "Company"]),
    )
    member = st.one_of(
        st.builds(lambda w: {"card": w}, st.just({}) | st.fixed_dictionaries({"limit": number})),
        st.builds(lambda w: {"card": {"not": {"holder": w}}}, word),
        st.builds(lambda w: {"transfer": {"iban": w}}, word),
        st.just({"cash": {}}),
        st.builds(lambda w: {"kind": w}, word),
    )
    contact = st.one_of(
        st.builds(lambda w: {"name": w}, word),
        st.builds(lambda w: {"person": {"age": w}}, number),
        st.builds(lambda w: {"company": {"boss": {"name": w}}}, word),
        st.builds(lambda w: {"company": {"boss": {"person": {"age": w}}}}, number),
    )
    one = st.one_of(
        st.builds(lambda w: {"payment": w}, member),
        st.builds(lambda e: {"payment": {"exists": e}}, st.booleans()),
        st.builds(lambda w: {"contact": w}, contact),
        st.builds(
            lambda q, w: {"refunds": {q: w}}, st.sampled_from(["some", "every", "none"]), member
        ),
    )
    if depth > 1:
        return one
    return (
        one
        | st.builds(lambda w: {"not": w}, wheres(depth + 1))
        | st.builds(lambda ws: {"or": ws}, st.lists(wheres(depth + 1), min_size=1, max_size=2))
    )


def matches(document: Any, where: Row) -> bool:
    """Return whether a document matches, in plain Python."""
    document = document or {}

    def entry(name: str, value: Any) -> bool:
        if name == "not":
            return not matches(document, value)
        if name == "or":
            return any(matches(document, each) for each in value)
        if name == "exists":
            return bool(document) is value
        for discriminator, members in KEYS.items():
            if name in members:
                stored = document.get(STORED.get(discriminator, discriminator))
                return stored == members[name] and matches(document, value)
        found = document.get(STORED.get(name, name))
        if name in ("payment", "contact", "boss"):
            return matches(found, value)
        if name == "refunds":
            [(quantifier, inner)] = value.items()
            each = [matches(item, inner) for item in found or []]
            there = isinstance(found, list)
            return {"some": any(each), "none": not any(each), "every": all(each)}[quantifier] or (
                not there and quantifier != "some"
            )
        [(operator, operand)] = value.items()
        return {
            "eq": lambda: found == operand,
            "ne": lambda: found != operand,
            "lt": lambda: found is not None and found < operand,
            "gte": lambda: found is not None and found >= operand,
        }[operator]()

    return all(entry(name, value) for name, value in where.items())


def visible(document: Row) -> bool:
    """Return whether the row rule lets the callers of these tests see an order."""
    payment = document.get("payment") or {}
    is_low = payment.get("kind") == "card" and payment["limit"] < 9
    return is_low or document.get("hidden") is not True


def shown_payment(stored: Mapping[str, Any]) -> Row:
    """Return what the fragment P selects."""
    match stored["kind"]:
        case "card":
            return {"kind": "card", "limit": stored["limit"], "holder": stored["holder"]}
        case "Transfer":
            return {"kind": "Transfer", "iban": stored["IBAN"], "some": stored["limit"]}
    return {"kind": "cash"}


def shown_contact(stored: Mapping[str, Any]) -> Row:
    shown: Row = {"type": stored["_class"], "name": stored["name"]}
    if stored["_class"] == "shop.Person":
        return {**shown, "age": stored["age"]}
    boss = stored["boss"]
    return {**shown, "boss": boss and {"name": boss["name"], "type": boss["_class"]}}


def shown_order(stored: Mapping[str, Any], suffix: str = "") -> Row:
    """Return what the API shows of a stored order."""
    payment, contact, refunds = (stored.get(each) for each in ("payment", "contact", "refunds"))
    names = {"card": "Card", "Transfer": "Transfer", "cash": "Cash"}
    return {
        "id": stored["_id"],
        "payment": payment
        and {"__typename": names[payment["kind"]] + suffix, **shown_payment(payment)},
        "refunds": None if refunds is None else [shown_payment(each) for each in refunds],
        "contact": contact and shown_contact(contact),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(mongo_uri: str, client: MongoClient[Row]) -> AsyncIterator[Shop]:
    """Run a gateway over orders."""
    name = f"unions_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=MODEL) as shop:
        yield shop
    client.drop_database(name)


async def ask(shop: Shop, text: str, caller: Principal = STAFF, **variables: Any) -> Any:
    context = context_of(shop.gateway, caller=caller)
    return await shop.schema.execute(text, variables, context)


READ = f"""
  query($where: OrderWhere) {{
    orders(where: $where, first: 50) {{ totalCount nodes {{ {FIELDS} }} }}
  }} {FRAGMENT}
"""
READ_THEN = f"""
  query($where: OrderWhere, $at: ResumeToken!) {{
    ordersAsOf(where: $where, asOf: {{ token: $at }}, first: 50) {{
      nodes {{ document {{ {FIELDS} }} }}
    }}
  }} {FRAGMENT}
"""


@settings(
    deadline=None,
    max_examples=examples(8),
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    first=st.lists(ORDERS, min_size=3, max_size=6),
    second=st.lists(ORDERS, max_size=6),
    filters=st.lists(wheres(), min_size=3, max_size=6),
)
async def test_reads_and_filters_equal_plain_python(
    shop: Shop, first: list[Row], second: list[Row], filters: list[Row]
) -> None:
    """Each filter finds the same documents now, at an earlier moment and under a row rule."""
    orders = shop.database["orders"]
    orders.delete_many({})
    states = []
    for drawn in (first, second):
        for number, each in enumerate(drawn):
            orders.replace_one({"_id": f"o{number}"}, each, upsert=True)
        stored = sorted(orders.find(), key=lambda each: str(each["_id"]))
        moment = await shop.gateway.mongo.operation_time()
        token = resume_tokens.encode(resume_tokens.token_from_time(moment), shop.gateway.deployment)
        states.append((stored, token))
    for where in filters:
        predicate = compile_predicate(parse_where(MODEL, MODEL.entities[0], where))
        assert all(predicate(each) is matches(each, where) for each in states[1][0])
        seen = [each for each in states[1][0] if visible(each) and matches(each, where)]
        for _ in range(2):  # by graphql-core, and compiled
            result = await ask(shop, READ, where=where)
            assert result.errors is None
            found = result.data["orders"]
            assert found["nodes"] == [shown_order(each) for each in seen]
            assert found["totalCount"] == len(seen)
        then = [each for each in states[0][0] if visible(each) and matches(each, where)]
        result = await ask(shop, READ_THEN, where=where, at=states[0][1])
        assert result.errors is None
        nodes = [each["document"] for each in result.data["ordersAsOf"]["nodes"]]
        for each in nodes:
            each["id"] = each["id"].split("@")[0]
        assert nodes == [shown_order(each, "Snapshot") for each in then]


async def write(shop: Shop, name: str, caller: Principal = STAFF, **given: Any) -> Row:
    """Execute a mutation, and return its result; the refusals have a message."""
    kinds = {"id": "ID!", "document": "OrderInput!", "patch": "OrderPatch!", "draft": "Int!"}
    declared = ", ".join(f"${each}: {kinds[each]}" for each in given)
    passed = ", ".join(f"{each}: ${each}" for each in given)
    drafted = "... on OrderDrafted { draft { number } }" if name == "proposeOrder" else ""
    written = "" if drafted else f"... on OrderWritten {{ order {{ {FIELDS} }} }}"
    text = f"""
      mutation({declared}) {{
        result: {name}({passed}) {{
          __typename ... on WriteError {{ message }} {written} {drafted}
        }}
      }} {"" if drafted else FRAGMENT}
    """
    result = await ask(shop, text, caller, **given)
    if result.errors:
        return {"code": result.errors[0].extensions["code"], "message": result.errors[0].message}
    found: Row = result.data["result"]
    return found


def stored(shop: Shop, key: str) -> Row:
    """Return the stored payment of an order."""
    found = shop.database["orders"].find_one({"_id": key})
    assert found is not None
    payment: Row = found["payment"]
    return payment


async def test_writes_store_the_discriminator_and_merge_within_a_type(shop: Shop) -> None:
    """A patch keeps what the type has already, and replaces a document of another type."""
    card = {"card": {"limit": 3, "holder": "ann"}}
    made = await write(
        shop,
        "createOrder",
        id="w1",
        document={
            "payment": card,
            "refunds": [{"cash": True}, {"transfer": {"iban": "DE1"}}],
            "contact": {"company": {"name": "x", "boss": {"person": {"name": "y", "age": 5}}}},
        },
    )
    shown = {"kind": "card", "limit": 3, "holder": "ann"}
    assert made["order"]["payment"] == {"__typename": "Card", **shown}
    assert made["order"]["refunds"] == [
        {"kind": "cash"},
        {"kind": "Transfer", "iban": "DE1", "some": None},
    ]
    boss = {"name": "y", "type": "shop.Person"}
    assert made["order"]["contact"] == {"type": "Company", "name": "x", "boss": boss}
    assert stored(shop, "w1") == {"kind": "card", "limit": 3, "holder": "ann"}

    # What other programs store there stays.
    shop.database["orders"].update_one({"_id": "w1"}, {"$set": {"payment.note": "kept"}})
    await write(shop, "updateOrder", id="w1", patch={"payment": {"card": {"holder": "bob"}}})
    assert stored(shop, "w1") == {"kind": "card", "limit": 3, "holder": "bob", "note": "kept"}
    refused = await write(
        shop, "updateOrder", id="w1", patch={"payment": {"transfer": {"limit": 1}}}
    )
    assert refused == {
        "__typename": "InvalidDocument",
        "message": "payment.transfer.iban: missing, expected a value for Transfer.iban; pass one",
    }
    await write(shop, "updateOrder", id="w1", patch={"payment": {"transfer": {"iban": "FR2"}}})
    assert stored(shop, "w1") == {"kind": "Transfer", "IBAN": "FR2"}
    await write(shop, "updateOrder", id="w1", patch={"payment": {"cash": True}})
    assert stored(shop, "w1") == {"kind": "cash"}
    refused = await write(shop, "updateOrder", id="w1", patch={"payment": {"cash": False}})
    assert refused["message"].startswith("payment.cash: false, expected true")
    refused = await write(
        shop, "updateOrder", id="w1", patch={"payment": {"cash": True, "card": {"limit": 1}}}
    )
    assert refused["code"] == "BAD_USER_INPUT"
    refused = await write(shop, "updateOrder", id="w1", patch={"payment": {"card": {}}})
    assert refused["message"].startswith("payment.card.limit: missing, expected a value")


async def test_histories_name_the_fields_of_each_type(shop: Shop) -> None:
    """A document that becomes another type loses the fields of the one, and gets the other's."""
    orders = shop.database["orders"]
    orders.insert_one({"_id": "h1", "payment": {"kind": "card", "limit": 3, "secret": "s"}})
    orders.update_one({"_id": "h1"}, {"$set": {"payment.limit": 4}})
    orders.replace_one(
        {"_id": "h1"}, {"payment": {"kind": "Transfer", "limit": 4, "IBAN": "DE1", "secret": "s"}}
    )
    await shop.recorded()
    text = f"""{{
      orderVersions(where: {{ documentId: {{ eq: "h1" }} }}) {{
        nodes {{ changedFields diff {{ path kind before after }} document {{ {FIELDS} }} }}
      }}
      order(id: "h1") {{ blame {{ path value version {{ version }} }} }}
    }} {FRAGMENT}"""
    for _ in range(2):
        result = await ask(shop, text)
        assert result.errors is None
        last, middle, _ = result.data["orderVersions"]["nodes"]
        assert middle["changedFields"] == ["payment.limit"]
        assert middle["document"]["payment"]["__typename"] == "CardSnapshot"
        assert last["changedFields"] == ["payment.kind", "payment.iban"]
        assert [tuple(each.values()) for each in last["diff"]] == [
            ("payment.kind", "CHANGED", "card", "Transfer"),
            ("payment.iban", "ADDED", None, "DE1"),
        ]
        blame = {each["path"]: each["version"]["version"] for each in result.data["order"]["blame"]}
        assert blame == {"payment.kind": 3, "payment.limit": 2, "payment.iban": 3}
    found = await ask(
        shop,
        """{ orderVersions(where: { documentId: { eq: "h1" }, changedField: "payment.iban" }) {
          nodes { version } } }""",
    )
    # The first version brought the whole payment.
    assert [each["version"] for each in found.data["orderVersions"]["nodes"]] == [3, 1]


async def test_unknown_types_are_misfits_of_the_field(shop: Shop) -> None:
    """The field is null and the rest of the order is served; doctor's sample says the same."""
    orders = shop.database["orders"]
    orders.delete_many({})
    orders.insert_one({"_id": "m1", "payment": {"kind": "crd", "limit": 1}})
    orders.insert_one({"_id": "m2", "refunds": [{"limit": 1}, {"kind": "cash"}]})
    message = (
        "orders/m1: payment: a document with kind string 'crd', expected Payment with kind one "
        "of card, Transfer, cash"
    )
    for _ in range(2):
        result = await ask(shop, READ)
        codes = [(each.extensions["code"], each.path) for each in result.errors]
        assert codes == [
            ("DOCUMENT_MISFIT", ["orders", "nodes", 0, "payment"]),
            ("DOCUMENT_MISFIT", ["orders", "nodes", 1, "refunds"]),
        ]
        assert result.errors[0].message.startswith(message)
        assert [each["id"] for each in result.data["orders"]["nodes"]] == ["m1", "m2"]
    findings = [each.text for each in await examine_data(shop.gateway.mongo, MODEL)]
    assert len(findings) == 2
    assert message in " ".join(findings)
    orders.delete_many({})


async def test_changes_are_filtered_by_type(shop: Shop) -> None:
    """A document that becomes another type leaves a subscription to the one."""
    text = f"""subscription {{
      orderChanges(where: {{ payment: {{ card: {{ limit: {{ lt: 5 }} }} }} }}) {{
        kind transition changedFields order {{ {FIELDS} }}
      }}
    }} {FRAGMENT}"""
    orders = shop.database["orders"]
    async with shop.changes(text) as events:
        assert (await anext(events))["kind"] == "CHECKPOINT"
        orders.insert_one({"_id": "s1", "payment": {"kind": "cash"}})
        orders.insert_one({"_id": "s2", "payment": {"kind": "card", "limit": 1, "holder": None}})
        orders.update_one({"_id": "s2"}, {"$set": {"payment": {"kind": "Transfer", "IBAN": "a"}}})
        entered, left = [await anext(events) for _ in range(2)]
    assert (entered["transition"], entered["order"]["id"]) == ("ENTER", "s2")
    shown = {"__typename": "Card", "kind": "card", "limit": 1, "holder": None}
    assert entered["order"]["payment"] == shown
    assert left["transition"] == "LEAVE"
    assert left["order"]["payment"]["__typename"] == "Transfer"


async def test_a_field_of_one_member_is_hidden_wherever_it_would_show(shop: Shop) -> None:
    """A caller without the role reads the other members, and neither filters nor writes by it."""
    bob = Principal(name="bob")
    orders = shop.database["orders"]
    orders.insert_one({"_id": "a1", "payment": {"kind": "card", "limit": 3, "secret": "s"}})
    orders.update_one({"_id": "a1"}, {"$set": {"payment.secret": "t"}})
    await shop.recorded()

    async def refused(text: str) -> bool:
        result = await ask(shop, text, bob)
        return bool(result.errors) and result.errors[0].extensions["code"] == "FORBIDDEN"

    selected = '{ order(id: "a1") { payment { ... on Card { limit secret } } } }'
    assert await refused(selected)
    assert (await ask(shop, selected)).data["order"]["payment"] == {"limit": 3, "secret": "t"}
    where = '{ payment: { card: { secret: { eq: "t" } } } }'
    assert await refused(f"{{ orders(where: {where}) {{ totalCount }} }}")
    named = '{ documentId: { eq: "a1" }, changedField: "payment.secret" }'
    assert await refused(f"{{ orderVersions(where: {named}) {{ totalCount }} }}")
    result = await ask(
        shop,
        """{ orderVersions(where: { documentId: { eq: "a1" } }) {
          nodes { changedFields diff { path before after } } }
          order(id: "a1") { blame { path } } }""",
        bob,
    )
    first = {"kind": "card", "limit": 3}
    assert result.data["orderVersions"]["nodes"] == [
        {"changedFields": [], "diff": []},
        {
            "changedFields": ["payment"],
            "diff": [{"path": "payment", "before": None, "after": first}],
        },
    ]
    paths = [each["path"] for each in result.data["order"]["blame"]]
    assert paths == ["payment.kind", "payment.limit"]
    for patch in ({"card": {"secret": "u"}}, {"cash": True}, {"transfer": {"iban": "x"}}):
        denied = await write(shop, "updateOrder", bob, id="a1", patch={"payment": patch})
        assert denied["code"] == "FORBIDDEN", patch
    allowed = await write(
        shop, "updateOrder", bob, id="a1", patch={"payment": {"card": {"limit": 4}}}
    )
    assert allowed["order"]["payment"]["limit"] == 4


async def test_a_draft_conflicts_with_another_type(shop: Shop) -> None:
    """A draft of a card's field is not merged into a transfer."""
    orders = shop.database["orders"]
    for key, patch in (("d1", {"card": {"holder": "bob"}}), ("d2", {"card": {"holder": "bob"}})):
        orders.insert_one({"_id": key, "payment": {"kind": "card", "limit": 3, "holder": "ann"}})
        await shop.recorded()
        drafted = await write(shop, "proposeOrder", id=key, patch={"payment": patch})
        assert drafted["draft"] == {"number": 1}
    orders.update_one({"_id": "d1"}, {"$set": {"payment.limit": 5}})
    orders.update_one({"_id": "d2"}, {"$set": {"payment.kind": "Transfer", "payment.IBAN": "x"}})
    await shop.recorded()
    published = await write(shop, "publishOrder", id="d1", draft=1)
    assert stored(shop, "d1")["limit"] == 5
    assert published["order"]["payment"]["holder"] == "bob"
    refused = await write(shop, "publishOrder", id="d2", draft=1)
    assert refused["__typename"] == "VersionConflict"


async def test_shared_fields_order_group_and_count(shop: Shop) -> None:
    """The discriminator and the fields of an interface are fields like others."""
    orders = shop.database["orders"]
    orders.delete_many({})
    orders.insert_many(
        [
            {
                "_id": "g1",
                "payment": {"kind": "cash"},
                "contact": {"_class": "Company", "name": "y"},
            },
            {"_id": "g2", "payment": {"kind": "card", "limit": 1}},
            {
                "_id": "g3",
                "payment": {"kind": "cash"},
                "contact": {"_class": "Company", "name": "x"},
            },
            {"_id": "g4", "payment": {"kind": "voucher"}},
        ]
    )
    result = await ask(
        shop,
        """{
          orders(orderBy: [{ payment: { kind: DESC } }, { contact: { name: ASC } }]) {
            nodes { id }
          }
          ordersAggregate(groupBy: { payment: { kind: true } }) {
            distinctCount { payment { kind } }
            groups { key { payment { kind } } count distinctCount { contact { name } } }
          }
        }""",
    )
    assert result.errors is None
    assert [each["id"] for each in result.data["orders"]["nodes"]] == [
        "g4",
        "g3",
        "g1",
        "g2",
    ]
    # A kind of no member does not fit.
    assert result.data["ordersAggregate"]["distinctCount"] == {"payment": {"kind": 2}}
    groups = result.data["ordersAggregate"]["groups"]
    assert [
        (g["key"]["payment"]["kind"], g["count"], g["distinctCount"]["contact"]["name"])
        for g in groups
    ] == [(None, 1, 0), ("card", 1, 0), ("cash", 2, 2)]
