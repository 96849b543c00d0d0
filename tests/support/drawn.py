"""Hypothesis strategies for documents and filters over the model of `tests.support.shapes`.

The value sets are small, so that filters match, and contain edge cases: NaN, infinities, -0.0,
doubles beside their exact decimals, texts of many scripts with regular-expression characters,
dates that Python cannot represent. Documents are valid, nearly valid, or invalid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any
from uuid import UUID

from bson.binary import Binary
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from hypothesis import strategies as st

from revstream.model.definition import EnumType, Field, ObjectType, Scalar
from revstream.model.filter_operators import TEXT_OPERANDS
from revstream.resolvers.filters.parser import operators
from revstream.resolvers.values.dates import from_milliseconds
from tests.support.shapes import SHAPES, THING

LETTERS = "aAbB.^$*\\([|\x00\nßéÉ日\ud7ff\ue000🙂\U0010ffff"

CASES = (
    "sSkKßiIé\u017f\u212a\u1e9e\u03c3\u03a3\u03c2\u0130\u0131\u03b8\u03d1\u01c5\u01c4\u1fb3\u1fbc"
    "\u0345\u03b9\uab70\u13a0\U00010400\U00010428"
)
"""Characters whose case is special: variants beside upper and lower case, or of another length."""

ACCENTS = "aAáÅ\u212b\u0301\u0327\u0345ǭḉøŁđÞßæйÿΐᾳİ日가\u1100\u1161か\u3099がأאָ1.\n"
"""Letters with accents, composed and decomposed, marks alone, and letters that stay as they are."""

BEYOND = (
    "9007199254740993",
    "9223372036854775808",
    "0.1000000000000000055511151231257827",
    "1E+6144",
    "1E-6176",
    "NaN",
    "Infinity",
    "-Infinity",
)
"""Decimals at the limits of other number types, or beyond them."""

NOTABLE: Mapping[Scalar, Sequence[Any]] = {
    Scalar.STRING: [
        "",
        *LETTERS,
        "\u1e9e",
        "s",
        "\u017f",
        "ab",
        "AB",
        "ab\n",
        "a\x00b",
        "a.b",
        "a\U0010ffff",
        "RED",
        "1",
        "true",
        "NaN",
    ],
    Scalar.INT: [-1, 0, 1, 2, 2**31 - 1, -(2**31)],
    Scalar.LONG: [
        Int64(each) for each in (-1, 0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), -(2**63) + 1)
    ],
    Scalar.FLOAT: [0.0, -0.0, 0.1, 1.0, 1.5, -1.0, 2.0**53, 2.0**63, -(2.0**63), 1e308, 5e-324],
    Scalar.BOOLEAN: [False, True],
    Scalar.DECIMAL: [Decimal128(each) for each in ("0", "-0", "0E+3", "1", "1.0", "0.1", *BEYOND)],
    Scalar.DATETIME: [
        from_milliseconds(each)
        for each in (0, 1, -1, 1_700_000_000_000, 10**15, -(10**15), 2**63 - 1, -(2**63))
    ],
    Scalar.DATE: [
        from_milliseconds(each * 86_400_000) for each in (0, 1, -1, 19_675, 10**7, -(10**7))
    ],
    Scalar.TIMESTAMP: [
        Timestamp(*each) for each in ((0, 1), (1, 0), (1, 1), (2**32 - 1, 2**32 - 1))
    ],
    Scalar.BINARY: [b"", b"\x00", b"a", b"ab", UUID(int=1).bytes],
    Scalar.OBJECTID: [ObjectId(f"{each:024x}") for each in range(3)],
    Scalar.UUID: [Binary(UUID(int=each).bytes, 4) for each in range(3)],
}
"""Values for documents and filters alike."""

ODD: Sequence[Any] = [
    None,
    float("nan"),
    float("inf"),
    float("-inf"),
    Timestamp(1, 1),
    Regex("a"),
    Regex("^a"),
    Regex("a", "i"),
    Code("a"),
    Code("a", {}),
    MinKey(),
    MaxKey(),
    b"\x00",
    Binary(b"\x00" * 16, 3),
    Binary(b"\x00" * 3, 4),
    {"$ref": "things", "$id": 1, "w": 1.0, "label": "a", "x": 1, "sku": "a", "n": 1},
    {},
    {"0": "a"},
    [],
]
"""Values that other programs may store, and that no filter can contain."""

ANY = [each for pool in NOTABLE.values() for each in pool] + list(ODD)

DOUBLES = st.sampled_from(NOTABLE[Scalar.FLOAT]) | st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def decimals_beside(draw: st.DrawFn) -> Decimal128:
    """Draw the 34-digit decimal just above or just below a double."""
    rounding = draw(st.sampled_from([ROUND_FLOOR, ROUND_CEILING]))
    return decimal_beside(draw(DOUBLES), rounding)


def decimal_beside(double: float, rounding: str) -> Decimal128:
    """Return the 34-digit decimal next to a double, or equal to it."""
    context = Context(prec=34, rounding=rounding, Emin=-6143, Emax=6144, clamp=1)
    return Decimal128(context.create_decimal(Decimal(double)))


OPERANDS: Mapping[Scalar, st.SearchStrategy[Any]] = {
    **{scalar: st.sampled_from(pool) for scalar, pool in NOTABLE.items()},
    Scalar.STRING: st.sampled_from(NOTABLE[Scalar.STRING])
    | st.text(LETTERS, max_size=3)
    | st.text(CASES, max_size=2)
    | st.text(ACCENTS, max_size=4)
    | st.text(max_size=4),
    Scalar.FLOAT: DOUBLES,
    Scalar.DECIMAL: st.sampled_from(NOTABLE[Scalar.DECIMAL]) | decimals_beside(),
}
INTS, LONGS, BOOLEANS = OPERANDS[Scalar.INT], OPERANDS[Scalar.LONG], st.booleans()
NUMBERS = INTS | LONGS | DOUBLES | OPERANDS[Scalar.DECIMAL] | st.sampled_from(ODD[1:4])
SCALARS = st.sampled_from(ANY)


_JSON_NAMES = ("a", "b", "a.b", "a", "0", "", "$a")
JSON_PATHS = ("a", "b", "a.b", "a.a", "b.a.b", "a.b.c")
JSON_OPERANDS = (
    st.sampled_from(["a", "b", "A", "", 0, 1, 1.0, -0.0, 0.1, 2**53 + 1, 2**63 - 1, True, False])
    | OPERANDS[Scalar.STRING]
)


def json_values() -> st.SearchStrategy[Any]:
    """Draw values of JSON fields: documents, lists of them, lists of lists, and other values."""
    leaves = SCALARS | st.sampled_from([None, "a", "b", 0, 1, True, []])
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(_JSON_NAMES), inner, max_size=3)
        ),
        max_leaves=8,
    )


def _fitting(field: Field, depth: int) -> st.SearchStrategy[Any]:
    one: st.SearchStrategy[Any]
    if isinstance(field.type, EnumType):
        one = st.sampled_from(list(field.type.by_stored))
    elif isinstance(field.type, str):
        one = documents(SHAPES.embedded(field.type), depth + 1)
    elif field.type is Scalar.JSON:
        one = json_values()
    else:
        one = OPERANDS[field.stored_scalar or field.type]
        if field.type in (Scalar.INT, Scalar.LONG, Scalar.FLOAT, Scalar.DECIMAL):
            one |= NUMBERS
    return st.lists(one | st.none(), max_size=3) if field.is_list else one


@st.composite
def _values(draw: st.DrawFn, field: Field, depth: int) -> Any:
    fits = _fitting(field, depth)
    match draw(st.integers(0, 9)):
        case 0:
            return None
        case 1:
            return draw(SCALARS)
        case 2:
            return draw(st.lists(fits | SCALARS, max_size=3))
        case 3:
            return draw(st.lists(st.lists(fits, max_size=2) | fits | SCALARS, max_size=2))
        case _:
            return draw(fits)


@st.composite
def documents(draw: st.DrawFn, kind: ObjectType = THING, depth: int = 0) -> dict[str, Any]:
    """Draw a document of a type, valid or nearly so, without `_id`; large types have gaps."""
    fields = [each for each in kind.fields if each.stored != "_id"]
    if depth > 2:
        fields = [each for each in fields if not isinstance(each.type, str)]
    chosen = draw(
        st.lists(
            st.sampled_from(fields),
            min_size=min(len(fields), 2) if draw(st.integers(0, 5)) else 0,
            max_size=6,
            unique_by=lambda each: each.stored,
        )
    )
    document = {each.stored: draw(_values(each, depth)) for each in chosen}
    if kind.name == THING.name and draw(BOOLEANS):
        document["version"] = draw(INTS | LONGS | DOUBLES)
    return document


@st.composite
def wheres(draw: st.DrawFn, kind: ObjectType = THING, depth: int = 0) -> dict[str, Any]:
    """Draw a filter by API names, with every operator of every field."""
    where: dict[str, Any] = {}
    names = [each.name for each in kind.fields if operators(each)]
    if kind.name == THING.name:
        names.append("version")
    if depth < 4:
        names += ["and", "or", "not"] * 2
    if len(kind.fields) == 2:
        names += [kind.fields[1].name] * 4
    for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=2)):
        where[name] = draw(_filters(kind, name, depth))
    return where


@st.composite
def _filters(draw: st.DrawFn, kind: ObjectType, name: str, depth: int) -> Any:
    if name in ("and", "or"):
        return draw(st.lists(wheres(kind, depth + 1), max_size=3))
    if name == "not":
        return draw(wheres(kind, depth + 1))
    field = kind.field(name) or Field(name="version", stored="version", type=Scalar.INT)
    if isinstance(field.type, str) and not field.is_list:
        if depth > 4 or draw(st.integers(0, 4)) == 0:
            return {"exists": draw(BOOLEANS)}
        return draw(wheres(SHAPES.embedded(field.type), depth + 1))
    # Only MongoDB evaluates a regular expression, and a path is no operator.
    known = [each for each in operators(field) if each not in ("path", "matches")]
    chosen = draw(st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True))
    inner = {"path": draw(st.sampled_from(JSON_PATHS))} if "path" in operators(field) else {}
    if draw(st.integers(0, 9)) == 0:
        inner = {}
    return {**inner, **{each: draw(_operands(field, each, depth)) for each in chosen}}


@st.composite
def _operands(draw: st.DrawFn, field: Field, operator: str, depth: int) -> Any:
    if operator in ("exists", "isEmpty"):
        return draw(BOOLEANS)
    if operator == "size":
        return draw(st.integers(0, 3))
    if isinstance(field.type, str):
        kind = SHAPES.embedded(field.type)
        return {} if depth > 4 else draw(st.just({}) | wheres(kind, depth + 1))
    if field.type is Scalar.JSON:
        return draw(_json_operands(operator))
    if isinstance(field.type, EnumType):
        one: st.SearchStrategy[Any] = st.sampled_from(field.type.values)
    elif field.name == "id":
        one = st.integers(0, 40).map(str)
    else:
        one = OPERANDS[field.stored_scalar or field.type]
        if field.type is Scalar.ID:
            one = one.map(str)
    if operator in ("eq", "ne"):
        return draw(one | st.none())
    if operator in ("in", "notIn", "hasEvery", "hasSome"):
        return draw(st.lists(one, max_size=3))
    return draw(one)


_ATOMS = (*"ab.é\n", "\\.", "\\d", "\\w", "\\S", "[ab]", "[^a]", "[a-c1]", "[\\w-]")


@st.composite
def patterns(draw: st.DrawFn, depth: int = 0) -> str:
    """Draw a regular expression of the subset that filters have, in Python's syntax too.

    Only `^` and `$` mean something else there.
    """
    sequences = draw(st.lists(st.lists(_pieces(depth), max_size=4), min_size=1, max_size=2))
    return "|".join(map("".join, sequences))


@st.composite
def _pieces(draw: st.DrawFn, depth: int) -> str:
    if depth < 2 and draw(st.integers(0, 4)) == 0:
        inner = draw(patterns(depth + 1))
        repeated = not any(each in inner for each in "*+?{")
        repeats = ("", "", "?", "{2}", "{1,3}") if repeated else ("", "", "?")
        return f"{draw(st.sampled_from(['(', '(?:']))}{inner})" + draw(st.sampled_from(repeats))
    place = draw(st.sampled_from(["", "", "", "", "", "", "^", "$", "\\b"]))
    atom = draw(st.sampled_from(_ATOMS))
    repeat = draw(st.sampled_from(["", "", "", "*", "+", "?", "{2}", "{1,}", "{0,2}"]))
    return place + atom + repeat


def _json_operands(operator: str) -> st.SearchStrategy[Any]:
    if operator in TEXT_OPERANDS:
        return OPERANDS[Scalar.STRING] | st.sampled_from("ab")
    if operator in ("in", "notIn"):
        return st.lists(JSON_OPERANDS, max_size=3)
    if operator in ("eq", "ne"):
        return JSON_OPERANDS | st.none()
    return JSON_OPERANDS.filter(lambda each: not isinstance(each, bool))


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Draw documents, and filters by API names: over all fields, or over one with more matches."""
    kind = THING
    if draw(st.integers(0, 9)):
        field = draw(st.sampled_from([each for each in THING.fields[1:] if operators(each)]))
        kind = replace(THING, fields=(THING.id, field))
    return (
        draw(st.lists(documents(kind), min_size=20, max_size=40)),
        draw(st.lists(wheres(kind), min_size=5, max_size=15)),
    )
