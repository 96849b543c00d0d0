"""Aggregates across documents, on a real MongoDB: groups by the targets of references."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio
from bson import Decimal128, ObjectId
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import context_of
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import Principal
from revstream.resolvers.aggregates import references
from revstream.resolvers.history import aggregates
from revstream.resolvers.history.as_of import past_documents
from tests.support.editing import Row, Shop, open_shop
from tests.support.exhaustive import examples

pytestmark = pytest.mark.asyncio(loop_scope="module")

_PRODUCT = """@access(rows: "{ not: { owner: { eq: \\"bob\\" } } }") {
      id: ID! owner: String n: Int price: Decimal label: String supplierId: ID
      supplier: Supplier @reference(by: "supplierId") origin: Origin
      twin: Supplier @reference(by: "id")
    }
"""
MODEL = read_model(
    f"""
    type Product @collection(name: "products", version: null) {_PRODUCT}
    type Deal @collection(name: "deals", version: null, storage: DELTA) {_PRODUCT}
    type Origin {{
      note: String secret: Int @access(read: ["staff"]) from: Origin
      cityId: ID city: City @reference(by: "cityId")
    }}
    type Supplier @collection(name: "suppliers", version: null)
      @access(rows: "{{ or: [{{ owner: {{ eq: $sub }} }}, {{ owner: {{ exists: false }} }}] }}") {{
      id: ID! owner: String country: String since: DateTime @stored(as: "from")
      secret: Int @access(read: ["staff"])
      cityId: ID city: City @reference(by: "cityId")
      vaultId: ID vault: Vault @reference(by: "vaultId")
      chiefId: ID chief: Supplier @reference(by: "chiefId") @access(read: ["staff"])
      products: [Product!]! @referencedBy(field: "supplierId")
      deals: [Deal!]! @referencedBy(field: "supplierId")
    }}
    type City @collection(name: "cities", version: null, storage: DELTA) {{
      id: ID! size: Int text: String label: String
    }}
    type Vault @collection(name: "vaults", version: null) @access(read: ["staff"]) {{
      id: ID! size: Int
    }}
    """
)
ANN = Principal(name="ann", roles=frozenset())
STAFF = Principal(name="ann", roles=frozenset({"staff"}))
COLLECTIONS = ("cities", "suppliers", "products")
World = Mapping[str, Mapping[Any, Row]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(mongo_uri: str, client: MongoClient[Row]) -> AsyncIterator[Shop]:
    """Run a gateway over collections that each test fills."""
    name = f"across_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=MODEL) as shop:
        yield shop
    client.drop_database(name)


async def ask(shop: Shop, text: str, caller: Principal = ANN) -> tuple[Any, list[Any]]:
    result = await shop.schema.execute(text, {}, context_of(shop.gateway, caller=caller))
    errors = [(each.message, (each.extensions or {}).get("code")) for each in result.errors or ()]
    return result.data, errors


async def data_of(shop: Shop, text: str) -> Any:
    data, errors = await ask(shop, text)
    assert errors == []
    return data


def store(shop: Shop, world: World) -> None:
    for name in (*COLLECTIONS, "deals"):
        rows = world["products" if name == "deals" else name]
        collection = shop.database[name]
        collection.delete_many({"_id": {"$nin": [*rows]}})
        for key, row in rows.items():
            collection.replace_one({"_id": key}, row, upsert=True)


# The plain model.


def visible(world: World, collection: str) -> dict[Any, Row]:
    hidden = {"suppliers": "eve", "products": "bob"}.get(collection)
    rows = world[collection].items()
    return {
        key: {**row, "_id": key}
        for key, row in rows
        if hidden is None or row.get("owner") != hidden
    }


def target(world: World, collection: str, id_: Any) -> Row:
    """Return the document with an id of any type that shows as this one, or an empty one."""
    if id_ is None or isinstance(id_, list):
        return {}
    same = [row for key, row in visible(world, collection).items() if str(key) == str(id_)]
    return same[0] if same else {}


def key_value(world: World, product: Row, path: str) -> Any:
    supplier = target(world, "suppliers", product.get("supplierId"))
    match path:
        case "label":
            return product.get("label")
        case "twin.country":
            return target(world, "suppliers", product["_id"]).get("country")
        case "supplier.country":
            return supplier.get("country")
        case "supplier.since":
            since = supplier.get("from")
            return None if since is None else since.strftime("%Y-%m-01T00:00:00.000Z")
        case "supplier.city.size":
            size = target(world, "cities", supplier.get("cityId")).get("size")
        case _:
            size = target(world, "cities", (product.get("origin") or {}).get("cityId")).get("size")
    return size if isinstance(size, int) else None


def expected_groups(
    world: World, products: Sequence[Row], keys: Sequence[str]
) -> list[tuple[Any, ...]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for each in products:
        groups.setdefault(tuple(key_value(world, each, key) for key in keys), []).append(each)
    ordered = sorted(groups.items(), key=lambda item: [(v is not None, v) for v in item[0]])
    return [(key, expected_results(found)) for key, found in ordered]


def expected_results(products: Sequence[Row]) -> tuple[Any, ...]:
    numbers = [each["n"] for each in products if each.get("n") is not None]
    prices = [each["price"].to_decimal() for each in products if "price" in each]
    return (
        len(products),
        sum(numbers) if numbers else None,
        sum(prices) if prices else None,
        sum(numbers) / len(numbers) if numbers else None,
        min(numbers, default=None),
        max(prices, default=None),
        len({each["label"] for each in products if each.get("label") is not None}),
        len(set(numbers)),
    )


RESULTS = "count sum { n price } avg { n } min { n } max { price } distinctCount { label n }"
BY = {
    "label": ("label: true", "label"),
    "supplier.country": ("country: true", "country"),
    "supplier.since": ("since: {by: MONTH}", "since"),
    "supplier.city.size": ("city: {size: true}", "city { size }"),
    "origin.city.size": ("origin: {city: {size: true}}", "origin { city { size } }"),
    "twin.country": ("twin: {country: true}", "twin { country }"),
}


def in_order(keys: Sequence[str]) -> list[str]:
    """Return keys in the schema's order, which is that of groups."""
    return sorted(
        keys,
        key=lambda each: (
            ["label", "origin", "supplier", "twin"].index(each.split(".")[0]),
            [*BY].index(each),
        ),
    )


def group_by(keys: Sequence[str]) -> tuple[str, str]:
    """Return the argument and the selection of the key."""
    parts = []
    for place in (0, 1):
        inner = " ".join(BY[each][place] for each in keys if each.startswith("supplier."))
        outer = [BY[each][place] for each in keys if not each.startswith("supplier.")]
        opened = "supplier: {%s}" if place == 0 else "supplier { %s }"
        parts.append(" ".join([*outer, *([opened % inner] if inner else [])]))
    return f"groupBy: {{{parts[0]}}}", parts[1]


def shown_groups(answer: Any, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    found = []
    for group in answer["groups"]:
        values = []
        for key in keys:
            value = group["key"]
            for name in key.split("."):
                value = value[name]
            values.append(value)
        found.append((tuple(values), shown_results(group)))
    return found


def shown_results(each: Any) -> tuple[Any, ...]:
    price, most = each["sum"]["price"], each["max"]["price"]
    return (
        each["count"],
        each["sum"]["n"],
        None if price is None else Decimal(price),
        each["avg"]["n"],
        each["min"]["n"],
        None if most is None else Decimal(most),
        each["distinctCount"]["label"],
        each["distinctCount"]["n"],
    )


# Drawn input.

ODD_ID = ObjectId(b"0" * 12)
IDS = st.sampled_from(["a", "b", ODD_ID])
HELD = IDS | st.sampled_from([None, "gone", str(ODD_ID), ["a"], 7])
SIZES = st.sampled_from([1, 2, "large"])
CITIES = st.dictionaries(
    IDS, st.fixed_dictionaries({"size": SIZES, "text": st.just("x" * 2000)}), max_size=3
)
SUPPLIERS = st.dictionaries(
    IDS,
    st.fixed_dictionaries(
        {"country": st.sampled_from(["DE", "FR", None]), "cityId": HELD},
        optional={
            "owner": st.sampled_from(["ann", "eve"]),
            "from": st.sampled_from(
                [datetime(2024, 5, 5, tzinfo=UTC), datetime(2024, 6, 7, tzinfo=UTC)]
            ),
        },
    ),
    max_size=3,
)
PRODUCTS = st.dictionaries(
    st.sampled_from("abqrstuvw"),
    st.fixed_dictionaries(
        {"n": st.integers(0, 2) | st.none(), "label": st.sampled_from(["x", "y", None])},
        optional={
            "owner": st.sampled_from(["ann", "bob"]),
            "price": st.decimals(0, 9, places=2).map(Decimal128),
            "supplierId": HELD,
            "origin": st.fixed_dictionaries({"note": st.just("x" * 2000), "cityId": HELD}),
        },
    ),
    min_size=3,
    max_size=8,
)
WORLDS = st.fixed_dictionaries({"cities": CITIES, "suppliers": SUPPLIERS, "products": PRODUCTS})
KEYS = st.lists(st.sampled_from([*BY]), min_size=1, unique=True)
_QUICK = settings(
    max_examples=examples(36),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@_QUICK
@given(world=WORLDS, keys=KEYS)
async def test_groups_by_targets_equal_a_plain_fold(shop: Shop, world: World, keys: Any) -> None:
    """A target that is missing or hidden has nulls; totals and groups are of the same documents."""
    store(shop, world)
    keys = in_order(keys)
    argument, shown = group_by(keys)
    products = list(visible(world, "products").values())
    answer = (
        await data_of(
            shop,
            f"{{ productsAggregate({argument}) {{ {RESULTS} totalGroups "
            f"groups {{ key {{ {shown} }} {RESULTS} }} }} }}",
        )
    )["productsAggregate"]
    expected = expected_groups(world, products, keys)
    assert shown_groups(answer, keys) == expected
    assert answer["totalGroups"] == len(expected)
    assert shown_results(answer) == expected_results(products)


@settings(_QUICK, max_examples=examples(16))
@given(
    worlds=st.lists(WORLDS, min_size=2, max_size=2),
    keys=KEYS,
    field=st.sampled_from(["products", "deals"]),
)
async def test_groups_by_targets_are_of_the_same_moment(
    shop: Shop, worlds: Any, keys: Any, field: str
) -> None:
    """Documents and targets are those of then, stored whole or as patches."""
    keys = in_order(keys)
    argument, shown = group_by(keys)
    moments = []
    for world in worlds:
        store(shop, world)
        moments.append((await data_of(shop, "{ resumeToken }"))["resumeToken"])
    for token, world in zip(moments, worlds, strict=True):
        name = f"{field}Aggregate"
        text = (
            f'{{ {name}(asOf: {{token: "{token}"}}, {argument}) '
            f"{{ groups {{ key {{ {shown} }} {RESULTS} }} }} }}"
        )
        answer = (await data_of(shop, text))[name]
        products = list(visible(world, "products").values())
        assert shown_groups(answer, keys) == expected_groups(world, products, keys)


@settings(_QUICK, max_examples=examples(24))
@given(world=WORLDS)
async def test_each_parent_has_groups_by_the_targets_of_its_documents(
    shop: Shop, world: World
) -> None:
    """Each reference is one command, however many parents there are."""
    store(shop, world)
    keys = ["label", "origin.city.size"]
    argument, shown = group_by(keys)
    text = (
        f"{{ suppliers {{ nodes {{ id productsAggregate({argument}) "
        f"{{ groups {{ key {{ {shown} }} {RESULTS} }} }} }} }} }}"
    )
    found = (await data_of(shop, text))["suppliers"]["nodes"]
    answers = {each["id"]: shown_groups(each["productsAggregate"], keys) for each in found}
    products = visible(world, "products").values()
    assert answers == {
        str(id_): expected_groups(
            world,
            [each for each in products if refers(each, id_)],
            keys,
        )
        for id_ in visible(world, "suppliers")
    }


@pytest.mark.parametrize(
    ("by", "named"),
    [
        ("supplier: {secret: true}", "Supplier.secret"),
        ("supplier: {chief: {country: true}}", "Supplier.chief"),
        ("supplier: {vault: {size: true}}", "Vault"),
    ],
)
@pytest.mark.parametrize("past", [False, True])
async def test_members_that_a_caller_may_not_read_are_refused_in_groups(
    shop: Shop, by: str, named: str, past: bool
) -> None:
    """Fields, references and types, also where no document refers to one."""
    at = ""
    if past:
        at = f'asOf: {{token: "{(await data_of(shop, "{ resumeToken }"))["resumeToken"]}"}}, '
    text = f"{{ productsAggregate({at}groupBy: {{{by}}}) {{ groups {{ count }} }} }}"
    data, [(told, code)] = await ask(shop, text)
    assert (data, code) == (None, "FORBIDDEN")
    assert named in told
    assert (await ask(shop, text, STAFF))[1] == []


async def test_targets_and_references_of_groups_are_bounded(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too many targets, too large values, and too many references are refused."""
    suppliers: World = {"cities": {}, "suppliers": {"a": {"country": "x" * 200}}, "products": {}}
    store(shop, {**suppliers, "products": {each: {"supplierId": each} for each in "abc"}})
    text = "{ productsAggregate(groupBy: {supplier: {country: true}}) { groups { count } } }"
    assert (await ask(shop, text))[1] == []
    monkeypatch.setattr(references, "MOST_TARGETS", 2)
    data, [(told, code)] = await ask(shop, text)
    assert (data, code) == (None, "LIMIT_EXCEEDED")
    assert "Supplier: more than 2 documents to group by" in told
    monkeypatch.undo()
    monkeypatch.setattr(references, "_MOST_BYTES", 100)
    data, [(told, code)] = await ask(shop, text)
    assert (data, code) == (None, "LIMIT_EXCEEDED")
    assert "values to group by, in bytes: more than 100" in told
    by = "country: true"
    for _ in range(6):
        by = f"chief: {{{by}}}"
    text = f"{{ productsAggregate(groupBy: {{supplier: {{{by}}}}}) {{ groups {{ count }} }} }}"
    data, [(told, code)] = await ask(shop, text, STAFF)
    assert (data, code) == (None, "LIMIT_EXCEEDED")
    assert "references in groupBy: 7, maximum is 5" in told


# Versions.

AUTHORS = st.sampled_from(["ann", "bob", None])
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 1, 2]),
        st.sampled_from(
            [
                None,
                *({"label": each, "n": n} for each in "xy" for n in (0, 1)),
                {"owner": "bob"},
                *({f"origin.{name}": n} for name in ("secret", "from.secret") for n in (0, 1)),
                {"origin.note": "a"},
            ]
        ),
        AUTHORS,
        st.datetimes(datetime(2024, 3, 30), datetime(2024, 4, 2), timezones=st.just(UTC)),
    ),
    min_size=4,
    max_size=10,
)
VERSION_WHERES = st.sampled_from(
    ["", 'author: {eq: "ann"}', "operation: {in: [INSERT, DELETE]}", 'changedField: "label"']
)
VERSION_KEYS = {
    "documentId": "documentId: true",
    "author": "author: true",
    "operation": "operation: true",
    "at": 'at: {by: DAY, timeZone: "Europe/Berlin"}',
    "changedField": "changedField: true",
}


def version_value(version: Any, key: str) -> Any:
    if key != "at":
        return version[key]
    local = datetime.fromisoformat(version["at"]).astimezone(ZoneInfo("Europe/Berlin"))
    start = local.replace(hour=0, minute=0, second=0, microsecond=0).astimezone(UTC)
    return start.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def changed_names(version: Any) -> set[str]:
    return {each.split(".")[0] for each in version["changedFields"]}


def version_results(versions: Sequence[Any]) -> dict[str, Any]:
    times = [each["at"] for each in versions]
    # In groups by the changed field, it is that of the group.
    changed = {
        name
        for each in versions
        for name in ([each["changedField"]] if "changedField" in each else changed_names(each))
    }
    return {
        "count": len(versions),
        "distinctCount": {
            name: len({each[name] for each in versions if each[name] is not None})
            for name in ("documentId", "author", "operation")
        }
        | {"changedField": len(changed - {None})},
        "min": {"at": min(times, default=None)},
        "max": {"at": max(times, default=None)},
    }


@settings(_QUICK, max_examples=examples(16))
@given(
    steps=STEPS,
    kind=st.sampled_from(["deal", "deal", "product", "city"]),
    where=VERSION_WHERES,
    keys=st.lists(st.sampled_from([*VERSION_KEYS]), min_size=1, unique=True),
    least=st.sampled_from([None, 2]),
)
async def test_aggregates_of_versions_equal_a_fold_over_the_audit_trail(
    shop: Shop, steps: Any, kind: str, where: str, keys: list[str], least: int | None
) -> None:
    """They count the versions that the caller may read, wherever their contents lie."""
    collection = shop.database[{"product": "products", "deal": "deals", "city": "cities"}[kind]]
    ids = [f"{uuid4().hex}-{n}" for n in range(3)]
    for place, content, author, _ in steps:
        if content is None:
            collection.delete_one({"_id": ids[place]})
            continue
        change = {"id": uuid4().hex} | ({"by": author} if author else {})
        row = {"label": None, "owner": None, **content, "text": "x" * 2000, "_change": change}
        collection.update_one({"_id": ids[place]}, {"$set": row}, upsert=True)
    token = (await data_of(shop, "{ resumeToken }"))["resumeToken"]
    await data_of(shop, f'{{ {collection.name}AsOf(asOf: {{token: "{token}"}}) {{ totalCount }} }}')
    archive = shop.database[f"{collection.name}.versions"]
    records = archive.find({"doc": {"$in": ids}}, {"_id": 1})
    for record, (*_, time) in zip(records, steps, strict=False):
        archive.update_one(record, {"$set": {"wall": time}})

    matching = f'where: {{documentId: {{in: ["{ids[0]}", "{ids[1]}"]}} {where}}}'
    nodes = "nodes { documentId author operation at changedFields }"
    trail = f"{kind}Versions"
    versions = (await data_of(shop, f"{{ {trail}({matching}, first: 50) {{ {nodes} }} }}"))[trail][
        "nodes"
    ]
    keys = [each for each in VERSION_KEYS if each in keys]
    having = "" if least is None else f"having: {{count: {{gte: {least}}}}}"
    results = (
        "count distinctCount { documentId author operation changedField } min { at } max { at }"
    )
    by = ", ".join(VERSION_KEYS[each] for each in keys)
    name = f"{trail}Aggregate"
    answer = (
        await data_of(
            shop,
            f"{{ {name}({matching}, groupBy: {{{by}}} {having}) {{ {results} totalGroups "
            f"groups {{ key {{ {' '.join(keys)} }} {results} }} }} }}",
        )
    )[name]
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for each in versions:
        for name in changed_names(each) or {None} if "changedField" in keys else {None}:
            version = {**each, "changedField": name} if "changedField" in keys else each
            groups.setdefault(tuple(version_value(version, key) for key in keys), []).append(
                version
            )
    ordered = sorted(groups.items(), key=lambda item: [(v is not None, v) for v in item[0]])
    assert answer == {
        **version_results(versions),
        "totalGroups": sum(len(each) >= (least or 0) for each in groups.values()),
        "groups": [
            {"key": dict(zip(keys, key, strict=True)), **version_results(found)}
            for key, found in ordered
            if len(found) >= (least or 0)
        ],
    }


async def test_contents_that_are_stored_as_patches_are_bounded(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are given back to MongoDB, for documents as of a moment and for a row rule."""
    deals = shop.database["deals"]
    deals.replace_one({"_id": "big"}, {"label": "x" * 2000, "n": 0}, upsert=True)
    deals.update_one({"_id": "big"}, {"$set": {"n": 1}})
    token = (await data_of(shop, "{ resumeToken }"))["resumeToken"]
    for field, module in (
        (f'dealsAggregate(asOf: {{token: "{token}"}})', past_documents),
        ('dealVersionsAggregate(where: {documentId: {eq: "big"}})', aggregates),
    ):
        text = f"{{ {field} {{ count distinctCount {{ %s }} }} }}"
        text %= "label" if "asOf" in field else "documentId"
        assert (await ask(shop, text))[1] == []
        monkeypatch.setattr(module, "_MOST_BYTES", 20)
        data, [(told, code)] = await ask(shop, text)
        assert (data, code) == (None, "LIMIT_EXCEEDED")
        assert "in bytes: more than 20, which is the maximum" in told


@pytest.mark.parametrize(
    ("arguments", "selection", "message"),
    [
        ("", "groups { count }", "groups: requested without groupBy"),
        ("(groupBy: {author: true})", "groups { key { at } }", "key.at: not a field of groupBy"),
        (
            '(groupBy: {at: {by: DAY, timeZone: "X"}})',
            "groups { count }",
            "timeZone: 'X', expected",
        ),
        ("(groupBy: {author: true}, first: 1001)", "groups { count }", "first: 1,001, expected"),
        ('(where: {changedField: "nothing"})', "count", "VersionWhere.changedField"),
    ],
)
async def test_bad_input_of_aggregates_of_versions_is_refused(
    shop: Shop, arguments: str, selection: str, message: str
) -> None:
    """The message names the argument and what is expected."""
    # A time zone is looked up only where there is a document to group.
    shop.database["cities"].insert_one({"_id": uuid4().hex, "size": 1})
    await data_of(shop, "{ resumeToken }")
    text = f"{{ cityVersionsAggregate{arguments} {{ {selection} }} }}"
    data, [(told, code)] = await ask(shop, text)
    assert (data, code) == (None, "BAD_USER_INPUT")
    assert message in told


async def test_aggregates_of_versions_need_the_rights_of_the_entity(shop: Shop) -> None:
    """The caller may not read vaults, and a changed field only with its role."""
    _, [(told, code)] = await ask(shop, "{ vaultVersionsAggregate { count } }")
    assert (code, "Vault" in told) == ("FORBIDDEN", True)
    text = '{ supplierVersionsAggregate(where: {changedField: "secret"}) { count } }'
    _, [(told, code)] = await ask(shop, text)
    assert (code, "secret" in told) == ("FORBIDDEN", True)
    id_ = uuid4().hex
    shop.database["suppliers"].insert_one({"_id": id_, "country": "DE", "secret": 1})
    await data_of(shop, "{ resumeToken }")
    text = (
        f'{{ supplierVersionsAggregate(where: {{documentId: {{eq: "{id_}"}}}}, '
        "groupBy: {changedField: true}) { groups { key { changedField } } } }"
    )
    for caller, names in ((ANN, ["country"]), (STAFF, ["country", "secret"])):
        data, _ = await ask(shop, text, caller)
        groups = data["supplierVersionsAggregate"]["groups"]
        assert [each["key"]["changedField"] for each in groups] == names


# Back references of past documents.


@settings(_QUICK, max_examples=examples(12))
@given(
    worlds=st.lists(WORLDS, min_size=2, max_size=2),
    field=st.sampled_from(["products", "deals"]),
    keys=st.sampled_from([["label"], ["label", "origin.city.size"]]),
)
async def test_aggregates_of_back_references_are_of_the_moment_of_the_snapshot(
    shop: Shop, worlds: Any, field: str, keys: list[str]
) -> None:
    """Each snapshot of a list has those of the documents that referred to it then."""
    moments = []
    for world in worlds:
        store(shop, world)
        moments.append((await data_of(shop, "{ resumeToken }"))["resumeToken"])
    argument, shown = group_by(keys)
    groups = f"{field}Aggregate({argument}) {{ groups {{ key {{ {shown} }} {RESULTS} }} }}"
    for token, world in zip(moments, worlds, strict=True):
        selected = f"{{ nodes {{ document {{ documentId {groups} }} }} }}"
        text = f'{{ suppliersAsOf(asOf: {{token: "{token}"}}) {selected} }}'
        found = (await data_of(shop, text))["suppliersAsOf"]["nodes"]
        snapshots = [each["document"] for each in found]
        products = visible(world, "products").values()
        assert {
            each["documentId"]: shown_groups(each[f"{field}Aggregate"], keys) for each in snapshots
        } == {
            str(id_): expected_groups(world, [each for each in products if refers(each, id_)], keys)
            for id_ in visible(world, "suppliers")
        }


async def test_the_versions_of_a_history_have_aggregates_of_their_moments(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One command computes all of them; groups by a reference need one moment."""
    suppliers, products = shop.database["suppliers"], shop.database["products"]
    suppliers.delete_many({})
    products.delete_many({})
    id_ = uuid4().hex
    for n in range(3):
        products.insert_one({"_id": f"{id_}-{n}", "supplierId": id_, "n": n})
        suppliers.replace_one({"_id": id_}, {"country": str(n)}, upsert=True)
    await data_of(shop, "{ resumeToken }")
    mongo, asked = shop.gateway.mongo, []
    run = mongo.aggregate

    async def listening(collection: Any, stages: Any, **options: Any) -> Any:
        if "products.versions" in str(stages):
            asked.append(options)
        return await run(collection, stages, **options)

    monkeypatch.setattr(mongo, "aggregate", listening)

    def text(arguments: str, selection: str) -> str:
        inner = f"document {{ productsAggregate{arguments} {{ {selection} }} }}"
        return f'{{ supplier(id: "{id_}") {{ history {{ nodes {{ {inner} }} }} }} }}'

    found = await data_of(shop, text("", "count sum { n }"))
    nodes = [
        each["document"]["productsAggregate"] for each in found["supplier"]["history"]["nodes"]
    ]
    assert nodes == [{"count": n, "sum": {"n": sum(range(n))}} for n in (3, 2, 1)]
    assert asked == [{"in_memory": True}]
    arguments = "(groupBy: {supplier: {country: true}})"
    _, [(told, code), *_] = await ask(shop, text(arguments, "groups { count }"))
    assert code == "BAD_USER_INPUT"
    assert "groups by a reference at 3 time points, expected one" in told
    state = f'{{ supplierState(id: "{id_}") {{ productsAggregate {{ count }} }} }}'
    assert await data_of(shop, state) == {"supplierState": {"productsAggregate": {"count": 3}}}


async def test_values_of_several_moments_are_bounded_together(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are part of one command; those of each moment alone would be few enough."""
    suppliers, deals = shop.database["suppliers"], shop.database["deals"]
    suppliers.delete_many({})
    deals.delete_many({})
    id_ = uuid4().hex
    deals.insert_many(
        {"_id": f"{id_}-{n}", "supplierId": id_, "label": "x" * 300} for n in range(3)
    )
    deals.update_many({}, {"$set": {"n": 1}})
    for n in range(3):
        suppliers.replace_one({"_id": id_}, {"country": str(n)}, upsert=True)
    await data_of(shop, "{ resumeToken }")
    monkeypatch.setattr(past_documents, "_MOST_BYTES", 2500)
    inner = "document { dealsAggregate { distinctCount { label } } }"

    def text(first: int) -> str:
        return (
            f'{{ supplier(id: "{id_}") {{ history(first: {first}) {{ nodes {{ {inner} }} }} }} }}'
        )

    found = await data_of(shop, text(1))
    [node] = found["supplier"]["history"]["nodes"]
    assert node["document"]["dealsAggregate"] == {"distinctCount": {"label": 1}}
    _, [(told, code), *_] = await ask(shop, text(3))
    assert code == "LIMIT_EXCEEDED"
    assert "stored as patches" in told


def refers(product: Row, id_: Any) -> bool:
    held = product.get("supplierId")
    return str(id_) == str(held) or held == [id_]


async def test_a_series_of_moments_is_one_request_whose_reads_take_turns(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of 30 aliases sweeps the archive once, and no more at a time than a caller may."""
    products = shop.database["products"]
    products.delete_many({})
    tokens = []
    for n in range(30):
        products.insert_one({"_id": f"{uuid4().hex}-{n}", "n": n})
        tokens.append((await data_of(shop, "{ resumeToken }"))["resumeToken"])
    limiter, running, most, sweeps = shop.gateway.mongo.limiter, 0, 0, 0
    run, aggregate = limiter.run, shop.gateway.mongo.aggregate

    async def counting(read_class: Any, attempt: Any, *rest: Any) -> Any:
        async def counted(*given: Any) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                return await attempt(*given)
            finally:
                running -= 1

        return await run(read_class, counted, *rest)

    async def listening(collection: Any, stages: Any, **options: Any) -> Any:
        nonlocal sweeps
        sweeps += collection == "products.versions" and "hint" in options
        return await aggregate(collection, stages, **options)

    monkeypatch.setattr(limiter, "run", counting)
    monkeypatch.setattr(shop.gateway.mongo, "aggregate", listening)
    series = " ".join(
        f'm{n}: productsAggregate(asOf: {{token: "{token}"}}) {{ count sum {{ n }} }}'
        for n, token in enumerate(tokens)
    )
    assert await data_of(shop, f"{{ {series} }}") == {
        f"m{n}": {"count": n + 1, "sum": {"n": n * (n + 1) // 2}} for n in range(30)
    }
    assert sweeps == 30
    # Six lookups and six reads by an index: see `streams.core.read_limiter`.
    assert most <= 12
