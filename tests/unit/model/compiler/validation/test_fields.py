"""Stored fields: types, names in MongoDB, ids and fence values."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.errors import ModelError

FIELD_MISTAKES = [
    pytest.param(
        "name: Sting",
        '"Sting": unknown type',
        'did you mean "String"?',
        id="a misspelt scalar",
    ),
    pytest.param(
        "day: Time",
        '"Time": unknown type',
        'did you mean "DateTime"?',
        id="a scalar of another language",
    ),
    pytest.param(
        "places: [Point!]",
        "[Point!], expected one Point",
        "declare an embedded type with a field of type Point, and a list of it",
        id="a list of points",
    ),
    pytest.param(
        "shape: Xyzzy",
        '"Xyzzy": unknown type',
        (
            "declare a type or an enum of that name, or choose a scalar: ID, String, Int, "
            "Long, Float, Boolean, Decimal, DateTime, Date, Timestamp, ObjectID, UUID, Binary, "
            "Point, JSON"
        ),
        id="an unknown type",
    ),
    pytest.param(
        'name: String @stored(as: "")',
        'it is stored as "": a field\'s name in MongoDB cannot be empty',
        "choose another name with @stored(as:)",
        id="an empty stored name",
    ),
    pytest.param(
        'name: String @stored(as: "names.first")',
        (
            'it is stored as "names.first": a name with a dot is read as a path into an '
            "embedded document"
        ),
        "choose another name with @stored(as:)",
        id="a stored name with a dot",
    ),
    pytest.param(
        'name: String @stored(as: "$name")',
        'it is stored as "$name": a name that begins with $ is read as an operator',
        "choose another name with @stored(as:)",
        id="a stored name with a dollar",
    ),
    pytest.param(
        'name: String @stored(as: "a\\u0000b")',
        'it is stored as "a\\0b": a field\'s name in MongoDB cannot have a NUL character',
        "choose another name with @stored(as:)",
        id="a stored name with NUL",
    ),
    pytest.param(
        'name: String @stored(as: "007")',
        'it is stored as "007": a name of digits is read as an index of a list',
        "choose another name with @stored(as:)",
        id="a stored name of digits",
    ),
    pytest.param(
        'copies: JSON @stored(as: "_copies")',
        'it is stored as "_copies", where revstream stores the sources of copies',
        "choose another name with @stored(as:)",
        id="stored where copies are kept",
    ),
    pytest.param(
        'change: JSON @stored(as: "_change")',
        ('it is stored as "_change", where revstream stores the author and the reason of a change'),
        "remove it: versions show it as author and comment",
        id="_change as a stored name",
    ),
    pytest.param(
        'key: String @stored(as: "_id")',
        'it is stored as "_id", like the "id"',
        "choose another name with @stored(as:)",
        id="_id as a stored name",
    ),
    pytest.param(
        "name: String! @fence",
        "@fence: String!, expected a number",
        "declare it as Long! or Int!",
        id="a fence that is no number",
    ),
    pytest.param(
        "counts: [Long!]! @fence",
        "@fence: [Long!]!, expected a number",
        "declare it as Long! or Int!",
        id="a list as a fence",
    ),
]

MISTAKES = [
    pytest.param(
        """
        type Product @collection(name: "products") { # !
          name: String }
        """,
        "Product",
        'the entity has no "id"',
        'add "id: ID!"; its type may be ID, ObjectID, String, Int, Long, UUID',
        id="an entity without an id",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") {
          id: Decimal! # !
          name: String
        }
        """,
        "Product.id",
        "an id cannot be Decimal",
        "choose from ID, ObjectID, String, Int, Long, UUID",
        id="an id of a wrong scalar",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") {
          id: Size! # !
          name: String
        }
        enum Size { S }
        """,
        "Product.id",
        "an id cannot be Size",
        "choose from ID, ObjectID, String, Int, Long, UUID",
        id="an id of an enum",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") {
          id: ID # !
          name: String
        }
        """,
        "Product.id",
        "id: ID, expected one value that is never null",
        'write "id: ID!"',
        id="an id that may be null",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") {
          id: [ID!]! # !
          name: String
        }
        """,
        "Product.id",
        "id: [ID!]!, expected one value that is never null",
        'write "id: ID!"',
        id="a list of ids for an id",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") {
          id: ID! @stored(as: "sku") # !
          name: String
        }
        """,
        "Product.id",
        '@stored cannot be on the id: the id is stored as "_id", always',
        "remove it",
        id="@stored on the id",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") {
          id: ID! @unique # !
          name: String
        }
        """,
        "Product.id",
        "@unique cannot be on the id: the id is unique, always",
        "remove it",
        id="@unique on the id",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") {
          id: Long! @fence # !
          name: String
        }
        """,
        "Product.id",
        "@fence cannot be on the id: the id never changes, a fence does with each event",
        "remove it",
        id="@fence on the id",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") {
          id: ID! @copy(of: "other.id") # !
          name: String
        }
        """,
        "Product.id",
        "@copy cannot be on the id: the id never changes, a copy does",
        "remove it",
        id="@copy on the id",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") {
          id: ID! @reference(by: "name") # !
          name: String
        }
        """,
        "Product.id",
        ("@reference cannot be on the id: the id cannot be a reference; add another field for it"),
        "remove it",
        id="@reference on the id",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") {
          id: ID! @referencedBy(field: "name") # !
          name: String
        }
        """,
        "Product.id",
        "@referencedBy cannot be on the id: the id cannot be a list of documents",
        "remove it",
        id="@referencedBy on the id",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") {
          id: Ident! # !
          name: String
        }
        """,
        "Product.id",
        '"Ident": unknown type',
        'did you mean "Int"?',
        id="an id of an unknown type",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID!
          supplier: Supplier # !
        }
        """,
        "Product.supplier",
        "Supplier is an entity, expected an embedded type, an enum or a scalar",
        ('store its id, supplierId: ID, and write supplier: Supplier @reference(by: "supplierId")'),
        id="an entity inside a document",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID!
          suppliers: [Supplier!]! # !
        }
        """,
        "Product.suppliers",
        "Supplier is an entity, expected an embedded type, an enum or a scalar",
        'add @referencedBy(field: "…"), naming the field of Supplier that holds the id',
        id="a list of entities inside a document",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String
          title: String @stored(as: "name") # !
        }
        """,
        "Product.title",
        'it is stored as "name", like "name"',
        "choose another name with @stored(as:)",
        id="two fields stored as one",
    ),
    pytest.param(
        """
        type Product @collection(name: "products", version: "revision") { id: ID!
          revision: Int # !
        }
        """,
        "Product.revision",
        'it is stored as "revision", like the version, by @collection(version:)',
        "remove it: the API shows it as version",
        id="a field stored as the version",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! one: Long! @fence
          two: Long! @fence # !
        }
        """,
        "Product.two",
        'Product already has the fence "one"',
        "remove one of them",
        id="two fences",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        type Size {
          width: Int @fence # !
        }
        """,
        "Size.width",
        "@fence: Size is embedded, expected an entity",
        "move it to a field of the entity",
        id="a fence in an embedded type",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! count: Long }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          count: Long @fence @copy(of: "supplier.count") # !
        }
        """,
        "Product.count",
        "@fence: on a @copy, expected a field that each event sets",
        "remove @fence or @copy",
        id="a fence that is a copy",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { # !
          id: ID! }
        """,
        "Product",
        'the entity has no stored field except "id"',
        "add a field, for example of type JSON",
        id="an entity with an id only",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { # !
          id: ObjectID! products: [Product!]! @referencedBy(field: "supplierId") }
        type Product @collection(name: "products") { id: ID! supplierId: ID }
        """,
        "Supplier",
        'the entity has no stored field except "id"',
        "add a field, for example of type JSON",
        id="an entity with relations only",
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


def test_an_embedded_field_may_be_stored_under_reserved_document_names() -> None:
    """`_id` and `_change` are reserved only at the top level of a document."""
    model = read_model(
        """
        type Order @collection(name: "orders") {
          id: ID!
          lines: [Line!]!
        }
        type Line {
          lineId: ObjectID @stored(as: "_id")
          why: String @stored(as: "_change")
        }
        """
    )
    assert [each.stored for each in model.embedded("Line").fields] == ["_id", "_change"]


@pytest.mark.parametrize("scalar", ["Int", "Long"])
def test_a_fence_is_a_whole_number(scalar: str) -> None:
    """A fence field may be Int or Long, and null in old documents."""
    model = read_model(
        f'type Reading @collection(name: "readings") {{ id: ID! count: {scalar} @fence }}'
    )
    fence = model.entity("Reading").fence
    assert fence is not None
    assert fence.name == "count"
