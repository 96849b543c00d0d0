"""Errors about requests say what to write instead, in the notation of the request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from revstream.gql.engine.execution.schema import Schema
from revstream.gql.engine.limits.document_limits import Limits
from revstream.gql.schema import build_schema
from revstream.model.compiler.loader import read_model
from revstream.model.definition import Model
from tests.support.reads import Memory

WINES = """
type Wine @collection(name: "wines") {
  id: ID!
  label: String!
  price: Decimal!
  total: Decimal
  soldAt: DateTime
  bottledOn: Date
  status: Status
  tags: [String!]
  payload: Payload
  shopId: ID
  shop: Shop @reference(by: "shopId")
}
enum Status { PAID OPEN }
union Payload @discriminator(field: "kind") = Gps | Temp
type Gps { lat: Float! station: String }
type Temp { celsius: Float! station: String }
type Shop @collection(name: "shops") {
  id: ID!
  city: String
  wines: [Wine!]! @referencedBy(field: "shopId")
}
"""
WHERE = "query($w: WineWhere) { wines(where: $w) { totalCount } }"
ORDER = "query($o: [WineOrder!]) { wines(orderBy: $o) { totalCount } }"
NOT_AN_OBJECT = "Expected value of type '{}' to be an object, found: {}. {}"
UNKNOWN = "Expected value of type '{}' not to include unknown field '{}'{}ound: {}. {}"
ONE_KEY = "OneOf Input Object '{}' must specify exactly one key. {}"


@pytest.fixture(scope="module")
def wines() -> Model:
    return read_model(WINES)


@pytest.fixture(scope="module")
def wine_schema(wines: Model) -> Schema:
    return build_schema(wines)


async def _errors(schema: Schema, query: str, variables: dict[str, Any] | None = None) -> list[Any]:
    result = await schema.execute(query, variables, Memory().context())
    assert result.errors is not None
    return [each.formatted for each in result.errors]


def where(condition: str) -> str:
    return f"{{ wines(where: {{ {condition} }}) {{ totalCount }} }}"


def groups(arguments: str, selected: str = "count") -> str:
    return f"{{ winesAggregate({arguments}) {{ groups {{ {selected} }} }} }}"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "{ wines { label } }",
            "Cannot query field 'label' on type 'WineConnection'. Select it in nodes { label }.",
        ),
        (
            "{ wines { shop { city } } }",
            "Cannot query field 'shop' on type 'WineConnection'. "
            "Select it in nodes { shop { … } }.",
        ),
        (
            groups("groupBy: { status: true }", "status"),
            "Cannot query field 'status' on type 'WineAggregateGroup'. "
            "Select it in key { status }.",
        ),
        (
            groups("groupBy: { status: true }", "total"),
            "Cannot query field 'total' on type 'WineAggregateGroup'. "
            "Select it in sum { total } or key { total }.",
        ),
        (
            "{ wines { lable } }",
            "Cannot query field 'lable' on type 'WineConnection'.",
        ),
        (where('label: "x"'), NOT_AN_OBJECT.format("StringFilter", '"x"', 'Write { eq: "x" }.')),
        (where("label: 5"), NOT_AN_OBJECT.format("StringFilter", "5", "Write { eq: … }.")),
        (
            where("status: PAID"),
            NOT_AN_OBJECT.format("StatusFilter", "PAID", "Write { eq: PAID }."),
        ),
        (
            where("status: [PAID, OPEN]"),
            NOT_AN_OBJECT.format("StatusFilter", "[PAID, OPEN]", "Write { in: [PAID, OPEN] }."),
        ),
        (
            where('tags: "red"'),
            NOT_AN_OBJECT.format("StringListFilter", '"red"', 'Write { has: "red" }.'),
        ),
        (
            f"query($x: String) {where('label: $x')}",
            "Variable '$x' of type 'String' used in position expecting type 'StringFilter'. "
            "Write { eq: $x }.",
        ),
        (
            f"query($x: [String!]!) {where('label: $x')}",
            "Variable '$x' of type '[String!]!' used in position expecting type 'StringFilter'. "
            "Write { in: $x }.",
        ),
        (
            "query($t: TimePoint) { winesAsOf(asOf: $t) { totalCount } }",
            "Variable '$t' of type 'TimePoint' used in position expecting type 'TimePoint!'.",
        ),
        (
            groups("groupBy: { soldAt: true }"),
            NOT_AN_OBJECT.format("TimeBucket", "true", "Write { by: DAY }."),
        ),
        (
            groups("groupBy: { soldAt: MONTH }"),
            NOT_AN_OBJECT.format("TimeBucket", "MONTH", "Write { by: MONTH }."),
        ),
        (
            groups('groupBy: ["status", "soldAt"]'),
            NOT_AN_OBJECT.format(
                "WineAggregateGroupBy",
                '["status", "soldAt"]',
                "Write { status: true, soldAt: { by: DAY } }.",
            ),
        ),
        (
            groups('groupBy: "status"'),
            NOT_AN_OBJECT.format("WineAggregateGroupBy", '"status"', "Write { status: true }."),
        ),
        (
            groups("groupBy: { status: true }, orderBy: [{ total: DESC }]"),
            UNKNOWN.format(
                "WineAggregateGroupOrder",
                "total",
                ", f",
                "{ total: DESC }",
                "Write { sum: { total: DESC } } or { key: { total: DESC } }.",
            ),
        ),
        (
            "{ wines(orderBy: [{ price: DESC, label: ASC }]) { totalCount } }",
            ONE_KEY.format("WineOrder", "Write [{ price: DESC }, { label: ASC }]."),
        ),
        (
            "{ wines(orderBy: { price: DESC, label: ASC }) { totalCount } }",
            ONE_KEY.format("WineOrder", "Write [{ price: DESC }, { label: ASC }]."),
        ),
        (
            "{ wines(orderBy: price) { totalCount } }",
            NOT_AN_OBJECT.format("WineOrder", "price", "Write { price: ASC }."),
        ),
        (
            "{ winesAsOf(asOf: {}) { totalCount } }",
            ONE_KEY.format("TimePoint", "Expected one of time, token."),
        ),
        (
            '{ winesAsOf(asOf: "2026-01-01T00:00:00Z") { totalCount } }',
            NOT_AN_OBJECT.format(
                "TimePoint", '"2026-01-01T00:00:00Z"', 'Write { time: "2026-01-01T00:00:00Z" }.'
            ),
        ),
        (
            '{ winesAsOf(asOf: "yesterday") { totalCount } }',
            NOT_AN_OBJECT.format("TimePoint", '"yesterday"', "Expected one of time, token."),
        ),
        (
            'mutation { updateWine(id: "1", patch: { payload: { gps: {}, temp: {} } }) '
            "{ __typename } }",
            ONE_KEY.format("PayloadPatch", "Expected one of gps, temp."),
        ),
        (
            where('label: { regex: "wein" }'),
            UNKNOWN.format(
                "StringFilter", "regex", ", f", '{ regex: "wein" }', "Did you mean 'matches'?"
            ),
        ),
        (
            where('label: { like: "wein" }'),
            UNKNOWN.format(
                "StringFilter",
                "like",
                ". F",
                '{ like: "wein" }',
                "Did you mean 'contains' or 'containsIgnoreCase'?",
            ),
        ),
        (
            where('label: { ilike: "wein" }'),
            UNKNOWN.format(
                "StringFilter",
                "ilike",
                ". F",
                '{ ilike: "wein" }',
                "Did you mean 'containsIgnoreCase'?",
            ),
        ),
        (
            where("payload: { celsius: { gt: 20 } }"),
            UNKNOWN.format(
                "PayloadWhere",
                "celsius",
                ", f",
                "{ celsius: { gt: 20 } }",
                "Write { temp: { celsius: { gt: 20 } } }.",
            ),
        ),
        (
            # Both members have the field.
            where('payload: { station: { eq: "C" } }'),
            UNKNOWN.format(
                "PayloadWhere", "station", ", f", '{ station: { eq: "C" } }', ""
            ).rstrip(),
        ),
        (
            '{ shops(where: { wines: { label: { eq: "x" } } }) { totalCount } }',
            UNKNOWN.format(
                "WineListFilter",
                "label",
                ", f",
                '{ label: { eq: "x" } }',
                'Write { some: { label: { eq: "x" } } }.',
            ),
        ),
    ],
)
async def test_an_error_in_a_document_has_a_hint(
    wine_schema: Schema, query: str, message: str
) -> None:
    """The hint is in the notation of GraphQL, and takes the place of a guess by similar names."""
    [error] = await _errors(wine_schema, query)
    assert error["message"] == message
    assert error["locations"]


@pytest.mark.parametrize(
    ("query", "variables", "message"),
    [
        (
            WHERE,
            {"w": {"label": "x"}},
            "Variable '$w' has invalid value at .label: "
            + NOT_AN_OBJECT.format("StringFilter", "'x'", 'Write {"eq": "x"}.'),
        ),
        (
            WHERE,
            {"w": {"and": [{"payload": {"celsius": {"gt": 20}}}]}},
            "Variable '$w' has invalid value at .and[0].payload: "
            + UNKNOWN.format(
                "PayloadWhere",
                "celsius",
                ", f",
                "{'celsius': {'gt': 20}}",
                'Write {"temp": {"celsius": {"gt": 20}}}.',
            ),
        ),
        (
            "query($g: WineAggregateGroupBy) { winesAggregate(groupBy: $g) { count } }",
            {"g": ["status", "soldAt"]},
            "Variable '$g' has invalid value: "
            + NOT_AN_OBJECT.format(
                "WineAggregateGroupBy",
                "['status', 'soldAt']",
                'Write {"status": true, "soldAt": {"by": "DAY"}}.',
            ),
        ),
        (
            ORDER,
            {"o": [{"id": "ASC"}, {"price": "DESC", "label": "ASC"}]},
            "Variable '$o' has invalid value at [1]: "
            + ONE_KEY.format("WineOrder", 'Write [{"price": "DESC"}, {"label": "ASC"}].'),
        ),
        (
            ORDER,
            {"o": {"price": None}},
            "Variable '$o' has invalid value: Value for member field 'price' must be non-null",
        ),
        (
            "query($t: TimePoint!) { winesAsOf(asOf: $t) { totalCount } }",
            {"t": {}},
            "Variable '$t' has invalid value: "
            + ONE_KEY.format("TimePoint", "Expected one of time, token."),
        ),
        (
            "mutation($p: WinePatch) { updateWine(id: 1, patch: $p) { __typename } }",
            {"p": {"payload": {"gps": {}, "temp": {}}}},
            "Variable '$p' has invalid value at .payload: "
            + ONE_KEY.format("PayloadPatch", "Expected one of gps, temp."),
        ),
        (
            WHERE,
            {"w": {"soldAt": {"gte": "2026-01-01"}}},
            "Variable '$w' has invalid value at .soldAt.gte: DateTime: '2026-01-01', expected a "
            "date and time with offset, as in 2024-05-01T12:00:00.000Z",
        ),
    ],
)
async def test_an_error_in_a_variable_has_its_place_and_a_hint(
    wine_schema: Schema, query: str, variables: dict[str, Any], message: str
) -> None:
    """The hint is in the notation of JSON; a stored document and a new one have the same error."""
    for _ in range(2):
        [error] = await _errors(wine_schema, query, variables)
        assert error["message"] == message
        assert error["locations"] == [{"line": 1, "column": query.index("$") + 1}]
        assert error["extensions"] == {"code": "BAD_USER_INPUT"}


async def test_several_mistakes_in_a_variable_have_a_hint_each(wine_schema: Schema) -> None:
    """Two unknown fields at one path are told apart."""
    first, second = await _errors(wine_schema, WHERE, {"w": {"label": {"regex": "a", "like": "b"}}})
    assert first["message"].endswith("Did you mean 'matches'?")
    assert second["message"].endswith("Did you mean 'contains' or 'containsIgnoreCase'?")


@pytest.mark.parametrize(
    ("condition", "value", "start"),
    [
        ('soldAt: { gte: "2026-01-01" }', '"2026', "DateTime: '2026-01-01', expected a date"),
        ('bottledOn: { gte: "x" }', '"x"', "Date: 'x', expected a day"),
        ('price: { gte: "x" }', '"x"', "Decimal: 'x', expected a decimal number"),
        ("price: { gte: PAID }", "PAID", "Decimal: PAID, expected a decimal number"),
        ("price: { gte: 1e99999 }", "1e", "Decimal: '1e99999', expected a decimal number"),
    ],
)
async def test_an_error_of_a_scalar_has_the_location_of_the_literal(
    wine_schema: Schema, condition: str, value: str, start: str
) -> None:
    """With two dates in a filter, the location tells which one is wrong."""
    query = where(condition)
    [error] = await _errors(wine_schema, query)
    assert error["message"].startswith(start)
    assert error["locations"] == [{"line": 1, "column": query.index(value) + 1}]


async def test_a_token_that_is_no_text_has_a_location(wine_schema: Schema) -> None:
    """ResumeToken has a parser of its own."""
    [error] = await _errors(wine_schema, "{ winesAsOf(asOf: { token: 5 }) { totalCount } }")
    assert error["message"] == "ResumeToken: 5, expected the text of a resumeToken field"
    assert error["locations"] == [{"line": 1, "column": 28}]


async def test_without_introspection_there_are_no_hints(wines: Model) -> None:
    """A hint has names of the schema, which introspection would show."""
    schema = build_schema(wines, replace(Limits(), introspection=False))
    mistakes: list[tuple[str, dict[str, Any] | None]] = [
        ("{ wines { label } }", None),
        (where('label: "x"'), None),
        (where('label: { like: "x" }'), None),
        (where("payload: { celsius: { gt: 20 } }"), None),
        ("{ winesAsOf(asOf: {}) { totalCount } }", None),
        (WHERE, {"w": {"payload": {"celsius": {"gt": 20}}}}),
        (ORDER, {"o": [{"price": "DESC", "label": "ASC"}]}),
    ]
    for query, variables in mistakes:
        [error] = await _errors(schema, query, variables)
        for word in ("Write", "Select", "Did you mean", "Expected one of"):
            assert word not in error["message"]
    assert error["message"].startswith("Variable '$o' has invalid value at [0]: OneOf Input")


async def test_long_values_are_left_out_of_a_hint(wine_schema: Schema) -> None:
    """The request has them already."""
    long = "x" * 100
    [error] = await _errors(wine_schema, where(f'label: "{long}"'))
    assert error["message"].endswith("Write { eq: … }.")
    [error] = await _errors(wine_schema, WHERE, {"w": {"label": long}})
    assert error["message"].endswith('Write {"eq": …}.')
