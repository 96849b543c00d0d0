"""Each operator and each order of the API, compared with plain Python: now, as of drawn moments,
and under a row rule.

A value is its place among the values of its type, in the order of MongoDB. So the model compares
numbers, and knows nothing of BSON.
"""

from __future__ import annotations

import itertools
import unicodedata
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from bson import Binary, Decimal128, Int64, ObjectId, Timestamp
from graphql import GraphQLInputObjectType, get_named_type
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import context_of
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import ANONYMOUS
from revstream.streams.core import resume_tokens
from tests.support.editing import Row, Shop, open_shop
from tests.support.exhaustive import examples

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXTS = ["", "A", "AB", "a", "ab\n", "b", "\u00c1", "\u00e1b"]
DAYS = [datetime(2024, 5, day, tzinfo=UTC) for day in (1, 2, 9)]
OIDS = [ObjectId(f"{n:024x}") for n in range(3)]
UUIDS = [UUID(int=n) for n in range(3)]
VALUES: Mapping[str, Sequence[tuple[Any, Any]]] = {
    "String": [(each, each) for each in TEXTS],
    "Int": [(each, each) for each in (-1, 0, 2)],
    "Long": [(Int64(each), each) for each in (-1, 2**40, 2**52)],
    "Float": [(each, each) for each in (-0.5, 1.5, 2.0)],
    "Boolean": [(False, False), (True, True)],
    "Decimal": [(Decimal128(each), each) for each in ("-2", "1.50", "10")],
    "DateTime": [(each, each.isoformat()) for each in DAYS],
    "Date": [(each, each.date().isoformat()) for each in DAYS],
    "Timestamp": [(Timestamp(*each), "{}:{}".format(*each)) for each in ((1, 1), (1, 2), (3, 0))],
    "Binary": [(each, b64encode(each).decode()) for each in (b"", b"b", b"ab")],
    "ObjectID": [(each, str(each)) for each in OIDS],
    "UUID": [(Binary.from_uuid(each), str(each)) for each in UUIDS],
    "ID": [(each, each) for each in ("k", "l", "m")],
    "Kind": [(each, each) for each in ("A", "B", "C")],
}
"""Stored values of each type in MongoDB's order, each with its form in the API."""

SINGLE = {f"one{kind}": kind for kind in VALUES}
LISTS = {f"some{kind}": kind for kind in VALUES}
INNER = {"n": "Int", "label": "String"}
MODEL = read_model(
    f"""
    type Thing @collection(name: "things") @access(rows: "{{ hidden: {{ ne: true }} }}") {{
      id: ID! hidden: Boolean box: Box boxes: [Box!]
      {" ".join(f"{name}: {kind}" for name, kind in SINGLE.items())}
      {" ".join(f"{name}: [{kind}!]" for name, kind in LISTS.items())}
    }}
    type Box {{ n: Int label: String }}
    enum Kind {{ A B C }}
    """
)
COUNT = 5

Where = dict[str, Any]
Plain = dict[str, Any]
"""A document: places of values, lists of them, boxes; `id` is its number, `version` as it is."""


def _folded(text: str) -> str:
    return text.lower()


def _bare(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


def _text_operators(suffix: str, fold: Callable[[str], str]) -> Iterator[tuple[str, Any]]:
    tests: dict[str, Callable[[str, str], bool]] = {
        "eq": lambda held, given: held == given,
        "startsWith": str.startswith,
        "endsWith": str.endswith,
        "contains": lambda held, given: given in held,
    }
    for name, test in tests.items():
        if suffix or name != "eq":
            yield (
                f"{name}{suffix}",
                lambda held, given, test=test: (
                    held is not None and test(fold(TEXTS[held]), fold(TEXTS[given]))
                ),
            )


OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda held, given: held == given,
    "ne": lambda held, given: held != given,
    "in": lambda held, given: held in given,
    "notIn": lambda held, given: held not in given,
    "lt": lambda held, given: held is not None and held < given,
    "lte": lambda held, given: held is not None and held <= given,
    "gt": lambda held, given: held is not None and held > given,
    "gte": lambda held, given: held is not None and held >= given,
    "exists": lambda held, given: (held is not None) == given,
    "has": lambda held, given: given in (held or ()),
    "hasEvery": lambda held, given: set(given) <= set(held or ()),
    "hasSome": lambda held, given: not set(given).isdisjoint(held or ()),
    "size": lambda held, given: held is not None and len(held) == given,
    "isEmpty": lambda held, given: held is not None and (not held) == given,
    "some": lambda held, given: any(matches(each, given) for each in held or ()),
    "every": lambda held, given: all(matches(each, given) for each in held or ()),
    "none": lambda held, given: not any(matches(each, given) for each in held or ()),
    **dict(_text_operators("", lambda text: text)),
    # The texts are letters, which match themselves.
    "matches": lambda held, given: held is not None and TEXTS[given] in TEXTS[held],
    **dict(_text_operators("IgnoreCase", _folded)),
    **dict(_text_operators("IgnoreCaseAndAccents", lambda text: _bare(_folded(text)))),
}


def matches(document: Plain | None, where: Where) -> bool:
    """Return whether a document matches a filter; also an embedded one, which may be missing."""

    def holds(name: str, given: Any) -> bool:
        match name:
            case "and":
                return all(matches(document, each) for each in given)
            case "or":
                return any(matches(document, each) for each in given)
            case "not":
                return not matches(document, given)
            case "exists":
                return (document is not None) == given
        held = (document or {}).get(name)
        if name == "box":
            return matches(held, given)
        return all(OPERATORS[each](held, operand) for each, operand in given.items())

    return all(holds(name, given) for name, given in where.items())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(mongo_uri: str, client: MongoClient[Row]) -> AsyncIterator[Shop]:
    """Run a gateway over things."""
    name = f"where_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=MODEL) as shop:
        yield shop
    client.drop_database(name)


def input_fields(shop: Shop, name: str) -> dict[str, str]:
    """Return the fields of an input type of the API, with the names of their types."""
    type_ = shop.schema._schema.type_map[name]
    assert isinstance(type_, GraphQLInputObjectType)
    return {name: get_named_type(each.type).name for name, each in type_.fields.items()}


def orders(shop: Shop) -> list[tuple[str, ...]]:
    """Return the paths by which things can be ordered."""
    fields = input_fields(shop, "ThingOrder")
    inner = input_fields(shop, "BoxOrderBy")
    paths = [(name,) for name in fields if name != "box"]
    return [*paths, *(("box", each) for each in inner)] if "box" in fields else paths


async def test_each_operator_of_the_api_has_a_plain_model(shop: Shop) -> None:
    """A new operator, or a new field of the filter, fails here until it is modelled."""
    fields = input_fields(shop, "ThingWhere")
    words = {"and", "or", "not"}
    known = {*words, "id", "version", "hidden", "box", "boxes", *SINGLE, *LISTS}
    assert set(fields) == known
    assert set(input_fields(shop, "BoxWhere")) == {*words, "exists", *INNER}
    for name in known - words - {"box"}:
        assert set(input_fields(shop, fields[name])) <= OPERATORS.keys(), name
    assert {path[-1] for path in orders(shop)} == {"id", "version", "hidden", *SINGLE, *INNER}
    fields = input_fields(shop, "VersionWhere")
    assert set(fields) == {*VERSION_FIELDS, "changedField"}
    for name in VERSION_FIELDS:
        assert set(input_fields(shop, fields[name])) <= OPERATORS.keys(), name


def operands(operator: str, kind: str, count: int) -> st.SearchStrategy[Any]:
    one = st.integers(0, count - 1)
    if operator in ("exists", "isEmpty"):
        return st.booleans()
    if operator == "size":
        return st.integers(0, 2)
    if operator in ("in", "notIn", "hasEvery", "hasSome"):
        return st.lists(one, max_size=2)
    return st.none() | one if operator in ("eq", "ne") else one


@st.composite
def conditions(draw: st.DrawFn, shop: Shop, type_name: str = "ThingWhere", *without: str) -> Where:
    """Draw a filter with one condition, or its opposite.

    Args:
        without: fields and operators that are not drawn.
    """
    fields = input_fields(shop, type_name)
    names = [each for each in fields if each not in ("and", "or", *without)]
    name = draw(st.sampled_from(names))
    if name == "not":
        return {"not": draw(conditions(shop, type_name, "not", *without))}
    if name == "exists":
        return {"exists": draw(st.booleans())}
    if name == "box":
        return {"box": draw(conditions(shop, "BoxWhere"))}
    kind = (INNER | SINGLE | LISTS | {"hidden": "Boolean"}).get(name, "")
    count = COUNT if name in ("id", "version") else len(VALUES.get(kind, (0,)))
    operators = [each for each in input_fields(shop, fields[name]) if each not in without]
    operator = draw(st.sampled_from(operators))
    if operator in ("some", "every", "none"):
        # An item of a list exists: the filter is refused. So are regular expressions for items.
        return {name: {operator: draw(conditions(shop, "BoxWhere", "exists", "matches"))}}
    return {name: {operator: draw(operands(operator, kind, count))}}


def wheres(shop: Shop) -> st.SearchStrategy[Where]:
    """Draw filters; half of them combine others."""
    one = conditions(shop)
    some = st.lists(one, max_size=3)
    return one | one | st.builds(lambda x: {"and": x}, some) | st.builds(lambda x: {"or": x}, some)


@st.composite
def documents(draw: st.DrawFn) -> Plain:
    """Draw a document with few of the fields."""
    boxes = st.fixed_dictionaries({}, optional={name: places(kind) for name, kind in INNER.items()})
    fields: dict[str, st.SearchStrategy[Any]] = {
        "hidden": st.sampled_from([0, 0, 1]),
        "box": boxes,
        "boxes": st.lists(boxes, max_size=2),
        **{name: places(kind) for name, kind in SINGLE.items()},
        **{name: st.lists(places(kind), max_size=2) for name, kind in LISTS.items()},
    }
    names = draw(st.sets(st.sampled_from(sorted(fields)), min_size=len(fields) // 2))
    author = {"author": draw(st.integers(1, len(TEXTS) - 1))}
    return author | {name: draw(fields[name]) for name in sorted(names)}


def places(kind: str) -> st.SearchStrategy[int]:
    return st.integers(0, len(VALUES[kind]) - 1)


NUMBERS = itertools.count()

VERSION_FIELDS = ("documentId", "author", "operation", "at", "version")
VERSIONS = """
query($all: VersionWhere, $where: VersionWhere) {
  all: thingVersions(where: $all, first: 50) { nodes { ...row } }
  found: thingVersions(where: $where, first: 50) { nodes { ...row } }
}
fragment row on ThingVersion { documentId author operation at version document { hidden } }
"""


@settings(
    deadline=None,
    max_examples=examples(8),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    # The failure names the filter and the documents.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(data=st.data())
async def test_filters_and_orders_equal_plain_python(shop: Shop, data: st.DataObject) -> None:
    """Filters and orders return the visible documents of plain Python, in its order."""
    prefix = f"{next(NUMBERS):06d}-"
    first = {n: data.draw(documents(), label="first") for n in range(COUNT)}
    states: list[dict[int, Plain]] = [{}, first, dict(first)]
    for n in range(COUNT):
        match data.draw(st.sampled_from(["keep", "write", "write", "delete"]), label="then"):
            case "write":
                states[2][n] = data.draw(documents(), label="second")
            case "delete":
                del states[2][n]
    collection = shop.database["things"]
    collection.delete_many({})
    tokens = [await now(shop)]
    for number, (before, state) in enumerate(itertools.pairwise(states), start=1):
        for n in {**before, **state}:
            if n not in state:
                collection.delete_one({"_id": f"{prefix}{n}"})
            elif state[n] is not before.get(n):
                state[n] |= {"id": n, "version": number}
                row = to_row(state[n], prefix)
                collection.replace_one({"_id": row["_id"]}, row, upsert=True)
        tokens.append(await now(shop))
    await shop.recorded()
    moment = data.draw(st.integers(0, 2), label="moment")
    drawn = data.draw(st.lists(wheres(shop), min_size=12, max_size=12), label="filters")
    paths = data.draw(
        st.lists(
            st.lists(st.sampled_from(orders(shop)), max_size=2, unique=True),
            min_size=12,
            max_size=12,
        ),
        label="orders",
    )
    ways = [
        [(path, data.draw(st.sampled_from(["ASC", "DESC"]), label="way")) for path in each]
        for each in paths
    ]
    variables: dict[str, Any] = {"t": {"token": tokens[moment]}}
    for number, (where, order) in enumerate(zip(drawn, ways, strict=True)):
        variables[f"w{number}"] = to_api(where, prefix)
        variables[f"o{number}"] = [
            {path[0]: way} if len(path) == 1 else {path[0]: {path[1]: way}} for path, way in order
        ]
    context = context_of(shop.gateway, caller=ANONYMOUS)
    result = await shop.schema.execute(QUERY, variables, context)
    assert result.errors is None
    assert result.data is not None
    for number, (where, order) in enumerate(zip(drawn, ways, strict=True)):
        for name, state in (("now", states[2]), ("then", states[moment])):
            found = [each["documentId"] for each in result.data[f"{name}{number}"]["nodes"]]
            expected = [f"{prefix}{n}" for n in plain_ids(state, where, order)]
            assert found == expected, (name, where, order, state)
    await check_versions(shop, data, [f"{prefix}{n}" for n in range(COUNT)], states)


async def check_versions(
    shop: Shop, data: st.DataObject, ids: Sequence[str], states: Sequence[Mapping[int, Plain]]
) -> None:
    """Compare filtered versions with a plain filter of all, which are those of the rows."""

    async def read(where: Where) -> tuple[list[Row], list[Row]]:
        context = context_of(shop.gateway, caller=ANONYMOUS)
        variables = {"all": {"documentId": {"in": ids}}, "where": where}
        result = await shop.schema.execute(VERSIONS, variables, context)
        assert result.errors is None
        assert result.data is not None
        return result.data["all"]["nodes"], result.data["found"]["nodes"]

    every, _ = await read({})
    written = [
        (each["id"], each["version"], each.get("author"))
        for each in {id(each): each for state in states for each in state.values()}.values()
        if each.get("hidden") != 1
    ]
    assert sorted(
        (ids.index(each["documentId"]), each["version"], TEXTS.index(each["author"]))
        for each in every
        if each["document"] is not None
    ) == sorted(written)
    fields = input_fields(shop, "VersionWhere")
    names = data.draw(
        st.lists(st.sampled_from(VERSION_FIELDS), min_size=1, max_size=2, unique=True),
        label="version fields",
    )
    # The values that a filter compares, in MongoDB's order.
    values = {
        name: TEXTS if name == "author" else sorted({each[name] for each in every}) or ids
        for name in names
    }
    where = {}
    for name in names:
        operator = data.draw(st.sampled_from(list(input_fields(shop, fields[name]))))
        drawn = operands(operator, name, len(values[name])).filter(lambda each: each is not None)
        where[name] = {operator: data.draw(drawn, label=f"{name}.{operator}")}

    def shown(name: str, operand: Any) -> Any:
        if isinstance(operand, list):
            return [shown(name, each) for each in operand]
        return operand if isinstance(operand, bool) else values[name][operand]

    def place(name: str, value: Any) -> int | None:
        # A deletion has no author.
        return None if value is None else values[name].index(value)

    if not every:
        return
    given = {
        name: {operator: shown(name, operand) for operator, operand in each.items()}
        for name, each in where.items()
    }
    _, found = await read({"documentId": {"in": ids}} | given)
    found = [each for each in found if each["documentId"] in ids]
    expected = [
        each for each in every if matches({name: place(name, each[name]) for name in names}, where)
    ]
    assert found == expected, given


ARGUMENTS = "where: $w{0}, orderBy: $o{0}"
QUERY = "\n".join(
    [
        "query($t: TimePoint!",
        *(f", $w{n}: ThingWhere, $o{n}: [ThingOrder!]" for n in range(12)),
        ") {",
        *(f"now{n}: things({ARGUMENTS.format(n)}) {{ nodes {{ documentId }} }}" for n in range(12)),
        *(
            f"then{n}: thingsAsOf(asOf: $t, {ARGUMENTS.format(n)}) {{ nodes {{ documentId }} }}"
            for n in range(12)
        ),
        "}",
    ]
)


async def now(shop: Shop) -> str:
    token = resume_tokens.token_from_time(await shop.gateway.mongo.operation_time())
    return resume_tokens.encode(token, shop.gateway.deployment)


def plain_ids(
    state: Mapping[int, Plain], where: Where, order: Sequence[tuple[tuple[str, ...], str]]
) -> list[int]:
    """Return the numbers of the visible documents that match, in order."""
    found = [each for each in state.values() if each.get("hidden") != 1 and matches(each, where)]
    last = order[-1][1] if order else "ASC"
    for path, way in reversed([*order, (("id",), last)]):

        def key(document: Plain, path: tuple[str, ...] = path) -> tuple[bool, Any]:
            held: Any = document
            for name in path:
                held = (held or {}).get(name)
            return held is not None, held if held is not None else 0

        found.sort(key=key, reverse=way == "DESC")
    return [each["id"] for each in found]


def to_row(document: Plain, prefix: str) -> Row:
    """Return the stored form of a document."""

    def stored(name: str, held: Any) -> Any:
        if name == "box":
            return {inner: stored(inner, each) for inner, each in held.items()}
        if name == "boxes":
            return [stored("box", each) for each in held]
        kind = (INNER | SINGLE | LISTS | {"hidden": "Boolean"}).get(name)
        if kind is None:
            return held
        if isinstance(held, list):
            return [VALUES[kind][each][0] for each in held]
        return VALUES[kind][held][0]

    own = {
        "_id": f"{prefix}{document['id']}",
        "_change": {"id": uuid4().hex, "by": TEXTS[document["author"]]},
    }
    names = [name for name in document if name not in ("id", "author")]
    return {**own, **{name: stored(name, document[name]) for name in names}}


def to_api(where: Where, prefix: str) -> Where:
    """Return the filter as a client sends it."""

    def shown(name: str, operator: str, operand: Any) -> Any:
        if isinstance(operand, list):
            return [shown(name, operator, each) for each in operand]
        if operand is None or isinstance(operand, bool) or operator == "size":
            return operand
        if name == "id":
            return f"{prefix}{operand}"
        kind = (INNER | SINGLE | LISTS | {"hidden": "Boolean"}).get(name)
        return operand if kind is None else VALUES[kind][operand][1]

    def entry(name: str, given: Any) -> Any:
        match name:
            case "and" | "or":
                return [to_api(each, prefix) for each in given]
            case "not" | "box" | "some" | "every" | "none":
                return to_api(given, prefix)
            case "exists":
                return given
        return {
            operator: to_api(operand, prefix)
            if operator in ("some", "every", "none")
            else shown(name, operator, operand)
            for operator, operand in given.items()
        }

    return {name: entry(name, given) for name, given in where.items()}
