"""@index and @unique: stored paths, in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.definition import Index
from revstream.model.errors import ModelError

FIELD_MISTAKES = [
    pytest.param(
        "data: JSON @unique",
        "@unique: JSON, expected a single value",
        "put it on a field with a single value",
        id="@unique on JSON",
    ),
]

MISTAKES = [
    pytest.param(
        """
        type Shop @collection(name: "shops") @index(fields: ["at"], unique: true) { # !
          id: ID! at: Point }
        """,
        "Shop",
        '@index: unique, with the Point "at", expected no Point',
        "remove unique",
        id="a unique index with a point",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @index(fields: []) { # !
          id: ID! name: String }
        """,
        "Product",
        "@index: no fields, expected at least one",
        "name at least one",
        id="an index without fields",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @index(fields: ["id"]) { # !
          id: ID! name: String }
        """,
        "Product",
        '@index: "id" is always indexed',
        "remove the index",
        id="an index on the id",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @index(fields: ["nmae"]) { # !
          id: ID! name: String }
        """,
        "Product",
        '@index: Product has no stored field "nmae"',
        'did you mean "name"?',
        id="an index on a misspelt field",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @index(fields: ["weight"]) { # !
          id: ID! name: String }
        """,
        "Product",
        '@index: Product has no stored field "weight"',
        "it has id, name",
        id="an index on an unknown field",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") @index(fields: ["supplier"]) { # !
          id: ID! supplierId: ID supplier: Supplier @reference(by: "supplierId") }
        """,
        "Product",
        '@index: Product has no stored field "supplier"',
        'did you mean "supplierId"?',
        id="an index on a reference",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @index(fields: ["size.widht"]) { # !
          id: ID! size: Size }
        type Size { width: Int }
        """,
        "Product",
        '@index: Size has no stored field "widht"',
        'did you mean "width"?',
        id="an index on an unknown path",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @index(fields: ["name.first"]) { # !
          id: ID! name: String }
        """,
        "Product",
        '@index: "name" is String and has no field "first"',
        'name "name" itself, or remove it',
        id="an index on a path through a value",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @index(fields: ["size"]) { # !
          id: ID! size: Size }
        type Size { width: Int }
        """,
        "Product",
        '@index: "size" is an embedded Size, expected a field with a single value',
        'name a field in it, for example "size.width"',
        id="an index on an embedded document",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @index(fields: ["data"]) { # !
          id: ID! data: JSON }
        """,
        "Product",
        '@index: "data" is JSON, and the API does not filter or sort by it',
        "name another field",
        id="an index on JSON",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @index(fields: ["name", "name"]) { # !
          id: ID! name: String }
        """,
        "Product",
        '@index names "name" twice',
        "name it once",
        id="an index on a field twice",
    ),
    pytest.param(
        """
        type Product @collection(name: "products")
          @index(fields: ["tags", "sizes.width"]) { # !
          id: ID!
          tags: [String!]
          sizes: [Size!]
        }
        type Size { width: Int }
        """,
        "Product",
        '"sizes" and "tags" are lists, maximum of an index is one list',
        "create two indexes",
        id="an index on two lists",
    ),
    pytest.param(
        """
        type Product @collection(name: "products", version: null)
          @index(fields: ["version"]) { # !
          id: ID!
          name: String
        }
        """,
        "Product",
        '@index: Product has no stored field "version"',
        "it has id, name",
        id="an index on a version that is not there",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @index(fields: ["name", "price"])
          @index(fields: ["name", "price"], unique: true) { # !
          id: ID!
          name: String
          price: Int
        }
        """,
        "Product",
        '@index(fields: ["name", "price"]): twice, expected once',
        "remove one of them",
        id="an index twice",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @index(fields: ["name"]) { id: ID!
          name: String @unique # !
        }
        """,
        "Product",
        '@unique on "name" and @index(fields: ["name"]) are the same',
        "remove one of them",
        id="an index and @unique",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        type Size @index(fields: ["width"]) { # !
          width: Int }
        """,
        "Size",
        "@index: Size is embedded, expected an entity",
        "put it on the entity, with the path to the field: dimensions.width",
        id="an index on an embedded type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        type Size {
          width: Int @unique # !
        }
        """,
        "Size.width",
        "@unique: Size is embedded, expected an entity",
        'write it on the entity: @index(fields: ["….width"], unique: true)',
        id="@unique in an embedded type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID!
          sizes: [Size!] @unique # !
        }
        type Size { width: Int }
        """,
        "Product.sizes",
        "@unique: [Size!], expected a single value",
        "put it on a field with a single value",
        id="@unique on an embedded document",
    ),
]


@pytest.mark.parametrize(("line", "problem", "mend"), FIELD_MISTAKES)
def test_an_error_in_a_field_has_a_fix(
    mistake: Callable[[str], ModelError], line: str, problem: str, mend: str
) -> None:
    """Adding the field to a product gives exactly one error, which is in that field."""
    error = mistake(f'type Product @collection(name: "products") {{ id: ID!\n{line} # !\n}}')
    assert error.subject == f"Product.{line.partition(':')[0]}"
    assert (error.problem, error.mend) == (problem, mend)


@pytest.mark.parametrize(("text", "subject", "problem", "mend"), MISTAKES)
def test_an_error_has_its_location_and_a_fix(
    mistake: Callable[[str], ModelError], text: str, subject: str, problem: str, mend: str
) -> None:
    """The error names the marked line, the type and field, the problem and its fix."""
    error = mistake(text)
    assert (error.subject, error.problem, error.mend) == (subject, problem, mend)


def test_indexes_are_over_stored_names() -> None:
    """`@index` comes first, then `@unique`, in source order; paths may enter documents."""
    model = read_model(
        """
        type Order
          @collection(name: "orders", version: "rev")
          @index(fields: ["placedAt", "id"])
          @index(fields: ["lines.productSku", "lines.tags"], unique: true)
          @index(fields: ["version"]) {
          number: String! @unique @stored(as: "no")
          id: ID!
          placedAt: DateTime! @stored(as: "placed_at")
          emails: [String!] @unique
          lines: [Line!]! @stored(as: "items")
        }
        type Line {
          productSku: String! @stored(as: "sku")
          tags: [String!]
        }
        """
    )
    assert model.entity("Order").indexes == (
        Index(fields=("placed_at", "_id")),
        Index(fields=("items.sku", "items.tags"), unique=True),
        Index(fields=("rev",)),
        Index(fields=("no",), unique=True),
        Index(fields=("emails",), unique=True),
    )


def test_an_index_knows_its_points() -> None:
    """MongoDB indexes them in another way; a type Point of the model is no such point."""
    model = read_model(
        """
        type Shop @collection(name: "shops") @index(fields: ["home.at", "name"]) {
          id: ID! name: String home: Home
        }
        type Home { at: Point @stored(as: "loc") }
        """
    )
    assert model.entity("Shop").indexes == (
        Index(fields=("home.loc", "name"), points=("home.loc",)),
    )
    own = read_model(
        """
        type Shop @collection(name: "shops") @index(fields: ["at.x"]) {
          id: ID! at: Point near: PointNear }
        type Point { x: Int } type PointNear { y: Int }
        """
    )
    assert own.entity("Shop").indexes == (Index(fields=("at.x",)),)


def test_an_index_has_at_most_32_fields(mistake: Callable[[str], ModelError]) -> None:
    """MongoDB's limit is checked before MongoDB rejects the index."""
    names = [f"f{number}" for number in range(33)]
    fields = " ".join(f"{each}: Int" for each in names)
    listed = ", ".join(f'"{each}"' for each in names)
    error = mistake(
        f'type T @collection(name: "ts") @index(fields: [{listed}]) {{ id: ID! {fields} }} # !'
    )
    assert error.problem == "@index: 33 fields, maximum is 32"
