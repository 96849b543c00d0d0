"""Aggregates on a real MongoDB: equal to a plain fold over the documents, refused, or bounded."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Context, Decimal
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio
from bson import Decimal128, Int64, ObjectId
from bson.datetime_ms import DatetimeMS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.gql.engine.limits.concurrency import ConcurrencyLimiter
from revstream.gql.engine.limits.operation_budget import OperationLimits
from revstream.gql.runtime.asgi_app import context_of
from revstream.gql.schema import build_schema
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import Principal
from revstream.streams.mongo.database import COLLATION
from tests.integration.conftest import KeptShop
from tests.support.editing import Row, Shop, open_shop
from tests.support.exhaustive import examples

pytestmark = pytest.mark.asyncio(loop_scope="module")

_BODY = """
      @access(rows: "{ or: [{ owner: { eq: $sub } }, { owner: { exists: false } }] }") {
      id: ID!
      owner: String
      n: Int @stored(as: "number")
      big: Long
      ratio: Float
      price: Decimal
      at: DateTime
      day: Date
      region: Region
      label: String
      paid: Boolean
      ship: Address
      lines: [Address!]
      hidden: Int @access(read: ["staff"])
    }
"""
MODEL = read_model(
    f"""
    type Sale @collection(name: "sales") {_BODY}
    type Deal @collection(name: "deals", storage: DELTA) {_BODY}
    enum Region {{ NORTH @stored(as: "n") SOUTH }}
    type Address {{ country: String weight: Int hidden: Int @access(read: ["staff"]) }}
    type Shop @collection(name: "shops", version: null) {{
      id: ID!
      name: String
      bills: [Bill!]! @referencedBy(field: "shopId")
      secrets: [Bill!]! @referencedBy(field: "shopId") @access(read: ["staff"])
    }}
    type Bill @collection(name: "bills", version: null)
      @access(rows: "{{ owner: {{ eq: $sub }} }}") {{
      id: ID! shopId: ID shop: Shop @reference(by: "shopId") owner: String total: Decimal
    }}
    type Note @collection(name: "notes", version: null) {{ id: ID! content: JSON }}
    """
)
MIDNIGHT = time(tzinfo=UTC)
ANN = Principal(name="ann", roles=frozenset())
EXACT = Context(prec=34)
FIELDS = ("n", "big", "ratio", "price", "at", "day", "region", "label", "paid")
TIMES = ("at", "day")
NUMBERS = ("n", "big", "ratio", "price")
LEAVES = {
    "sum": "n big ratio price ship { weight }",
    "avg": "n big ratio price ship { weight }",
    "min": "n big ratio price at day ship { weight }",
    "max": "n big ratio price at day ship { weight }",
    "distinctCount": "n big ratio price at day region label paid ship { country weight }",
}
RESULTS = " ".join(f"{name} {{ {fields} }}" for name, fields in LEAVES.items())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sales(mongo_uri: str, client: MongoClient[Row]) -> AsyncIterator[Shop]:
    """Run a gateway over a collection that each test fills."""
    name = f"sales_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=MODEL) as shop:
        yield shop
    client.drop_database(name)


async def ask(shop: Shop, text: str, caller: Principal = ANN) -> tuple[Any, list[Any]]:
    """Return the data and the errors; by the executor, and then by the compiled query."""
    answers = []
    for _ in range(2):
        result = await shop.schema.execute(text, {}, context_of(shop.gateway, caller=caller))
        errors = [
            (each.message, (each.extensions or {}).get("code")) for each in result.errors or ()
        ]
        answers.append((result.data, errors))
    assert answers[0] == answers[1]
    return answers[0]


async def aggregate(
    shop: Shop,
    arguments: str,
    selection: str,
    caller: Principal = ANN,
    field: str = "salesAggregate",
) -> Any:
    data, errors = await ask(shop, f"{{ {field}{arguments} {{ {selection} }} }}", caller)
    assert errors == []
    return data[field]


def store(shop: Shop, documents: Iterable[Mapping[str, Any]]) -> None:
    collection = shop.database["sales"]
    collection.delete_many({})
    numbered = [{"_id": f"s{number}", **each} for number, each in enumerate(documents)]
    if numbered:
        collection.insert_many(numbered)


# The plain model.


def fitting(field: str, value: Any) -> Any:
    """Return a stored value as it is measured, or None."""
    whole = value.__class__ in (int, Int64) or (
        value.__class__ is float and math.isfinite(value) and value == int(value)
    )
    match field:
        case "n" | "weight":
            return int(value) if whole and -(2**31) <= value < 2**31 else None
        case "big":
            return int(value) if whole and -(2**63) <= value < 2**63 else None
        case "ratio":
            if value.__class__ is float:
                return value if math.isfinite(value) else None
            return float(value) if whole and int(float(value)) == value else None
        case "price":
            if value.__class__ is Decimal128:
                number = value.to_decimal()
                return number if number.is_finite() else None
            if value.__class__ is float:
                # As MongoDB converts doubles.
                return Context(prec=15).create_decimal(value) if math.isfinite(value) else None
            return Decimal(int(value)) if whole else None
        case "at":
            return value if isinstance(value, datetime) else None
        case "day":
            is_day = isinstance(value, datetime) and value.timetz() == MIDNIGHT
            return value if is_day else None
        case "region":
            return value if value in ("n", "SOUTH") else None
        case "paid":
            return value if value.__class__ is bool else None
        case _:
            return value if value.__class__ is str else None


def stored(document: Mapping[str, Any], path: str) -> Any:
    value: Any = document
    for name in path.split("."):
        value = value.get({"n": "number"}.get(name, name)) if isinstance(value, Mapping) else None
    return fitting(path.split(".")[-1], value)


def bucket(unit: str, zone: str | None, moment: datetime | None) -> datetime | None:
    """Return the start of a bucket in UTC."""
    if moment is None:
        return None
    if zone == "+05:30":
        place: tzinfo = timezone(timedelta(hours=5, minutes=30))
    else:
        place = UTC if zone is None else ZoneInfo(zone)
    # Shorter units than a day are the same in each zone with whole hours.
    in_utc = unit in ("MINUTE", "HOUR") and zone != "+05:30"
    local = moment if in_utc else moment.astimezone(place)
    start = local.replace(second=0, microsecond=0)
    if unit != "MINUTE":
        start = start.replace(minute=0)
    if unit not in ("MINUTE", "HOUR"):
        start = start.replace(hour=0)
    match unit:
        case "WEEK":
            start -= timedelta(days=start.weekday())
        case "MONTH":
            start = start.replace(day=1)
        case "QUARTER":
            start = start.replace(day=1, month=(start.month - 1) // 3 * 3 + 1)
        case "YEAR":
            start = start.replace(day=1, month=1)
    return start.astimezone(UTC)


def results(documents: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the result of each measure by path, as Python's values."""
    found: dict[str, dict[str, Any]] = {name: {} for name in LEAVES}
    for path in (*FIELDS, "ship.weight", "ship.country"):
        values = [each for document in documents if (each := stored(document, path)) is not None]
        found["distinctCount"][path] = len(set(values))
        if path in (*NUMBERS, *TIMES, "ship.weight"):
            found["min"][path] = min(values, default=None)
            found["max"][path] = max(values, default=None)
        if path not in (*NUMBERS, "ship.weight"):
            continue
        if path == "ratio":
            total: Any = math.fsum(values)
            average: Any = total / len(values) if values else None
        else:
            total = sum(map(Decimal, values), Decimal(0))
            average = EXACT.divide(total, Decimal(len(values))) if values else None
            average = float(average) if values and path != "price" else average
        found["sum"][path] = total if values else None
        found["avg"][path] = average
    return found


def check_results(answer: Mapping[str, Any], documents: Sequence[Mapping[str, Any]]) -> None:
    """Compare the results of an answer with those of the plain model."""
    assert answer["count"] == len(documents)
    for measure, by_path in results(documents).items():
        for path, expected in by_path.items():
            value: Any = answer[measure]
            for name in path.split("."):
                value = value[name]
            where = f"{measure} {path}"
            if expected is None or measure == "distinctCount":
                assert value == expected, where
            elif path == "at":
                assert datetime.fromisoformat(value) == expected, where
            elif path == "day":
                assert value == expected.date().isoformat(), where
            elif path == "ratio":
                scale = math.fsum(abs(stored(each, path) or 0.0) for each in documents)
                assert math.isclose(value, expected, rel_tol=1e-12, abs_tol=1e-12 * scale), where
            elif isinstance(expected, float):
                assert value == expected, where
            else:
                assert Decimal(str(value)) == expected, where


def ordered(value: Any) -> tuple[bool, Any]:
    """Return a sort key: null comes first."""
    return value is not None, value


# Drawn input.

DATES = st.datetimes(datetime(2019, 1, 1), datetime(2026, 1, 1), timezones=st.just(UTC)).map(
    lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000)
)
DAYS = DATES.map(lambda each: datetime.combine(each.date(), MIDNIGHT))
MISSING = object()
ODD = st.sampled_from(
    [
        *(MISSING, None, "text", [1, 2], {"a": 1}, True, ObjectId(b"0" * 12)),
        *(math.nan, math.inf, -math.inf, 1.5, 2.0**40, 2.0**80, Int64(2**40), Int64(2**53 + 1)),
        *(Decimal128("NaN"), Decimal128("Infinity"), Decimal128("2")),
    ]
)
DECIMALS = st.decimals(-(10**9), 10**9, places=3).map(Decimal128)
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "number": st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1) | st.just(2.0),
    "big": st.sampled_from([2**63 - 1, 2**62 + 1, -(2**63)]).map(Int64) | st.integers(-3, 3),
    "ratio": st.floats(-1e6, 1e6) | st.integers(-3, 3),
    "price": DECIMALS | st.integers(-3, 3) | st.sampled_from([0.1, 19.99, 2.5]),
    "at": DATES,
    "day": st.one_of(*[DAYS] * 4, DATES),
    "region": st.sampled_from(["n", "SOUTH", "NORTH"]),
    "label": st.sampled_from(["", "a", "B", "ß", "\U0001f642"]),
    "paid": st.booleans(),
    "ship": st.fixed_dictionaries(
        {"country": st.sampled_from(["DE", "FR", 7]), "weight": st.integers(1, 3)}
    )
    | st.lists(st.just({"country": "DE"}), max_size=1),
}
DOCUMENT = st.fixed_dictionaries(
    {"owner": st.sampled_from(["ann", "ann", "bob", None])}
    | {name: st.one_of(*[each] * 4, ODD) for name, each in VALUES.items()}
).map(lambda each: {name: value for name, value in each.items() if value is not MISSING})
DOCUMENTS = st.lists(DOCUMENT, min_size=6, max_size=16) | st.lists(DOCUMENT, max_size=1)
WHERE = st.sampled_from(
    [
        ("", lambda _: True),
        ("", lambda _: True),
        ('where: {label: {in: ["a", "B"]}}', lambda each: each.get("label") in ("a", "B")),
        ("where: {paid: {exists: true}}", lambda each: each.get("paid") is not None),
        ("where: {region: {eq: NORTH}}", lambda each: each.get("region") == "n"),
    ]
)
KEYS = st.lists(
    st.sampled_from(["n", "region", "label", "paid", "at", "day", "ship.country"]),
    min_size=1,
    max_size=3,
    unique=True,
)
DATE_UNITS = ["DAY", "WEEK", "MONTH", "QUARTER", "YEAR"]
UNITS = st.sampled_from(["MINUTE", "HOUR", *DATE_UNITS])
ZONES = st.sampled_from([None, "Europe/Berlin", "America/New_York", "+05:30"])
ORDERS = st.sampled_from(
    [
        ("", None),
        ("orderBy: [{count: DESC}]", ("count", "", True)),
        ("orderBy: [{sum: {price: DESC}}]", ("sum", "price", True)),
        ("orderBy: [{max: {at: ASC}}]", ("max", "at", False)),
        ("orderBy: [{distinctCount: {label: ASC}}]", ("distinctCount", "label", False)),
    ]
)
HAVING = st.sampled_from(
    [
        ("", None),
        ("having: {count: {gte: 2}}", lambda count, _: count >= 2),
        (
            'having: {or: [{sum: {price: {gt: "0"}}}, {min: {n: {exists: false}}}]}',
            lambda _, found: (found["sum"]["price"] or 0) > 0 or found["min"]["n"] is None,
        ),
        (
            "having: {avg: {big: {lt: 0.5}}}",
            lambda _, found: found["avg"]["big"] is not None and found["avg"]["big"] < 0.5,
        ),
    ]
)
_QUICK = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@_QUICK
@given(documents=DOCUMENTS, where=WHERE)
async def test_totals_equal_a_plain_fold(sales: Shop, documents: Any, where: Any) -> None:
    """They cover the rows that exist for the caller and match, whatever other values lie there."""
    store(sales, documents)
    text, matches = where
    seen = [each for each in documents if each["owner"] in ("ann", None) and matches(each)]
    arguments = f"({text})" if text else ""
    check_results(await aggregate(sales, arguments, f"count {RESULTS}"), seen)


@_QUICK
@given(
    documents=DOCUMENTS,
    where=WHERE,
    keys=KEYS,
    unit=UNITS,
    date_unit=st.sampled_from(DATE_UNITS),
    zone=ZONES,
    order=ORDERS,
    having=HAVING,
    first=st.integers(1, 4) | st.none(),
)
async def test_groups_equal_a_plain_fold(
    sales: Shop,
    documents: Any,
    where: Any,
    keys: list[str],
    unit: str,
    date_unit: str,
    zone: str | None,
    order: Any,
    having: Any,
    first: int | None,
) -> None:
    """With filters, time zones, conditions on groups, orders and bounds."""
    store(sales, documents)
    # The schema's order of fields is that of the key.
    keys = sorted(keys, key=["n", *TIMES, "region", "label", "paid", "ship.country"].index)
    in_zone = f', timeZone: "{zone}"' if zone else ""
    by = {each: f"{each}: true" for each in keys} | {
        "at": f"at: {{by: {unit}{in_zone}}}",
        "day": f"day: {{by: {date_unit}}}",
        "ship.country": "ship: {country: true}",
    }
    shown = {each: each for each in keys} | {"ship.country": "ship { country }"}
    arguments = [where[0], order[0], having[0], f"first: {first}" if first else ""]
    arguments.append(f"groupBy: {{{', '.join(by[each] for each in keys)}}}")
    answer = await aggregate(
        sales,
        f"({' '.join(filter(None, arguments))})",
        f"groups {{ key {{ {' '.join(shown[each] for each in keys)} }} count {RESULTS} }} "
        "totalGroups hasMoreGroups",
    )

    groups: dict[tuple[Any, ...], list[Any]] = {}
    for each in documents:
        if each["owner"] in ("ann", None) and where[1](each):
            values = {key: stored(each, key) for key in keys}
            if "at" in values:
                values["at"] = bucket(unit, zone, values["at"])
            if "day" in values:
                values["day"] = bucket(date_unit, None, values["day"])
            groups.setdefault(tuple(values.values()), []).append(each)
    rows = [(key, of, results(of)) for key, of in groups.items()]
    if having[1] is not None:
        rows = [row for row in rows if having[1](len(row[1]), row[2])]
    rows.sort(key=lambda row: [ordered(each) for each in row[0]])
    if order[1] is not None:
        measure, path, down = order[1]
        rows.sort(
            key=lambda row: ordered(len(row[1]) if not path else row[2][measure][path]),
            reverse=down,
        )
    assert answer["totalGroups"] == len(rows)
    assert answer["hasMoreGroups"] == (first is not None and len(rows) > first)
    expected = rows[:first]
    assert len(answer["groups"]) == len(expected)
    for group, (key, of, _) in zip(answer["groups"], expected, strict=True):
        assert [_shown_key(group["key"], each) for each in keys] == list(key)
        check_results(group, of)


@settings(_QUICK, max_examples=examples(8))
@given(
    states=st.lists(DOCUMENTS, min_size=2, max_size=3),
    where=WHERE,
    collection=st.sampled_from(["sales", "deals"]),
)
async def test_results_as_of_a_moment_equal_a_plain_fold_of_then(
    sales: Shop, states: Any, where: Any, collection: str
) -> None:
    """They are those of the documents then, stored whole or as patches, with the rows of then."""
    rows = sales.database[collection]
    moments = []
    for number, documents in enumerate(states):
        # Documents are updated, or deleted and inserted again.
        if number % 2 == 0:
            rows.delete_many({})
        for place, each in enumerate(documents):
            rows.replace_one({"_id": f"s{place}"}, each, upsert=True)
        present = [{**each} for each in rows.find().sort("_id")]
        moments.append(((await sales.ask("{ resumeToken }"))["resumeToken"], present))
    text, matches = where
    for token, present in moments:
        seen = [each for each in present if each["owner"] in ("ann", None) and matches(each)]
        answer = await aggregate(
            sales,
            f'({text} asOf: {{token: "{token}"}}, groupBy: {{label: true}})',
            f"count {RESULTS} totalGroups groups {{ key {{ label }} count {RESULTS} }}",
            field=f"{collection}Aggregate",
        )
        check_results(answer, seen)
        by_label: dict[Any, list[Any]] = {}
        for each in seen:
            by_label.setdefault(stored(each, "label"), []).append(each)
        keys = sorted(by_label, key=ordered)
        assert [each["key"]["label"] for each in answer["groups"]] == keys
        for group, key in zip(answer["groups"], keys, strict=True):
            check_results(group, by_label[key])


async def test_contents_that_are_stored_as_patches_are_put_together(sales: Shop) -> None:
    """A small change of a large document is a patch, which MongoDB cannot measure."""
    deals = sales.database["deals"]
    deals.delete_many({})
    deals.insert_many({"_id": f"p{n}", "label": "x" * 2000, "n": 1} for n in range(3))
    deals.update_many({}, {"$set": {"number": 7}})
    token = (await sales.ask("{ resumeToken }"))["resumeToken"]
    deals.update_many({}, {"$set": {"number": 8}})
    arguments = f'(asOf: {{token: "{token}"}}, where: {{n: {{gt: 5}}}})'
    answer = await aggregate(sales, arguments, "count sum { n }", field="dealsAggregate")
    assert sales.database["deals.versions"].count_documents({"packed": True}) > 0
    assert answer == {"count": 3, "sum": {"n": 21}}


async def test_aggregates_of_back_references_are_one_command(
    sales: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each parent has its own results, of the rows that exist for the caller."""
    sales.database["shops"].insert_many([{"_id": each} for each in "abc"])
    totals = {"a": ["1.10", "2.20", "1.10"], "b": ["5"], "c": []}
    bills = [
        {"shopId": shop, "owner": owner, "total": Decimal128(each), "_id": f"{shop}{n}{owner}"}
        for shop, of in totals.items()
        for n, each in enumerate(of)
        for owner in ("ann", "bob")
    ]
    sales.database["bills"].insert_many(bills)
    arguments = "groupBy: {total: true}, orderBy: [{count: DESC}], first: 1"
    selection = "count sum { total } groups { key { total } count } hasMoreGroups"
    own = 'where: {id: {in: ["a", "b", "c"]}}'
    text = f"{{ shops({own}) {{ nodes {{ id billsAggregate({arguments}) {{ {selection} }} }} }} }}"
    data, errors = await ask(sales, text)
    assert errors == []
    found = {each["id"]: each["billsAggregate"] for each in data["shops"]["nodes"]}
    assert found == {
        shop: {
            "count": len(of),
            "sum": {"total": str(sum(map(Decimal, of))) if of else None},
            "groups": [{"key": {"total": of[0]}, "count": of.count(of[0])}] if of else [],
            "hasMoreGroups": len(set(of)) > 1,
        }
        for shop, of in totals.items()
    }
    mongo = sales.gateway.mongo
    run, asked = mongo.aggregate, []

    async def listening(collection: Any, stages: Any, **options: Any) -> Any:
        if "bills" in str(stages):
            asked.append(options)
        return await run(collection, stages, **options)

    monkeypatch.setattr(mongo, "aggregate", listening)
    await ask(sales, text)
    # `ask` executes the query twice.
    assert asked == [{"snapshot": False, "at": None, "in_memory": True}] * 2


async def test_a_filter_through_a_reference_is_of_the_same_moment(sales: Shop) -> None:
    """The shop had another name then."""
    sales.database["shops"].insert_one({"_id": "n", "name": "old"})
    sales.database["bills"].insert_one({"_id": "n1", "shopId": "n", "owner": "ann"})
    token = (await sales.ask("{ resumeToken }"))["resumeToken"]
    sales.database["shops"].update_one({"_id": "n"}, {"$set": {"name": "new"}})
    for at, counts in (("", (0, 1)), (f', asOf: {{token: "{token}"}}', (1, 0))):
        found = [
            await aggregate(
                sales,
                f'(where: {{shop: {{name: {{eq: "{name}"}}}}}}{at})',
                "count",
                field="billsAggregate",
            )
            for name in ("old", "new")
        ]
        assert tuple(each["count"] for each in found) == counts


async def test_an_aggregate_needs_the_rights_of_its_back_reference(sales: Shop) -> None:
    """It would tell of documents that the caller may not reach."""
    sales.database["shops"].replace_one({"_id": "d"}, {}, upsert=True)
    text = '{ shop(id: "d") { secretsAggregate { count } } }'
    data, [(_, code)] = await ask(sales, text)
    assert (data, code) == ({"shop": None}, "FORBIDDEN")
    data, errors = await ask(sales, text, Principal(name="ann", roles=frozenset({"staff"})))
    assert (data, errors) == ({"shop": {"secretsAggregate": {"count": 0}}}, [])


async def test_each_layout_measures_its_current_and_its_past_documents(kept: KeptShop) -> None:
    """The layout's stages yield the documents, its archive or its own versions the past ones."""
    shop = kept.shop
    supplier = f"measured-{uuid4().hex[:8]}"
    shop.database["suppliers"].insert_one({"_id": supplier, "name": "one"})
    for price in ("1.10", "2.20"):
        await shop.create(price=price, name="measured", supplierId=supplier, tags=["s"])
    changed = await shop.create(price="3.30", name="measured", tags=["s", "t"])
    token = (await shop.ask("{ resumeToken }"))["resumeToken"]
    await shop.mutate("updateProduct", id=changed, patch={"price": "4.40", "supplierId": supplier})
    shop.database["suppliers"].update_one({"_id": supplier}, {"$set": {"name": "two"}})
    arguments = 'where: {name: {eq: "measured"}}, groupBy: {supplier: {name: true}, tags: true}'
    selection = (
        "{ count sum { price } groups { key { tags supplier { name } } count sum { price } } }"
    )
    then = f'asOf: {{token: "{token}"}}'
    inside = "productsAggregate(groupBy: {tags: true}) { groups { key { tags } count } }"
    data = await shop.ask(
        f"{{ now: productsAggregate({arguments}) {selection} "
        f"before: productsAggregate({arguments}, {then}) {selection} "
        f'nowIn: supplier(id: "{supplier}") {{ {inside} }} '
        f'beforeIn: supplierVersion(id: "{supplier}", {then}) {{ document {{ {inside} }} }} }}'
    )

    def group(tag: str, name: str | None, count: int, price: str) -> Row:
        key = {"tags": tag, "supplier": {"name": name}}
        return {"key": key, "count": count, "sum": {"price": price}}

    def inner(*counts: tuple[str, int]) -> Row:
        groups = [{"key": {"tags": tag}, "count": count} for tag, count in counts]
        return {"productsAggregate": {"groups": groups}}

    now = [group("s", "two", 3, "7.70"), group("t", "two", 1, "4.40")]
    before = [
        group("s", None, 1, "3.30"),
        group("s", "one", 2, "3.30"),
        group("t", None, 1, "3.30"),
    ]
    assert data == {
        "now": {"count": 3, "sum": {"price": "7.70"}, "groups": now},
        "before": {"count": 3, "sum": {"price": "6.60"}, "groups": before},
        "nowIn": inner(("s", 3), ("t", 1)),
        "beforeIn": {"document": inner(("s", 2))},
    }


@pytest.mark.parametrize(
    "field",
    [
        "billsAggregate: String",
        'ids: [ID!] billsAggregate: [Bill!]! @reference(by: "ids")',
        'firstId: ID billsAggregate: Bill @reference(by: "firstId")',
    ],
)
async def test_a_field_of_the_model_has_precedence(field: str) -> None:
    """A model that had the name before stays valid, and keeps its meaning."""
    model = read_model(
        f"""
        type Shop @collection(name: "shops") {{
          id: ID! {field} bills: [Bill!]! @referencedBy(field: "shopId")
        }}
        type Bill @collection(name: "bills") {{ id: ID! shopId: ID }}
        """
    )
    found = build_schema(model)._schema.type_map["Shop"].fields["billsAggregate"]
    assert str(found.type).strip("[]!") in ("String", "Bill")


def _shown_key(key: Mapping[str, Any], path: str) -> Any:
    """Return a value of an answer's key as the plain model has it."""
    value: Any = key
    for name in path.split("."):
        value = value[name]
    match path:
        case "at":
            return None if value is None else datetime.fromisoformat(value)
        case "day":
            is_null = value is None
            return None if is_null else datetime.combine(date.fromisoformat(value), MIDNIGHT)
        case "region":
            return {"NORTH": "n"}.get(value, value)
    return value


# Single cases.


async def test_weeks_begin_on_monday(sales: Shop) -> None:
    """A Sunday belongs to the week of the Monday before it; the zone decides which day it is."""
    store(sales, [{"at": datetime(2024, 5, 5, 23, tzinfo=UTC)}])
    for zone, expected in (
        ("", "2024-04-29T00:00:00.000Z"),
        (', timeZone: "Europe/Berlin"', "2024-05-05T22:00:00.000Z"),
    ):
        by = f"groupBy: {{at: {{by: WEEK{zone}}}}}"
        answer = await aggregate(sales, f"({by})", "groups { key { at } }")
        assert answer == {"groups": [{"key": {"at": expected}}]}


async def test_dates_that_calendars_lack_are_in_the_group_of_null(sales: Shop) -> None:
    """MongoDB refuses to truncate some of them, which would fail the other groups too."""
    far = [DatetimeMS(-(2**63)), DatetimeMS(2**63 - 1), DatetimeMS(253402300800000)]
    store(sales, [{"at": each} for each in [*far, datetime(2024, 1, 1, tzinfo=UTC)]])
    for unit in ("MINUTE", "WEEK", "YEAR"):
        by = f'groupBy: {{at: {{by: {unit}, timeZone: "America/New_York"}}}}'
        answer = await aggregate(sales, f"({by})", "groups { key { at } count }")
        assert [each["count"] for each in answer["groups"]] == [3, 1]
        assert answer["groups"][0]["key"]["at"] is None


async def test_a_result_that_does_not_fit_is_an_error_of_its_field(sales: Shop) -> None:
    """The other results are there."""
    store(sales, [{"ratio": 1e308}, {"ratio": 1e308}])
    text = "{ salesAggregate { count sum { ratio } max { ratio } } }"
    data, errors = await ask(sales, text)
    assert data == {"salesAggregate": {"count": 2, "sum": {"ratio": None}, "max": {"ratio": 1e308}}}
    assert errors == [
        ("sales/aggregate: ratio: double 'Infinity', expected Float", "DOCUMENT_MISFIT")
    ]


@pytest.mark.parametrize(
    ("arguments", "selection", "message"),
    [
        ("", "groups { count }", "groups: requested without groupBy"),
        ("(groupBy: {label: false})", "groups { count }", "groups: requested without groupBy"),
        ("(having: {count: {gt: 1}})", "count", "having: requested without groupBy"),
        ("(orderBy: [{count: ASC}])", "count", "orderBy: requested without groupBy"),
        (
            "(groupBy: {label: true})",
            "groups { key { region } }",
            "key.region: not a field of groupBy, expected one of label",
        ),
        (
            "(groupBy: {label: true}, orderBy: [{key: {region: ASC}}])",
            "groups { count }",
            "orderBy: key.region, expected a field of groupBy",
        ),
        ("(groupBy: {label: true}, first: 1001)", "groups { count }", "first: 1,001, expected"),
        ("(groupBy: {label: true}, first: -1)", "groups { count }", "first: -1, expected 0 to"),
        (
            '(groupBy: {at: {by: DAY, timeZone: "Europe/Atlantis"}})',
            "groups { count }",
            "timeZone: 'Europe/Atlantis', expected an Olson name",
        ),
        *(
            # No field path, which could be one that the caller may not read; no variable.
            (
                f'(groupBy: {{at: {{by: DAY, timeZone: "{zone}"}}}})',
                "groups { count }",
                f"timeZone: {zone!r}, expected an Olson name",
            )
            for zone in ("$zone", "$hidden", "$$NOW", "", "+15:00", "-99:99", "+2")
        ),
    ],
)
async def test_bad_input_is_refused(
    sales: Shop, arguments: str, selection: str, message: str
) -> None:
    """The message names the argument and what is expected."""
    store(sales, [{"at": datetime(2024, 1, 1, tzinfo=UTC), "zone": "+02:00", "hidden": 1}])
    text = f"{{ salesAggregate{arguments} {{ {selection} }} }}"
    data, [(told, code)] = await ask(sales, text)
    assert (data, code) == (None, "BAD_USER_INPUT")
    assert message in told


@pytest.mark.parametrize(
    ("arguments", "selection"),
    [
        ("", "sum { hidden }"),
        ("", "distinctCount { ship { hidden } }"),
        ("(where: {hidden: {gt: 1}})", "count"),
        ("(groupBy: {hidden: true})", "groups { count }"),
        ("(groupBy: {ship: {hidden: true}})", "groups { count }"),
        ("(groupBy: {label: true}, having: {max: {hidden: {gt: 1}}})", "groups { count }"),
        ("(groupBy: {label: true}, orderBy: [{sum: {hidden: ASC}}])", "groups { count }"),
        ("(groupBy: {label: true})", "groups { min { ship { hidden } } }"),
    ],
)
async def test_fields_that_a_caller_may_not_read_are_refused(
    sales: Shop, arguments: str, selection: str
) -> None:
    """In results, filters, groups, conditions on groups, and orders; with the role they are not."""
    store(sales, [{"hidden": 1, "ship": {"hidden": 2}}])
    text = f"{{ salesAggregate{arguments} {{ {selection} }} }}"
    data, [(told, code)] = await ask(sales, text)
    assert (data, code) == (None, "FORBIDDEN")
    assert "hidden" in told
    await aggregate(sales, arguments, selection, Principal(name="ann", roles=frozenset({"staff"})))


async def test_an_aggregate_is_one_command_in_memory_that_uses_an_index(
    sales: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row rule and the filter come first; MongoDB may not use its disks."""
    store(sales, [{"region": "n"}])
    sales.database["sales"].create_index("region")
    mongo = sales.gateway.mongo
    asked: list[tuple[Any, ...]] = []
    run = mongo.aggregate

    async def listening(collection: Any, stages: Any, **options: Any) -> Any:
        # The recorder reads, too.
        if collection == "sales":
            asked.append((collection, stages, options))
        return await run(collection, stages, **options)

    monkeypatch.setattr(mongo, "aggregate", listening)
    text = "(where: {region: {eq: NORTH}}, groupBy: {label: true})"
    selection = "count groups { key { label } count sum { n } } totalGroups"
    text = f"{{ salesAggregate{text} {{ {selection} }} }}"
    context = context_of(sales.gateway, caller=ANN)
    assert not (await sales.schema.execute(text, {}, context)).errors
    [(collection, stages, options)] = asked
    assert (collection, options) == ("sales", {"at": None, "in_memory": True})
    assert "owner" in str(stages[0]["$match"])
    explained = sales.database.command(
        "explain",
        {"aggregate": "sales", "pipeline": stages, "cursor": {}, "collation": COLLATION},
        verbosity="queryPlanner",
    )
    plan = explained["stages"][0]["$cursor"]["queryPlanner"]["winningPlan"]
    assert "'stage': 'IXSCAN', 'keyPattern': {'region': 1}" in str(plan)


async def test_groups_that_need_too_much_memory_are_refused(
    sales: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MongoDB's own bound, reached with a smaller one; nothing is written to its disks."""
    store(sales, [{"label": f"{number:05} {'x' * 2000}"} for number in range(1000)])
    admin = sales.database.client.admin
    name = "internalDocumentSourceGroupMaxMemoryBytes"
    before = admin.command("getParameter", 1, **{name: 1})[name]
    admin.command("setParameter", 1, **{name: 100_000})
    try:
        text = "{ salesAggregate(groupBy: {label: true}) { groups { count } totalGroups } }"
        data, [(told, code)] = await ask(sales, text)
    finally:
        admin.command("setParameter", 1, **{name: before})
    assert (data, code) == (None, "LIMIT_EXCEEDED")
    assert "memory of the groups" in told


async def test_groups_that_are_larger_than_a_document_are_refused(sales: Shop) -> None:
    """Groups beside totals are one document of MongoDB, which has at most 16 MB."""
    store(sales, [{"label": str(number) * 6_000_000} for number in range(3)])
    text = "{ salesAggregate(groupBy: {label: true}) { count groups { count } } }"
    data, [(told, code)] = await ask(sales, text)
    assert (data, code) == (None, "LIMIT_EXCEEDED")
    assert "size of the groups" in told


async def test_documents_of_then_are_scanned_at_their_cost(
    sales: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many moments in one operation are refused as many scans of the present are."""
    monkeypatch.setitem(sales.gateway.mongo.limiter.sizes, "deals", 4000)
    limiter = ConcurrencyLimiter(limits=OperationLimits(cost=8))
    bounded = replace(sales, schema=build_schema(MODEL, limiter=limiter))
    token = (await sales.ask("{ resumeToken }"))["resumeToken"]
    fields = f'dealsAggregate(asOf: {{token: "{token}"}}) {{ count }}'
    assert (await ask(bounded, f"{{ a: {fields} b: {fields} }}"))[1] == []
    _, errors = await ask(bounded, f"{{ a: {fields} b: {fields} c: {fields} }}")
    assert {code for _, code in errors} == {"LIMIT_EXCEEDED"}
    assert "maximum is 8" in errors[0][0]


async def test_groups_cost_as_many_documents_as_first(sales: Shop) -> None:
    """So that many aggregates in one operation are refused as many pages are."""

    def text(first: int) -> str:
        fields = (
            f"salesAggregate(groupBy: {{label: true}}, first: {first}) {{ groups {{ count }} }}"
        )
        return f"{{ {' '.join(f'a{n}: {fields}' for n in range(12))} }}"

    assert (await ask(sales, text(800)))[1] == []
    _, [(told, code)] = await ask(sales, text(1000))
    assert code == "LIMIT_EXCEEDED"
    assert "cost" in told


async def test_an_entity_without_fields_to_group_by_has_a_count(sales: Shop) -> None:
    """Its only field is JSON."""
    sales.database["notes"].insert_many([{"_id": "a"}, {"_id": "b"}])
    assert await ask(sales, "{ notesAggregate { count } }") == (
        {"notesAggregate": {"count": 2}},
        [],
    )
