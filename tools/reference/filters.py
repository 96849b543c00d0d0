"""Operators of filters with an example each, for graphql.md.

A test asks a real gateway for each example.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from bson import Decimal128, Int64, ObjectId, Timestamp

from revstream.gql.schema.common.filter_inputs import OPERATOR_DESCRIPTIONS
from revstream.model.definition import EnumType, Scalar
from revstream.model.filter_operators import filter_operators
from revstream.resolvers.values.json_value import json_value
from tools.reference.markdown import code, linked, table

__all__ = ["DOCUMENTS", "FILTERS", "MODEL", "PARTS", "Filter"]

MODEL = """\
type Lamp @collection(name: "lamps") {
  id: ID!
  name: String
  watts: Int
  minutes: Long
  warmth: Float
  price: Decimal
  dimmable: Boolean
  since: DateTime
  checkedOn: Date
  syncedAt: Timestamp
  makerId: ObjectID
  serial: UUID
  label: Binary
  socket: Socket
  tags: [String!]
  position: Point
  size: Size
  offers: [Offer!]
  attributes: JSON
}

enum Socket { E14 E27 GU10 }
type Size { width: Float height: Float }
type Offer { shop: String price: Decimal }
"""


def _lamp(
    id_: str, number: int, name: str, socket: str, tags: list[str], offers: list[tuple[str, int]]
) -> dict[str, Any]:
    """Return a lamp whose ordered values grow with its number."""
    return {
        "_id": id_,
        "name": name,
        "watts": number * 5,
        "minutes": Int64(number * 10**12),
        "warmth": number + 0.5,
        "price": Decimal128(Decimal(number * 10)),
        "dimmable": number != 2,
        "since": datetime(2020 + number, 1, 1, tzinfo=UTC),
        "checkedOn": datetime(2020 + number, 1, 1, tzinfo=UTC),
        "syncedAt": Timestamp(number, 1),
        "makerId": ObjectId(f"{number:024x}"),
        "serial": UUID(int=number),
        "label": bytes([number]),
        "socket": socket,
        "tags": tags,
        "position": {"type": "Point", "coordinates": [10.0 * number, 50.0]},
        "size": {"width": 10.0 * number, "height": 40.0},
        "offers": [{"shop": shop, "price": Decimal128(Decimal(price))} for shop, price in offers],
        "attributes": {
            "finish": {"colour": ["Amber", "Blue", "Coral"][number - 1], "coats": number},
            "rooms": ["hall", "bath"][: 3 - number],
        },
    }


DOCUMENTS = [
    _lamp("a", 1, "Ant", "E14", ["desk", "brass"], [("North", 10), ("South", 12)]),
    _lamp("b", 2, "Bee", "E27", ["desk"], [("North", 20)]),
    _lamp("c", 3, "Cat", "GU10", [], []),
    {"_id": "d"},
]
"""Documents that the examples are asked of; the last one has an id only."""


class Filter(NamedTuple):
    """An example of an operator: a `where`, and the ids that it finds."""

    operator: str
    where: str
    found: str


# What each operator finds where the operand is the second of three values.
_FOUND = {
    "eq": "b",
    "ne": "acd",
    "in": "ab",
    "notIn": "cd",
    "lt": "a",
    "lte": "ab",
    "gt": "c",
    "gte": "bc",
    "exists": "abc",
}
_VALUES: dict[str, tuple[str, str, str]] = {
    "ID": ("id", '"a"', '"b"'),
    "String": ("name", '"Ant"', '"Bee"'),
    "Int": ("watts", "5", "10"),
    "Long": ("minutes", "1000000000000", "2000000000000"),
    "Float": ("warmth", "1.5", "2.5"),
    "Decimal": ("price", '"10"', '"20"'),
    "DateTime": ("since", '"2021-01-01T00:00:00Z"', '"2022-01-01T00:00:00Z"'),
    "Date": ("checkedOn", '"2021-01-01"', '"2022-01-01"'),
    "Timestamp": ("syncedAt", '"1:1"', '"2:1"'),
    "ObjectID": ("makerId", f'"{1:024x}"', f'"{2:024x}"'),
    "UUID": ("serial", f'"{UUID(int=1)}"', f'"{UUID(int=2)}"'),
    "Binary": ("label", '"AQ=="', '"Ag=="'),
    "enum": ("socket", "E14", "E27"),
}
_TEXTS = {
    each.operator: each
    for each in (
        Filter("startsWith", '{ name: { startsWith: "Be" } }', "b"),
        Filter("endsWith", '{ name: { endsWith: "t" } }', "ac"),
        Filter("matches", '{ name: { matches: "^[AB].?(n|e)" } }', "ab"),
        Filter("contains", '{ name: { contains: "a" } }', "c"),
        Filter("eqIgnoreCase", '{ name: { eqIgnoreCase: "BEE" } }', "b"),
        Filter("startsWithIgnoreCase", '{ name: { startsWithIgnoreCase: "b" } }', "b"),
        Filter("endsWithIgnoreCase", '{ name: { endsWithIgnoreCase: "NT" } }', "a"),
        Filter("containsIgnoreCase", '{ name: { containsIgnoreCase: "A" } }', "ac"),
        Filter("eqIgnoreCaseAndAccents", '{ name: { eqIgnoreCaseAndAccents: "bée" } }', "b"),
        Filter(
            "startsWithIgnoreCaseAndAccents",
            '{ name: { startsWithIgnoreCaseAndAccents: "å" } }',
            "a",
        ),
        Filter(
            "endsWithIgnoreCaseAndAccents", '{ name: { endsWithIgnoreCaseAndAccents: "ñt" } }', "a"
        ),
        Filter(
            "containsIgnoreCaseAndAccents", '{ name: { containsIgnoreCaseAndAccents: "á" } }', "ac"
        ),
    )
}
_SOCKET = EnumType(name="Socket", values=("E14", "E27", "GU10"))


def _of_scalar(kind: str) -> list[Filter]:
    """Return the examples of a kind whose values are in `_VALUES`."""
    name, first, second = _VALUES[kind]
    scalar = _SOCKET if kind == "enum" else Scalar(kind)
    found = []
    for each in filter_operators(scalar, is_list=False):
        operand = {"in": f"[{first}, {second}]", "notIn": f"[{first}, {second}]"}.get(each, second)
        if each in _TEXTS:
            filter_ = _TEXTS[each]
        elif each == "exists":
            ids = "abcd" if kind == "ID" else _FOUND[each]
            filter_ = Filter(each, f"{{ {name}: {{ exists: true }} }}", ids)
        else:
            filter_ = Filter(each, f"{{ {name}: {{ {each}: {operand} }} }}", _FOUND[each])
        found.append(filter_)
    return found


def _in_json(operator: str, operand: str, found: str, path: str = "finish.colour") -> Filter:
    where = f'{{ attributes: {{ path: "{path}", {operator}: {operand} }} }}'
    return Filter(operator, where, found)


FILTERS: dict[str, list[Filter]] = {
    **{kind: _of_scalar(kind) for kind in _VALUES},
    "Boolean": [
        Filter("eq", "{ dimmable: { eq: true } }", "ac"),
        Filter("ne", "{ dimmable: { ne: true } }", "bd"),
        Filter("exists", "{ dimmable: { exists: false } }", "d"),
    ],
    "JSON": [
        Filter("path", '{ attributes: { path: "rooms", eq: "bath" } }', "a"),
        _in_json("eq", '"Blue"', "b"),
        _in_json("ne", '"Blue"', "acd"),
        _in_json("in", '["Amber", "Blue"]', "ab"),
        _in_json("notIn", '["Amber", "Blue"]', "cd"),
        _in_json("lt", "2", "a", "finish.coats"),
        _in_json("lte", "2", "ab", "finish.coats"),
        _in_json("gt", "2", "c", "finish.coats"),
        _in_json("gte", "2", "bc", "finish.coats"),
        _in_json("startsWith", '"Bl"', "b"),
        _in_json("endsWith", '"r"', "a"),
        _in_json("contains", '"a"', "c"),
        _in_json("eqIgnoreCase", '"BLUE"', "b"),
        _in_json("startsWithIgnoreCase", '"b"', "b"),
        _in_json("endsWithIgnoreCase", '"R"', "a"),
        _in_json("containsIgnoreCase", '"A"', "ac"),
        _in_json("eqIgnoreCaseAndAccents", '"blüe"', "b"),
        _in_json("startsWithIgnoreCaseAndAccents", '"å"', "a"),
        _in_json("endsWithIgnoreCaseAndAccents", '"é"', "b"),
        _in_json("containsIgnoreCaseAndAccents", '"á"', "ac"),
        _in_json("size", "1", "b", "rooms"),
        _in_json("isEmpty", "true", "c", "rooms"),
        _in_json("exists", "false", "d"),
    ],
    "Point": [
        Filter(
            "within",
            "{ position: { within: { box: { southWest: { longitude: 5, latitude: 45 }, "
            "northEast: { longitude: 20, latitude: 55 } } } } }",
            "ab",
        ),
        Filter(
            "within",
            "{ position: { within: { circle: { center: { longitude: 10, latitude: 50 }, "
            "radius: 1000 } } } }",
            "a",
        ),
        Filter(
            "within",
            "{ position: { within: { polygon: [{ longitude: 15, latitude: 45 }, "
            "{ longitude: 25, latitude: 45 }, { longitude: 20, latitude: 60 }] } } }",
            "b",
        ),
        Filter(
            "near",
            "{ position: { near: { point: { longitude: 10, latitude: 50 }, "
            "maxDistance: 800000 } } }",
            "ab",
        ),
        Filter("exists", "{ position: { exists: false } }", "d"),
    ],
    "list": [
        Filter("has", '{ tags: { has: "desk" } }', "ab"),
        Filter("hasEvery", '{ tags: { hasEvery: ["desk", "brass"] } }', "a"),
        Filter("hasSome", '{ tags: { hasSome: ["brass", "oak"] } }', "a"),
        Filter("size", "{ tags: { size: 1 } }", "b"),
        Filter("isEmpty", "{ tags: { isEmpty: true } }", "c"),
        Filter("exists", "{ tags: { exists: true } }", "abc"),
    ],
    "embedded": [
        Filter("(fields)", "{ size: { width: { gt: 10 }, height: { eq: 40 } } }", "bc"),
        Filter("and", "{ size: { and: [{ width: { gt: 10 } }, { width: { lt: 30 } }] } }", "b"),
        Filter("or", "{ size: { or: [{ width: { lt: 20 } }, { width: { gt: 20 } }] } }", "ac"),
        Filter("not", "{ size: { not: { width: { eq: 20 } } } }", "acd"),
        Filter("exists", "{ size: { exists: false } }", "d"),
    ],
    "list of embedded": [
        Filter("some", '{ offers: { some: { shop: { eq: "South" } } } }', "a"),
        Filter("every", '{ offers: { every: { shop: { eq: "North" } } } }', "bcd"),
        Filter("none", '{ offers: { none: { shop: { eq: "North" } } } }', "cd"),
        Filter("size", "{ offers: { size: 2 } }", "a"),
        Filter("isEmpty", "{ offers: { isEmpty: true } }", "c"),
        Filter("exists", "{ offers: { exists: true } }", "abc"),
    ],
    "combinators": [
        Filter("and", '{ and: [{ watts: { gt: 5 } }, { tags: { has: "desk" } }] }', "b"),
        Filter("or", '{ or: [{ watts: { eq: 5 } }, { name: { eq: "Cat" } }] }', "ac"),
        Filter("not", '{ not: { tags: { has: "desk" } } }', "cd"),
    ],
}
_COMBINATORS = {
    "(fields)": "Conditions for the fields. All of them must match.",
    "and": "All of these filters match. An empty list matches everything.",
    "or": "At least one of these filters matches. An empty list matches nothing.",
    "not": "This filter does not match.",
}


def _filters(kind: str) -> str:
    says = {**OPERATOR_DESCRIPTIONS, **_COMBINATORS}
    return table(
        ("operator", "meaning", "example of `where`", "finds"),
        (
            (
                code(each.operator),
                linked(says[each.operator]),
                code(each.where),
                ", ".join(each.found),
            )
            for each in FILTERS[kind]
        ),
    )


def _documents() -> str:
    names = list(DOCUMENTS[0])
    return table(
        ("field", *(f"`{each['_id']}`" for each in DOCUMENTS)),
        (
            (code("id" if name == "_id" else name), *(_shown(each.get(name)) for each in DOCUMENTS))
            for name in names
        ),
    )


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name}: {_shown(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d")
    if isinstance(value, Timestamp | bytes):
        return str(json_value(value) if isinstance(value, bytes) else f"{value.time}:{value.inc}")
    return str(value)


PARTS: dict[str, Callable[[], str]] = {
    "lamps": lambda: f'```graphql title="schema.graphql"\n{MODEL}```\n\n{_documents()}',
    **{f"filters {kind}": partial(_filters, kind) for kind in FILTERS},
}
