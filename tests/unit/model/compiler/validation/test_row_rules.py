"""Row rules: filters with variables for claims."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.errors import ModelError, ModelErrors
from revstream.resolvers.filters.parser import operators

MODEL = """
type Product @collection(name: "products") @access(rows: {rows}) {{ # !
  id: ID!
  name: String
  stock: Int
  count: Long
  rating: Float
  price: Decimal
  public: Boolean
  madeAt: DateTime
  key: ObjectID
  uuid: UUID
  kind: Kind
  tags: [String!]
  kinds: [Kind!]
  data: JSON
  size: Size
  at: Point
  sizes: [Size!]
  ownerId: ObjectID
  owner: Owner @reference(by: "ownerId")
  reviews: [Review!]! @referencedBy(field: "productId")
}}
type Review @collection(name: "reviews") {{
  id: ID!
  stars: Int
  productId: ID
}}
type Owner @collection(name: "owners", version: null) {{
  id: ObjectID!
  name: String
}}
type Size {{
  width: Int
}}
enum Kind {{
  NEW
  USED
}}
"""

MISTAKES = [
    pytest.param(
        "{ at: { near: { point: { longitude: 1, lat: 2 }, maxDistance: 3 } } }",
        '@access(rows:) has "lat" for "at.near.point", expected a PointInput',
        "it has longitude, latitude",
        id="an unknown part of a region",
    ),
    pytest.param(
        '{ at: { within: { circle: { center: $here, radius: "9" } } } }',
        '@access(rows:) has "9" for "at.within.circle.radius", expected Float',
        "write Float, or a variable",
        id="a part of a region of another type",
    ),
    pytest.param(
        "{ at: { within: { polygon: [5] } } }",
        '@access(rows:) has 5 for "at.within.polygon", expected a PointInput',
        "write an object with longitude, latitude",
        id="a corner that is no point",
    ),
    pytest.param(
        "{ name: { eq: $sub }",
        ('@access(rows:) is not a filter: expected Name, found <EOF>, in "{ name: { eq: $sub }"'),
        'write it as in a query\'s where: "{ ownerId: { eq: $sub } }"',
        id="a rule that does not parse",
    ),
    pytest.param(
        "$sub",
        "@access(rows:) has $sub, expected a filter of Product",
        "write { field: { operator: value } }; a variable replaces a value only",
        id="a rule that is no object",
    ),
    pytest.param(
        "[{ name: { eq: $sub } }]",
        ("@access(rows:) has [{ name: { eq: $sub } }], expected a filter of Product"),
        "write { field: { operator: value } }; a variable replaces a value only",
        id="a list for a rule",
    ),
    pytest.param(
        "{}",
        "@access(rows:) is empty, expected a filter",
        "name a field, or remove rows",
        id="an empty rule",
    ),
    pytest.param(
        "{ nmae: { eq: $sub } }",
        '@access(rows:) names "nmae", expected a stored field of Product',
        'did you mean "name"?',
        id="a misspelt field",
    ),
    pytest.param(
        "{ weight: { eq: $sub } }",
        '@access(rows:) names "weight", expected a stored field of Product',
        (
            "it has id, name, stock, count, rating, price, public, madeAt, key, uuid, kind, tags, "
            "kinds, data, size, at, sizes, ownerId"
        ),
        id="an unknown field",
    ),
    pytest.param(
        "{ or: [{ name: { eq: $sub } }, { not: { and: [{ weight: { eq: 1 } }] } }] }",
        '@access(rows:) names "weight", expected a stored field of Product',
        (
            "it has id, name, stock, count, rating, price, public, madeAt, key, uuid, kind, tags, "
            "kinds, data, size, at, sizes, ownerId"
        ),
        id="an unknown field deep inside",
    ),
    pytest.param(
        "{ owner: { eq: $sub } }",
        '@access(rows:) names "owner", expected a stored field of Product',
        'did you mean "ownerId"?',
        id="a reference in a rule",
    ),
    pytest.param(
        "{ reviews: { some: { stars: { eq: 5 } } } }",
        '@access(rows:) names "reviews", expected a stored field of Product',
        (
            "it has id, name, stock, count, rating, price, public, madeAt, key, uuid, kind, tags, "
            "kinds, data, size, at, sizes, ownerId"
        ),
        id="a back reference in a rule",
    ),
    pytest.param(
        "{ and: $rules }",
        "@access(rows:) has $rules, expected a filter of Product",
        "write { field: { operator: value } }; a variable replaces a value only",
        id="a variable for a rule",
    ),
    pytest.param(
        "{ name: { startWith: $sub } }",
        '@access(rows:) has no operator "startWith" for "name"',
        'did you mean "startsWith"?',
        id="a misspelt operator",
    ),
    pytest.param(
        "{ kind: { lt: NEW } }",
        '@access(rows:) has no operator "lt" for "kind"',
        "it has eq, ne, in, notIn, exists",
        id="an operator of another type",
    ),
    pytest.param(
        "{ stock: { contains: 1 } }",
        '@access(rows:) has no operator "contains" for "stock"',
        "it has eq, ne, in, notIn, lt, lte, gt, gte, exists",
        id="an operator of texts on a number",
    ),
    pytest.param(
        "{ id: { lt: $sub } }",
        '@access(rows:) has no operator "lt" for "id"',
        "it has eq, ne, in, notIn, exists",
        id="an order of ids",
    ),
    pytest.param(
        "{ tags: { eq: $sub } }",
        '@access(rows:) has no operator "eq" for "tags"',
        "it has has, hasEvery, hasSome, size, isEmpty, exists",
        id="an operator of values on a list",
    ),
    pytest.param(
        "{ name: $sub }",
        '@access(rows:) has $sub for "name"',
        "write an operator: name: { eq: $sub }",
        id="a value without an operator",
    ),
    pytest.param(
        '{ name: { matches: "a" } }',
        '@access(rows:) has "name.matches", a regular expression, which only MongoDB evaluates',
        "use startsWith, endsWith or contains",
        id="a regular expression",
    ),
    pytest.param(
        "{ data: { path: $sub, eq: 1 } }",
        '@access(rows:) has $sub for "data.path", expected text',
        "write the path itself",
        id="a claim as a path",
    ),
    pytest.param(
        '{ data: { path: "a.0", eq: 1 } }',
        '@access(rows:) has "a.0" for "data.path", expected names that are no numbers, '
        "which MongoDB reads as indexes",
        "leave an index out to find any item of a list",
        id="an index in a path",
    ),
    pytest.param(
        '{ data: { path: "a" } }',
        '@access(rows:) has no operator for "data", a path alone',
        "add one, such as exists",
        id="a path without an operator",
    ),
    pytest.param(
        '{ data: { path: "a", lt: true } }',
        '@access(rows:) has true for "data.lt", expected text or a number',
        "write text or a number, or a variable",
        id="an order of booleans",
    ),
    pytest.param(
        '{ data: { path: "a", contains: 5 } }',
        '@access(rows:) has 5 for "data.contains", expected String',
        "write String, or a variable",
        id="a number in a text",
    ),
    pytest.param(
        '{ stock: { gt: "3" } }',
        '@access(rows:) has "3" for "stock.gt", expected Int',
        "write Int, or a variable",
        id="a text for a number",
    ),
    pytest.param(
        "{ stock: { gt: 3.5 } }",
        '@access(rows:) has 3.5 for "stock.gt", expected Int',
        "write Int, or a variable",
        id="a fraction for a number",
    ),
    pytest.param(
        "{ name: { eq: 3 } }",
        '@access(rows:) has 3 for "name.eq", expected String',
        "write String, or a variable",
        id="a number for a text",
    ),
    pytest.param(
        '{ public: { eq: "yes" } }',
        '@access(rows:) has "yes" for "public.eq", expected Boolean',
        "write Boolean, or a variable",
        id="a text for true or false",
    ),
    pytest.param(
        "{ madeAt: { lt: 3 } }",
        '@access(rows:) has 3 for "madeAt.lt", expected DateTime',
        "write DateTime, or a variable",
        id="a number for a time",
    ),
    pytest.param(
        "{ kind: { eq: OLD } }",
        '@access(rows:) has OLD for "kind.eq", expected one of NEW, USED',
        "write one of NEW, USED, or a variable",
        id="an unknown enum value",
    ),
    pytest.param(
        '{ kind: { eq: "NEW" } }',
        '@access(rows:) has "NEW" for "kind.eq", expected one of NEW, USED',
        "write one of NEW, USED, or a variable",
        id="a quoted enum value",
    ),
    pytest.param(
        "{ stock: { lt: null } }",
        '@access(rows:) has null for "stock.lt", expected Int',
        "write Int, or a variable",
        id="null for an order",
    ),
    pytest.param(
        '{ name: { in: ["a", 3, $sub] } }',
        '@access(rows:) has 3 for "name.in", expected String',
        "write String, or a variable",
        id="a wrong item",
    ),
    pytest.param(
        '{ name: { exists: "no" } }',
        '@access(rows:) has "no" for "name.exists", expected Boolean',
        "write Boolean, or a variable",
        id="a text for exists",
    ),
    pytest.param(
        '{ size: { exists: "no" } }',
        '@access(rows:) has "no" for "Size.exists", expected Boolean',
        "write Boolean, or a variable",
        id="a text for exists of an embedded document",
    ),
    pytest.param(
        "{ size: { height: { eq: 1 } } }",
        '@access(rows:) names "height", expected a stored field of Size',
        "it has width",
        id="an unknown field of an embedded document",
    ),
    pytest.param(
        "{ sizes: 3 }",
        '@access(rows:) has 3 for "sizes"',
        "write an operator: sizes: { some: 3 }",
        id="no object for a list of embedded documents",
    ),
    pytest.param(
        '{ version: { eq: "1" } }',
        '@access(rows:) has "1" for "version.eq", expected Int',
        "write Int, or a variable",
        id="a text for the version",
    ),
    pytest.param(
        "{ ownerId: { startsWith: $sub } }",
        '@access(rows:) has no operator "startsWith" for "ownerId"',
        "it has eq, ne, in, notIn, exists",
        id="an operator of texts on an id that a reference names",
    ),
    pytest.param(
        "{ sizes: { some: { height: { eq: 1 } } } }",
        '@access(rows:) names "height", expected a stored field of Size',
        "it has width",
        id="an unknown field of an item",
    ),
    pytest.param(
        "{ sizes: { none: $size } }",
        "@access(rows:) has $size, expected a filter of Size",
        "write { field: { operator: value } }; a variable replaces a value only",
        id="a variable for an item",
    ),
    pytest.param(
        "{ sizes: { has: 1 } }",
        '@access(rows:) has no operator "has" for "sizes"',
        "it has some, every, none, size, isEmpty, exists",
        id="an operator of items that is none",
    ),
    pytest.param(
        "{ public: { in: [true] } }",
        '@access(rows:) has no operator "in" for "public"',
        "it has eq, ne, exists",
        id="a list of truths",
    ),
]


def with_rows(rows: str) -> str:
    """Return the text of a model with this row rule."""
    return MODEL.format(rows=json.dumps(rows))


@pytest.mark.parametrize(("rows", "problem", "mend"), MISTAKES)
def test_an_error_has_its_location_and_a_fix(
    mistake: Callable[[str], ModelError], rows: str, problem: str, mend: str
) -> None:
    """The error names the line of the directive, the problem and its fix."""
    error = mistake(with_rows(rows))
    assert (error.subject, error.problem, error.mend) == ("Product", problem, mend)


@pytest.mark.parametrize(
    "rows",
    [
        "{ ownerId: { eq: $sub } }",
        "{ or: [{ public: { eq: true } }, { not: { ownerId: { in: $groups } } }] }",
        "{ and: { name: { startsWith: $prefix, ne: null } } }",
        "{ name: { in: ['a', $sub], exists: true } }",
        "{ stock: { gte: 1, lt: $limit }, count: { gt: '9007199254740993' }, rating: { lt: 2 } }",
        "{ price: { lte: 9.99 }, madeAt: { lt: '2024-01-01T00:00:00Z' }, kind: { ne: USED } }",
        "{ id: { in: [1, '2', $sub] }, version: { gt: 1 } }",
        "{ tags: { has: $role, hasSome: ['a'], isEmpty: false }, kinds: { hasEvery: [NEW] } }",
        "{ size: { width: { gt: 1 }, exists: true, or: [{ width: { eq: $w } }] } }",
        "{ sizes: { some: { width: { gt: 1 } }, none: { width: { eq: 0 } }, isEmpty: false } }",
    ],
)
def test_rules_of_every_form_are_accepted(rows: str) -> None:
    """The text of a rule is kept unchanged."""
    rows = rows.replace("'", '"')
    access = read_model(with_rows(rows)).entity("Product").access
    assert access is not None
    assert access.rows == rows


def test_a_rule_may_use_the_version_only_where_it_is_counted(
    mistake: Callable[[str], ModelError],
) -> None:
    """Documents without a version field have no version to compare."""
    error = mistake(
        """
        type Owner
          @collection(name: "owners", version: null)
          @access(rows: "{ version: { gt: 1 } }") { # !
          id: ObjectID!
          name: String
        }
        """
    )
    assert error.problem == '@access(rows:) names "version", expected a stored field of Owner'


OPERATORS = {
    "eq": "$x",
    "ne": "$x",
    "in": "$x",
    "notIn": "$x",
    "lt": "$x",
    "lte": "$x",
    "gt": "$x",
    "gte": "$x",
    "startsWith": "$x",
    "endsWith": "$x",
    "eqIgnoreCase": "$x",
    "startsWithIgnoreCase": "$x",
    "endsWithIgnoreCase": "$x",
    "containsIgnoreCase": "$x",
    "eqIgnoreCaseAndAccents": "$x",
    "startsWithIgnoreCaseAndAccents": "$x",
    "endsWithIgnoreCaseAndAccents": "$x",
    "containsIgnoreCaseAndAccents": "$x",
    "contains": "$x",
    "path": '"a", eq: $x',
    "exists": "true",
    "has": "$x",
    "hasEvery": "$x",
    "hasSome": "$x",
    "size": "$x",
    "isEmpty": "true",
    "some": "{}",
    "every": "{}",
    "none": "{}",
    "within": "$x",
    "near": "$x",
}


def test_the_operators_are_those_of_the_filters() -> None:
    """A rule accepted at start is valid in queries, for every kind of field."""
    product = read_model(with_rows("{ name: { eq: $x } }")).entity("Product")
    for field in product.fields:
        if field.name == "size":
            continue
        accepted = set(OPERATORS)
        for operator, value in OPERATORS.items():
            try:
                read_model(with_rows(f"{{ {field.name}: {{ {operator}: {value} }} }}"))
            except ModelErrors:
                accepted.remove(operator)
        assert accepted == set(operators(field)) - {"matches"}, field.name
