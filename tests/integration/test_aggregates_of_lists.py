"""Aggregates of lists on a real MongoDB: values of items, and groups by items."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from bson import Decimal128
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import context_of
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import ANONYMOUS
from tests.support.editing import Row, Shop, open_shop
from tests.support.exhaustive import examples

pytestmark = pytest.mark.asyncio(loop_scope="module")

_ORDER = """{
      id: ID! label: String n: Int tags: [String!] sizes: [Int] ship: Ship lines: [Line!]
      cityId: ID city: City @reference(by: "cityId")
    }
"""
MODEL = read_model(
    f"""
    type Order @collection(name: "orders", version: null) {_ORDER}
    type Deal @collection(name: "deals", version: null, storage: DELTA) {_ORDER}
    type Ship {{ codes: [String!] line: Line }}
    type Line {{
      sku: String qty: Int @stored(as: "q") price: Decimal dims: Dims parts: [Part!]
      cityId: ID city: City @reference(by: "cityId") cost: Int @access(read: ["staff"])
    }}
    type Dims {{ w: Int }}
    type Part {{ size: Int }}
    type City @collection(name: "cities", version: null) {{ id: ID! size: Int tags: [String!] }}
    """
)
CITIES = {"c": 1, "d": 1, "e": 2}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(mongo_uri: str, client: MongoClient[Row]) -> AsyncIterator[Shop]:
    """Run a gateway over collections that each test fills."""
    name = f"lists_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=MODEL) as shop:
        shop.database["cities"].insert_many([{"_id": key, "size": n} for key, n in CITIES.items()])
        yield shop
    client.drop_database(name)


async def ask(shop: Shop, text: str) -> tuple[Any, list[Any]]:
    context = context_of(shop.gateway, caller=ANONYMOUS)
    result = await shop.schema.execute(text, {}, context)
    errors = [(each.message, (each.extensions or {}).get("code")) for each in result.errors or ()]
    return result.data, errors


# The plain model.


def items(document: Row, path: str) -> list[Any]:
    value: Any = document
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, list) else []


def fitting(value: Any, kind: type) -> Any:
    if kind is Decimal:
        return value.to_decimal() if isinstance(value, Decimal128) else None
    return value if value.__class__ is kind else None


def field_of(item: Any, name: str, kind: type) -> Any:
    value: Any = item
    for each in name.split("."):
        value = value.get(each) if isinstance(value, dict) else None
    return fitting(value, kind)


KEYS = {
    "tags": ("tags", "tags: true", "tags", lambda item: fitting(item, str)),
    "sizes": ("sizes", "sizes: true", "sizes", lambda item: fitting(item, int)),
    "ship.codes": (
        "ship.codes",
        "ship: {codes: true}",
        "ship { codes }",
        lambda item: fitting(item, str),
    ),
    "lines.sku": ("lines", "sku: true", "sku", lambda item: field_of(item, "sku", str)),
    "lines.dims.w": (
        "lines",
        "dims: {w: true}",
        "dims { w }",
        lambda item: field_of(item, "dims.w", int),
    ),
    "label": (None, "label: true", "label", lambda document: document.get("label")),
    "city.size": (
        None,
        "city: {size: true}",
        "city { size }",
        lambda document: CITIES.get(document.get("cityId")),
    ),
}
CHOICES = [
    *([each] for each in KEYS),
    ["label", "tags"],
    ["label", "lines.sku", "lines.dims.w"],
    ["tags", "city.size"],
    ["lines.dims.w", "city.size"],
]
RESULTS = (
    "count sum { n sizes lines { qty price dims { w } } } avg { lines { qty } } "
    "min { sizes lines { qty } } max { lines { price } } "
    "distinctCount { tags label ship { codes } lines { sku qty } }"
)


def results(documents: Sequence[Row], own: str | None, own_items: Sequence[Any]) -> Row:
    """Return the results of a group; `own_items` are those of the list that makes groups."""

    def values_of(path: str, name: str, kind: type) -> list[Any]:
        found = own_items if path == own else [i for d in documents for i in items(d, path)]
        values = [field_of(each, name, kind) if name else fitting(each, kind) for each in found]
        return [each for each in values if each is not None]

    def total(values: Sequence[Any]) -> Any:
        return sum(values) if values else None

    quantities, prices, sizes = (
        values_of("lines", "q", int),
        values_of("lines", "price", Decimal),
        values_of("sizes", "", int),
    )
    labels = {each["label"] for each in documents if each.get("label") is not None}
    return {
        "count": len(documents),
        "sum": {
            "n": total([each["n"] for each in documents if "n" in each]),
            "sizes": total(sizes),
            "lines": {
                "qty": total(quantities),
                "price": total(prices),
                "dims": {"w": total(values_of("lines", "dims.w", int))},
            },
        },
        "avg": {"lines": {"qty": sum(quantities) / len(quantities) if quantities else None}},
        "min": {
            "sizes": min(sizes, default=None),
            "lines": {"qty": min(quantities, default=None)},
        },
        "max": {"lines": {"price": max(prices, default=None)}},
        "distinctCount": {
            "tags": len(set(values_of("tags", "", str))),
            "label": len(labels),
            "ship": {"codes": len(set(values_of("ship.codes", "", str)))},
            "lines": {"sku": len(set(values_of("lines", "sku", str))), "qty": len(set(quantities))},
        },
    }


def expected(documents: Sequence[Row], keys: Sequence[str]) -> list[tuple[Any, Row]]:
    own = next((KEYS[each][0] for each in keys if KEYS[each][0] is not None), None)
    groups: dict[tuple[Any, ...], tuple[list[Row], list[Any]]] = {}
    for document in documents:

        def key_of(item: Any, document: Row = document) -> tuple[Any, ...]:
            return tuple(KEYS[each][3](item if KEYS[each][0] else document) for each in keys)

        found = [(key_of(item), item) for item in items(document, own)] if own else []
        for key in {key for key, _ in found} or {key_of(None)}:
            groups.setdefault(key, ([], []))[0].append(document)
        for key, item in found:
            groups[key][1].append(item)
    ordered = sorted(groups.items(), key=lambda each: [(v is not None, v) for v in each[0]])
    return [(key, results(of, own, own_items)) for key, (of, own_items) in ordered]


def shown(answer: Row) -> Row:
    """Return results of an answer with decimals as numbers."""
    for measure in ("sum", "max"):
        price = answer[measure]["lines"]["price"]
        answer[measure]["lines"]["price"] = None if price is None else Decimal(price)
    return answer


def shown_key(key: Any, path: str) -> Any:
    for name in path.split("."):
        key = key[name]
    return key


# Drawn input.

LINE = st.fixed_dictionaries(
    {"sku": st.sampled_from(["a", "b", 3])},
    optional={
        "q": st.integers(0, 3) | st.just("many"),
        "price": st.decimals(0, 9, places=2).map(Decimal128),
        "dims": st.fixed_dictionaries({"w": st.integers(1, 2)}),
        "text": st.just("x" * 900),
    },
) | st.just(5)
DOCUMENTS = st.lists(
    st.fixed_dictionaries(
        {"label": st.sampled_from(["x", "y", None])},
        optional={
            "n": st.integers(0, 3),
            "tags": st.lists(st.sampled_from(["s", "t", 1, None]), max_size=3) | st.just("s"),
            "sizes": st.lists(st.integers(0, 2) | st.none(), max_size=3),
            "ship": st.fixed_dictionaries({"codes": st.lists(st.sampled_from(["k", "l"]))}),
            "lines": st.lists(LINE, max_size=3) | st.none(),
            "cityId": st.sampled_from(["c", "d", "e", "gone"]),
        },
    ),
    max_size=6,
)


@settings(
    max_examples=examples(16),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    states=st.lists(DOCUMENTS, min_size=1, max_size=2),
    keys=st.sampled_from(CHOICES),
    field=st.sampled_from(["orders", "deals"]),
)
async def test_results_and_groups_of_lists_equal_a_plain_fold(
    shop: Shop, states: list[list[Row]], keys: list[str], field: str
) -> None:
    """A document counts once in each group, and each item in that of its own key, now and then."""
    collection = shop.database[field]
    at = []
    for documents in states:
        collection.delete_many({"_id": {"$nin": [f"s{n}" for n in range(len(documents))]}})
        for n, document in enumerate(documents):
            collection.replace_one({"_id": f"s{n}"}, document, upsert=True)
        data, _ = await ask(shop, "{ resumeToken }")
        at.append(f'asOf: {{token: "{data["resumeToken"]}"}}, ')
    # Keys of one list are one object. The schema's order of fields is that of the key.
    order = ["label", "tags", "sizes", "ship.codes", "lines.sku", "lines.dims.w", "city.size"]
    keys = sorted(keys, key=order.index)
    parts = []
    for place, opened in ((1, "lines: {%s}"), (2, "lines { %s }")):
        inner = " ".join(KEYS[each][place] for each in keys if each.startswith("lines."))
        outer = [KEYS[each][place] for each in keys if not each.startswith("lines.")]
        parts.append(" ".join([*outer, *([opened % inner] if inner else [])]))
    for documents, moment in [*zip(states, at, strict=True), (states[-1], "")]:
        name = f"{field}Aggregate"
        data, errors = await ask(
            shop,
            f"{{ {name}({moment}groupBy: {{{parts[0]}}}) {{ {RESULTS} totalGroups "
            f"groups {{ key {{ {parts[1]} }} {RESULTS} }} }} }}",
        )
        assert errors == []
        answer = data[name]
        found = [(_popped(each, keys), shown(each)) for each in answer.pop("groups")]
        assert found == expected(documents, keys)
        assert answer.pop("totalGroups") == len(found)
        assert shown(answer) == results(documents, None, ())


def _popped(group: Row, keys: Sequence[str]) -> tuple[Any, ...]:
    key: Mapping[str, Any] = group.pop("key")
    return tuple(shown_key(key, path) for path in keys)


@pytest.mark.parametrize(
    ("arguments", "selection", "message", "code"),
    [
        (
            "(groupBy: {tags: true, sizes: true})",
            "groups { count }",
            "lists in groupBy: 2, maximum is 1",
            "BAD_USER_INPUT",
        ),
        (
            "(groupBy: {lines: {parts: {size: true}}})",
            "groups { count }",
            "lines.parts: a list in a list",
            "BAD_USER_INPUT",
        ),
        ("", "sum { lines { parts { size } } }", "lines.parts: a list in a list", "BAD_USER_INPUT"),
        (
            "(groupBy: {lines: {city: {size: true}}})",
            "groups { count }",
            "lines.city, a reference of an item of a list, expected a field of the item; group by "
            "lines.cityId",
            "BAD_USER_INPUT",
        ),
        (
            "(groupBy: {city: {tags: true}})",
            "groups { count }",
            "city.tags, a list of another document",
            "BAD_USER_INPUT",
        ),
        ("", "sum { lines { cost } }", "Line.cost", "FORBIDDEN"),
        ("(groupBy: {lines: {cost: true}})", "groups { count }", "Line.cost", "FORBIDDEN"),
    ],
)
async def test_bad_input_of_lists_is_refused(
    shop: Shop, arguments: str, selection: str, message: str, code: str
) -> None:
    """The message names the list and what is expected."""
    data, [(told, given_code)] = await ask(
        shop, f"{{ ordersAggregate{arguments} {{ {selection} }} }}"
    )
    assert (data, given_code) == (None, code)
    assert message in told


async def test_groups_by_a_long_list_take_time_in_proportion_to_it(shop: Shop) -> None:
    """MongoDB's time limit holds between documents only: one of them must not take minutes."""
    tags = [f"t{n}" for n in range(40_000)]
    shop.database["orders"].delete_many({})
    shop.database["orders"].insert_one({"_id": "a", "tags": tags})
    text = "{ ordersAggregate(groupBy: {tags: true}, first: 1) { groups { count } totalGroups } }"
    async with asyncio.timeout(10):
        data, errors = await ask(shop, text)
    assert errors == []
    assert data["ordersAggregate"] == {"groups": [{"count": 1}], "totalGroups": 40_000}
